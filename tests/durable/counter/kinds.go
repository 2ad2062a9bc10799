package counter

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/graph"
)

// Add moves a counter on. By 0 reads it.
type Add struct {
	By int64 `json:"by"`
	// Gate is the path of a named pipe of which the handler reads a byte before it goes on; empty: none.
	Gate string `json:"gate,omitempty"`
	// Pad makes the delivery as large as wanted.
	Pad string `json:"pad,omitempty"`
}

// Go makes a source do one of everything: an emission over a connection, a send, an alarm, a call, an execution.
type Go struct{}

type ring struct{}

// The messages.
var (
	AddType   = neuron.NewType[Add]("durable.add.v1")
	GoType    = neuron.NewType[Go]("durable.go.v1")
	factType  = neuron.NewType[Go]("durable.fact.v1")
	ringType  = neuron.NewType[ring]("durable.ring.v1")
	endedType = neuron.NewType[neuron.Ended]("durable.ended.v1")
	sumType   = neuron.NewType[int64]("durable.sum.v1")
	increase  = call.New[Add, int64]("durable.counter", "increase")
)

const owner = "me"

// Counter names a counter.
func Counter(key string) neuron.ID { return neuron.ID{Owner: owner, Kind: "counter", Key: key} }

// Source names a source.
func Source(key string) neuron.ID { return neuron.ID{Owner: owner, Kind: "source", Key: key} }

// Counters are the counters that a source moves on by one with each Go, besides its own sum.
func Counters(source string) []neuron.ID {
	return []neuron.ID{
		{Owner: owner, Kind: "sink", Key: source}, Counter("sent-" + source), Counter("rung-" + source), Counter("called-" + source),
		Counter("ended-" + source),
	}
}

// Connection is the connection that carries what a source emits.
func Connection(source string) graph.Connect {
	return graph.Connect{
		ID: ident.Named("durable", source), Source: Source(source).String(), Alias: factType.Alias(), Target: Counters(source)[0].String(),
	}
}

// Types are all aliases.
func Types() []string {
	return append(graph.Aliases(), AddType.Alias(), GoType.Alias(), factType.Alias(), ringType.Alias(), endedType.Alias(), increase.Alias())
}

// Kinds returns the kinds; entered is called with the delivery of a handler that comes to its gate.
func Kinds(entered func(ident.ID)) []*neuron.Kind {
	counter := neuron.NewKind("counter")
	neuron.Handle(counter, AddType, func(t *neuron.Turn, a Add) error {
		if a.Gate != "" {
			entered(t.Delivery().ID)
			if err := pass(a.Gate); err != nil {
				return err
			}
		}
		_, err := move(t, a.By)
		return err
	})
	call.Serve(counter, increase, func(t *neuron.Turn, a Add) (int64, error) { return move(t, a.By) })
	source := neuron.NewKind("source")
	neuron.Handle(source, GoType, goes)
	neuron.Handle(source, ringType, func(t *neuron.Turn, _ ring) error {
		return neuron.Send(t, Counter("rung-"+t.Self().Key), AddType, Add{By: 1})
	})
	neuron.Handle(source, endedType, func(t *neuron.Turn, _ neuron.Ended) error {
		return neuron.Send(t, Counter("ended-"+t.Self().Key), AddType, Add{By: 1})
	})
	sink := neuron.NewKind("sink")
	neuron.Handle(sink, factType, func(t *neuron.Turn, _ Go) error {
		_, err := move(t, 1)
		return err
	})
	return []*neuron.Kind{counter, source, sink}
}

// pass reads one byte of a named pipe.
func pass(gate string) error {
	f, err := os.Open(gate)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return errors.Join(err, f.Close())
}

func goes(t *neuron.Turn, g Go) error {
	key := t.Self().Key
	if err := neuron.Emit(t, factType, g); err != nil {
		return err
	}
	if err := neuron.Send(t, Counter("sent-"+key), AddType, Add{By: 1}); err != nil {
		return err
	}
	if _, err := neuron.After(t, 5*time.Millisecond, ringType, ring{}); err != nil {
		return err
	}
	if _, err := call.Do(t, increase, Counter("called-"+key), Add{By: 1}); err != nil {
		return err
	}
	t.Start(neuron.Execution{Kind: "work", Policy: neuron.Idempotent, Input: json.RawMessage("{}"), Then: endedType.Alias()})
	_, err := move(t, 1)
	return err
}

// move moves the turn's own sum on and notes it under the id of the delivery.
func move(t *neuron.Turn, by int64) (int64, error) {
	sum, err := neuron.State(t, sumType, nil)
	if err != nil {
		return 0, err
	}
	sum += by
	t.Write(note{t.Delivery().ID, sum})
	return sum, neuron.SetState(t, sumType, sum)
}

// note keeps what a delivery has come to, for clients that ask again.
type note struct {
	id  ident.ID
	sum int64
}

func (note) SQL() string {
	return "insert into durable_note (id, sum) values (?, ?) on conflict do nothing"
}
func (n note) Args() []any { return []any{n.id[:], n.sum} }

// Work is the adapter of the executions.
type Work struct{}

// Run is done at once.
func (Work) Run(context.Context, neuron.Execution) (json.RawMessage, error) {
	return json.RawMessage("{}"), nil
}

// Recover is not asked: the executions are idempotent.
func (Work) Recover(context.Context, neuron.Execution) (json.RawMessage, bool, error) {
	return nil, false, nil
}
