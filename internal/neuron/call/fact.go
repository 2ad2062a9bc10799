package call

import (
	"encoding/json"

	"soma/ident"
	"soma/internal/neuron"
)

// The facts of a call in the caller's outgoing feed. Each request has one Requested and then one of the others.
const (
	RequestedAlias = "capability.requested.v1"
	CompletedAlias = "capability.completed.v1"
	FailedAlias    = "capability.failed.v1"
	RejectedAlias  = "capability.rejected.v1"
	AbandonedAlias = "capability.abandoned.v1" // a stream that was left before its end
)

// LostAlias names the delivery by which the engine tells a caller that a request of its is without an end.
const LostAlias = "call.lost.v1"

// Aliases are those that an engine must know.
func Aliases() []string {
	return []string{RequestedAlias, CompletedAlias, FailedAlias, RejectedAlias, AbandonedAlias, LostAlias}
}

// Evidence is all that a fact tells, beside its target and its place in the causal tree (N-30).
type Evidence struct {
	Contract string      `json:"contract"`
	Method   string      `json:"method"`
	Request  ident.ID    `json:"request"`
	Code     neuron.Code `json:"code,omitempty"`
}

// fact returns a fact about the call of a row.
func fact(alias string, side Side, r *Row, code neuron.Code) neuron.Delivery {
	e := Evidence{Request: r.ID, Code: code}
	e.Contract, e.Method = names(r.Alias)
	payload, _ := json.Marshal(e) // texts and an id are never refused
	return neuron.Delivery{
		ID: ident.New(side.Clock()), Alias: alias, Payload: payload, Target: r.Target, Correlation: r.Correlation, Causation: r.Cause,
	}
}
