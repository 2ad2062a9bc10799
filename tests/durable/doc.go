// Package durable proves the promises of the durable runtime the way a doubting user would: by random programs against a small
// model, by SIGKILL at named points, by paused processes, servers that die and connections that are cut, by the loss of power,
// and by clients who compare what they saw. Negative controls take a safeguard away and must be noticed.
//
// Its programs are counter, the neurons that are counted with, and node, an OS process that runs them on a database. It
// knows neurons, engine, leases and stores, and nothing of agents, sessions or the daemon. What is slow needs the build tag
// crash; flags make runs as long as wanted.
package durable
