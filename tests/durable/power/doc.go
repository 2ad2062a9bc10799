// Package power proves that what SQLite has acknowledged outlives a loss of power: of each file it keeps what was there when its
// last fsync returned, and makes from that, with a part of the pages that were written since, what a disk may hold afterwards.
//
// It stands between SQLite and the file system of its whole OS process, which is why it is a package of its own. It imports
// the counters, the engine and the store.
package power
