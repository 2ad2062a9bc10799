// Package archive moves whole stores: it copies one into another, makes backups of them and restores those.
//
// It owns what is around the rows: the locks of homes, that no node lives, the files with their names, modes and syncs, what
// takes whose place in which order, and what a person is told. The rows are the business of [transfer].
//
// It must not know what the rows mean, nor a daemon. It imports config, crash and the rooms of store.
package archive
