// Package peer speaks to the other daemons that share a store: it knows who holds a place, hands requests to that daemon and
// its answers back, and hears what the others have committed.
//
// It owns the connections between daemons: who is taken for whom (the fingerprint of the certificate that stands in the node's
// row), the secret that they show each other, and how long anybody waits for a place that nobody holds. It must not know what
// a request means. It imports neuron and its lease, lifecycle and wire.
package peer
