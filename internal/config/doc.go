// Package config owns what one instance is told from outside: the home directory with its paths, modes, lock, token and
// socket addresses ([Home]), and the settings ([Config]) with their sources: flags over SOMA_* variables over config.yaml
// over defaults.
//
// It must not know what the settings are for: no daemon, store, process or python kernel. It reads no environment of its
// own: callers pass a lookup function. Secrets are values of type [Secret], which print as a placeholder.
//
// It is a leaf: it imports the standard library, the YAML parser and golang.org/x/sys only.
package config
