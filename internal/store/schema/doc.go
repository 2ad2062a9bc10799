// Package schema reads the numbered migrations of a store and names the databases that a build cannot use.
//
// It owns the form of migrations, [Error], and the seal that keeps daemons from a store. It must not know an engine: each applies
// its own. It imports nothing of this project.
package schema
