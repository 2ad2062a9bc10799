// Package api owns the daemon's HTTP side: the one table of routes with their access levels, the checks that every request
// passes in a fixed order, strict reading of requests, answers and errors, and the event streams.
//
// It declares what it asks of the daemon ([Sessions], [Processes], [Events], [Evidence], [Daemon]) and knows nothing of how that is
// done: no store, neuron, agent or python kernel. Handlers decide nothing about agents; they check form, call and answer.
//
// It may import wire and lower rooms. openapi.yaml describes all of it; a test holds table and description together.
package api
