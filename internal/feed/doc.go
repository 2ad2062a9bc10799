// Package feed owns how anything committed is followed live: a cursor of generation and sequence, watchers that are fed
// after the commit, the reset of one that fell behind what is kept, and the way of a slow watcher back to the store.
//
// A hub never waits for a watcher, and a watcher loses no numbered item: what does not fit into its buffer it reads from
// the store. It must not know what the items are nor where they are stored: the follower hands in a Source.
//
// It is a leaf: it imports the standard library only.
package feed
