// Command node runs the counters of the durable tests on a database, alone on SQLite or as one of several on PostgreSQL, as a
// daemon does: when its places are lost it builds all its parts anew in the same OS process.
//
// It reads requests from standard input and writes answers and events to standard output, one JSON object a line
// ([Request], [Line]). It ends in order when its input does. Built with the tag crash it can die at the points of
// internal/crash.
package main
