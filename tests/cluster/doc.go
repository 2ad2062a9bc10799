// Package cluster tests several real daemons on one real PostgreSQL: what any of them is asked, what a killed, paused or stopped
// one leaves to the others, who is let in, and that no secret shows.
//
// Its world is the built program; what it needs of the project itself is the client and the home's paths.
package cluster
