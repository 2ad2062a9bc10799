package graph

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// Kind is the kind of the graph neurons.
const Kind = "graph"

// ID returns the graph of owner.
func ID(owner string) neuron.ID { return neuron.ID{Owner: owner, Kind: Kind, Key: "main"} }

// Connect makes a connection, or replaces the one of this id in the same owner. Identities are texts (owner/kind/key): what
// is wrong with one is a refusal of its own.
type Connect struct {
	ID     ident.ID `json:"id"`
	Source string   `json:"source"`
	Alias  string   `json:"alias"`
	Target string   `json:"target"`
	// Transform is applied on the way; nil: the fact goes as it is.
	Transform *Transform `json:"transform,omitempty"`
	// Expires is when the connection ends, cut to microseconds; from then on it carries nothing. Zero: never.
	Expires time.Time `json:"expires,omitzero"`
}

// Disconnect removes a connection.
type Disconnect struct {
	ID ident.ID `json:"id"`
}

// expire is the alarm: something has expired.
type expire struct{}

// schedule is the state of a graph neuron: the alarm that is set, if any.
type schedule struct {
	Alarm ident.ID  `json:"alarm,omitzero"`
	At    time.Time `json:"at,omitzero"`
}

// The messages of the graph. Who sends one must be of the graph's owner, or come from outside.
var (
	ConnectType    = neuron.NewType[Connect]("graph.connect.v1")
	DisconnectType = neuron.NewType[Disconnect]("graph.disconnect.v1")
	expireType     = neuron.NewType[expire]("graph.expire.v1")
	scheduleType   = neuron.NewType[schedule]("graph.schedule.v1")
)

// Aliases returns the message aliases of the graph.
func Aliases() []string {
	return []string{ConnectType.Alias(), DisconnectType.Alias(), expireType.Alias()}
}

// Codes of the graph's refusals, besides neuron.EmptyIdentity, neuron.CrossOwner and neuron.MissingConnection.
const (
	GraphTarget        neuron.Code = "graph_target"         // a connection to the graph itself
	UnknownTransform   neuron.Code = "unknown_transform"    // a transform that is not registered, or not for this alias
	InvalidField       neuron.Code = "invalid_field"        // a field that the alias does not have, or a value it cannot have
	TransformFailed    neuron.Code = "transform_failed"     // a registered transform returned an error or panicked
	TooManyConnections neuron.Code = "too_many_connections" // a bound of Options is reached
	Expired            neuron.Code = "expired"              // the expiry of a new connection has passed
)
