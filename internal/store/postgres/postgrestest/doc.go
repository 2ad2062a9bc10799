// Package postgrestest runs one real PostgreSQL server for a test process, with fsync on, and makes a fresh database for each
// test. The server ends with the process, also when that is killed. Production code never imports it.
//
// It owns the search for PostgreSQL's programs, the server's folder and its process. It must not know what is kept in the
// databases. It imports nothing of this project.
package postgrestest
