package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// at is the time of everything in the suite.
var at = time.UnixMicro(1_800_000_000_000_000).UTC()

// actor stands in for the engine's activation of one neuron: it makes the records of its turns and knows what must come of
// them.
type actor struct {
	id    neuron.ID
	key   int64
	known bool // the row exists
	now   neuron.Checkpoint
	since int
	every int // turns between checkpoints
	ids   []ident.ID
	in    []neuron.Entry
	out   []neuron.Entry
	sizes [2][]int // encoded bytes of each entry, by feed
}

func newActor(name string, key int64) *actor {
	return &actor{id: neuron.ID{Owner: "me", Kind: "suite", Key: name}, key: key, every: neuron.DefaultLimits().CheckpointTurn}
}

// step describes one turn.
type step struct {
	id       ident.ID // zero: a new one
	payload  int      // bytes of the incoming payload
	sends    int
	sendSize int
	steps    int    // committed before it
	state    string // "" leaves it as it is
}

func payload(n int) json.RawMessage {
	if n < 2 {
		return nil
	}
	return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`)
}

// turn makes the record of a turn and moves the actor on, as after a commit.
func (a *actor) turn(s step) *neuron.Record {
	if s.id.IsZero() {
		s.id = ident.New(at)
	}
	d := neuron.Delivery{ID: s.id, Alias: fmt.Sprintf("suite.in%d.v1", len(a.in)%3), Payload: payload(s.payload), Target: a.id,
		Correlation: s.id, At: at}
	entry := neuron.Entry{Delivery: d}
	row := &neuron.TurnRow{Seq: a.now.InSeq + 1, DeliveryID: s.id, Incoming: encode(entry), OutFirst: a.now.OutSeq + 1}
	sent := a.entries(s.id, s.sends, s.sendSize)
	if s.sends > 0 {
		row.Outgoing = encode(sent)
	}
	a.sizes[neuron.In] = append(a.sizes[neuron.In], len(row.Incoming))
	for range sent {
		a.sizes[neuron.Out] = append(a.sizes[neuron.Out], len(row.Outgoing)/s.sends) // all are of one size
	}
	if s.state != "" {
		row.StateAlias, row.State = "suite.state.v1", encode(s.state)
		a.now.StateAlias, a.now.State = row.StateAlias, row.State
	}
	r := &neuron.Record{Place: neuron.PlaceOf(a.id.String()), Neuron: a.id, Key: a.key, New: !a.known, Turn: row}
	a.known = true
	a.ids = append(a.ids, s.id)
	a.in, a.out = append(a.in, entry), append(a.out, sent...)
	a.now.InSeq++
	a.now.OutSeq += uint64(s.sends)
	count(&a.now.Tallies.In, entry)
	count(&a.now.Tallies.Out, sent...)
	if a.since++; a.since >= a.every {
		r.Checkpoint = &a.copy().now
		a.since = 0
	}
	return r
}

// entries are n that are sent next.
func (a *actor) entries(cause ident.ID, n, size int) (sent []neuron.Entry) {
	for i := range n {
		sent = append(sent, neuron.Entry{Delivery: neuron.Delivery{ID: ident.New(at), Alias: fmt.Sprintf("suite.out%d.v1", i%2),
			Payload: payload(size), Caller: a.id, Target: neuron.ID{Owner: "me", Kind: "suite", Key: "elsewhere"},
			Correlation: cause, Causation: cause, Seq: a.now.OutSeq + uint64(i) + 1, Depth: 1, At: at}})
	}
	return sent
}

// ahead makes the record of a step: entries that a turn commits before its own row.
func (a *actor) ahead(sends, size int) *neuron.Record {
	sent := a.entries(ident.New(at), sends, size)
	row := &neuron.TurnRow{Seq: a.now.InSeq + 1, OutFirst: a.now.OutSeq + 1, Outgoing: encode(sent)}
	for range sent {
		a.sizes[neuron.Out] = append(a.sizes[neuron.Out], len(row.Outgoing)/sends)
	}
	r := &neuron.Record{Place: neuron.PlaceOf(a.id.String()), Neuron: a.id, Key: a.key, New: !a.known, Turn: row}
	a.known = true
	a.out = append(a.out, sent...)
	a.now.OutSeq += uint64(sends)
	count(&a.now.Tallies.Out, sent...)
	return r
}

// turns makes n records of the same kind, each after its steps.
func (a *actor) turns(n int, s step) []*neuron.Record {
	var out []*neuron.Record
	for range n {
		for range s.steps {
			out = append(out, a.ahead(1+s.sends%3, s.sendSize))
		}
		out = append(out, a.turn(s))
	}
	return out
}

func count(m *map[string]uint64, entries ...neuron.Entry) {
	for _, e := range entries {
		if *m == nil {
			*m = map[string]uint64{}
		}
		(*m)[e.Alias]++
	}
}

// copy returns an actor for turns that will not be committed.
func (a *actor) copy() *actor {
	c := *a
	c.now.Tallies = neuron.Tallies{In: maps.Clone(a.now.Tallies.In), Out: maps.Clone(a.now.Tallies.Out)}
	c.ids, c.in, c.out = slices.Clip(a.ids), slices.Clip(a.in), slices.Clip(a.out)
	c.sizes = [2][]int{slices.Clip(a.sizes[0]), slices.Clip(a.sizes[1])}
	return &c
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// claim begins a life that holds all places.
func claim(t testing.TB, e Engine, s neuron.Store) neuron.Fence {
	t.Helper()
	return claimAs(t, e, s, "node", neuron.AllPlaces())
}

// claimAs begins a life of a node; places is what it takes on an engine for several.
func claimAs(t testing.TB, e Engine, s neuron.Store, node string, places neuron.PlaceSet) neuron.Fence {
	t.Helper()
	f, err := s.Claim(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if e.Take == nil {
		return f
	}
	if held := f.Places.Held(); held.Len() != 0 {
		t.Fatalf("a claim gave %d places", held.Len())
	}
	return e.Take(t, s, f, places)
}

// commit applies the records in groups of at most 256.
func commit(t testing.TB, s neuron.Store, f neuron.Fence, records ...*neuron.Record) {
	t.Helper()
	for len(records) > 0 {
		n := min(256, len(records))
		if err := s.Commit(t.Context(), f, records[:n]); err != nil {
			t.Fatal(err)
		}
		records = records[n:]
	}
}
