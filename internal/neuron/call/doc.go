// Package call is request and answer between neurons: typed, durable, and told in the journals.
//
// It is built on steps and deliveries. Who asks commits a step of its own: the fact capability.requested, a row of table call
// with what is asked, and a delivery without a payload that carries the request. The target's turn runs the method and
// commits its answer into the row together with its effects. The fact of the end goes with the commit of the caller's turn,
// which takes the row away. So a handler that runs again asks under the same id and is answered from the row, and a row
// that nobody ends is ended as failed(unknown). Facts tell contract, method, target, request and reason code, never what was
// asked or answered.
//
//	caller's turn ─ step: requested, row, delivery ─→ target's turn ─ answer in the row ─→ caller's turn ─ end, row deleted
//
// It owns the tables call and call_part and their statements, contracts, the checks before a method runs, streams and the
// facts of calls. It must not know what is called, nor how turns are run: it sees a turn, or a Side. It imports neuron,
// ident and the standard library.
package call
