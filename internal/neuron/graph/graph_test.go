package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
	"soma/internal/store/fault"
)

// N-23, N-24, N-26: a connection carries what its source emits until it is removed, also over a restart; the row counts. One that
// is not there has its own code.
func TestConnectionRoutes(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		w := newWorld(t, graph.Options{})
		c := wire()
		w.must(w.connect(c))
		w.emit(order{Name: "one"})
		if got := w.said(); !slices.Equal(got, []string{"sink order {Name:one Count:0 Price:0 Secret: Tags:[]}"}) {
			t.Errorf("%q", got)
		}
		w.close()
		w.open()
		w.emit(order{Name: "two"})
		if got := w.said(); len(got) != 1 || w.rows()[c.ID] != 2 {
			t.Errorf("%q, %v", got, w.rows())
		}
		d := graph.Disconnect{ID: c.ID}
		w.must(engine.Fire(t.Context(), w.Engine, graph.ID("me"), graph.DisconnectType, d))
		w.emit(order{Name: "three"})
		if got := w.said(); len(got) != 0 || len(w.rows()) != 0 {
			t.Errorf("%q, %v", got, w.rows())
		}
		if err := engine.Fire(t.Context(), w.Engine, graph.ID("me"), graph.DisconnectType, d); code(err) != neuron.MissingConnection {
			t.Errorf("removed twice: %v", err)
		}
	})
}

// N-21: what a client fires goes through connections of the client's neuron.
func TestClientsAreConnected(t *testing.T) {
	w := newWorld(t, graph.Options{})
	c := wire()
	c.Source = neuron.Client("me", "").String()
	w.must(w.connect(c))
	f := engine.Fired{ID: ident.New(start), Owner: "me", Alias: orderType.Alias(), Payload: []byte(`{"name":"fired","count":1}`)}
	w.must(w.Fire(t.Context(), f))
	w.must(w.Fire(t.Context(), f))
	w.quiet()
	if got := w.said(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// N-26, N-24, N-23: each thing that is wrong with a connection is a settled refusal with a code of its own; nothing is written.
func TestRefusedConnections(t *testing.T) {
	w := newWorld(t, graph.Options{
		Schemas: []graph.Schema{graph.Describe(orderType), graph.Describe(billType)},
		Transforms: []graph.Registered{graph.Register("for bills", billType, orderType, func(bill) (order, error) {
			return order{}, nil
		})},
	})
	declared := func(fields map[string]graph.Field) func(*graph.Connect) {
		return func(c *graph.Connect) { c.Transform = &graph.Transform{To: billType.Alias(), Fields: fields} }
	}
	whole := func(name string, f graph.Field) func(*graph.Connect) {
		fields := map[string]graph.Field{"title": {From: "name"}, "paid": {Constant: []byte("true")}}
		fields[name] = f
		return declared(fields)
	}
	many := map[string]graph.Field{}
	for i := range 65 {
		many[fmt.Sprint(i)] = graph.Field{Omit: true}
	}
	for name, c := range map[string]struct {
		code   neuron.Code
		change func(*graph.Connect)
	}{
		"no id":              {neuron.EmptyIdentity, func(c *graph.Connect) { c.ID = ident.ID{} }},
		"no alias":           {neuron.EmptyIdentity, func(c *graph.Connect) { c.Alias = "" }},
		"no source":          {neuron.EmptyIdentity, func(c *graph.Connect) { c.Source = "" }},
		"source part":        {neuron.EmptyIdentity, func(c *graph.Connect) { c.Source = "me//x" }},
		"no target":          {neuron.EmptyIdentity, func(c *graph.Connect) { c.Target = "" }},
		"target part":        {neuron.EmptyIdentity, func(c *graph.Connect) { c.Target = "me/test/" }},
		"malformed":          {neuron.Refused, func(c *graph.Connect) { c.Target = "me/test/a/b" }},
		"long alias":         {neuron.Refused, func(c *graph.Connect) { c.Alias = strings.Repeat("a", 257) }},
		"zero in alias":      {neuron.Refused, func(c *graph.Connect) { c.Alias = "a\x00b" }},
		"other source":       {neuron.CrossOwner, func(c *graph.Connect) { c.Source = "you/test/source" }},
		"other target":       {neuron.CrossOwner, func(c *graph.Connect) { c.Target = "you/test/sink" }},
		"graph":              {graph.GraphTarget, func(c *graph.Connect) { c.Target = graph.ID("me").String() }},
		"other graph":        {graph.GraphTarget, func(c *graph.Connect) { c.Target = "me/graph/x" }},
		"expired":            {graph.Expired, func(c *graph.Connect) { c.Expires = start }},
		"unknown":            {graph.UnknownTransform, func(c *graph.Connect) { c.Transform = &graph.Transform{Name: "nobody"} }},
		"of other alias":     {graph.UnknownTransform, func(c *graph.Connect) { c.Transform = &graph.Transform{Name: "for bills"} }},
		"no result":          {graph.UnknownTransform, func(c *graph.Connect) { c.Transform = &graph.Transform{} }},
		"unknown result":     {graph.UnknownTransform, func(c *graph.Connect) { c.Transform = &graph.Transform{To: "nothing.v1"} }},
		"undescribed source": {graph.UnknownTransform, func(c *graph.Connect) { c.Alias, c.Transform = goType.Alias(), &graph.Transform{To: billType.Alias()} }},
		"both": {graph.InvalidField, func(c *graph.Connect) {
			c.Transform = &graph.Transform{Name: "for bills", To: billType.Alias()}
		}},
		"nothing given":      {graph.InvalidField, declared(nil)},
		"too many":           {graph.InvalidField, declared(many)},
		"too long":           {graph.InvalidField, whole("title", graph.Field{Constant: []byte(`"` + strings.Repeat("x", 5000) + `"`)})},
		"no such field":      {graph.InvalidField, whole("nobody", graph.Field{From: "name"})},
		"no such source":     {graph.InvalidField, whole("title", graph.Field{From: "nobody"})},
		"wrong kind":         {graph.InvalidField, whole("title", graph.Field{From: "count"})},
		"wrong constant":     {graph.InvalidField, whole("paid", graph.Field{Constant: []byte(`"yes"`)})},
		"needed left out":    {graph.InvalidField, whole("title", graph.Field{Omit: true})},
		"two ways":           {graph.InvalidField, whole("title", graph.Field{Omit: true, From: "name"})},
		"no way":             {graph.InvalidField, whole("title", graph.Field{})},
		"comes from nowhere": {graph.InvalidField, declared(map[string]graph.Field{"title": {From: "name"}})},
	} {
		bad := wire()
		c.change(&bad)
		if err := w.connect(bad); code(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if n := len(w.rows()); n != 0 {
		t.Errorf("%d connections were written", n)
	}
	// The graph is one neuron, and hears its own owner only.
	if err := engine.Fire(t.Context(), w.Engine, neuron.ID{Owner: "me", Kind: graph.Kind, Key: "x"}, graph.ConnectType, wire()); code(err) != neuron.Refused {
		t.Errorf("another graph: %v", err)
	}
	d, err := graph.ConnectType.New(graph.ID("me"), wire(), start)
	w.must(err)
	d.Caller = neuron.ID{Owner: "you", Kind: "test", Key: "a"}
	if err := w.Deliver(t.Context(), d); code(err) != neuron.CrossOwner {
		t.Errorf("a sender of another owner: %v", err)
	}
}

// N-24: two owners may use one id; a connection is found by both.
func TestOwnersAreApart(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		w := newWorld(t, graph.Options{})
		mine, yours := wire(), wire()
		yours.ID, yours.Source, yours.Target = mine.ID, "you/test/source", "you/test/sink"
		w.must(w.connect(mine))
		w.must(engine.Fire(t.Context(), w.Engine, graph.ID("you"), graph.ConnectType, yours))
		w.must(engine.Fire(t.Context(), w.Engine, graph.ID("you"), graph.DisconnectType, graph.Disconnect{ID: mine.ID}))
		w.emit(order{Name: "mine"})
		if got := w.said(); len(got) != 1 {
			t.Errorf("%q", got)
		}
	})
}

// N-24: the last microsecond before its expiry a connection carries, at it and after it no more. That holds when the fact is
// emitted, and for one that was queued before.
func TestExpiry(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		const tick = time.Microsecond
		expires := start.Add(time.Hour)
		for name, c := range map[string]struct {
			emitted, carried time.Time
			receivers        int
			handled          bool
		}{
			"before":          {expires.Add(-tick), expires.Add(-tick), 1, true},
			"emitted at":      {expires, expires, 0, false},
			"emitted after":   {expires.Add(tick), expires.Add(tick), 0, false},
			"queued until":    {expires.Add(-2 * tick), expires.Add(-tick), 1, true},
			"queued to":       {expires.Add(-tick), expires, 1, false},
			"queued past":     {expires.Add(-tick), expires.Add(tick), 1, false},
			"commit too late": {expires.Add(-tick), time.Time{}, 1, false},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, graph.Options{})
				wired := wire()
				wired.Expires = expires
				w.must(w.connect(wired))
				w.set(c.emitted)
				if !c.carried.IsZero() {
					// The turn of the source is committed, the clock moves, then the queued fact is drained.
					hold, held := make(chan struct{}), make(chan struct{})
					w.fault.Next(fault.Commit, fault.Fault{Hold: hold, Held: held})
					done := make(chan error, 1)
					go func() { done <- engine.Fire(t.Context(), w.Engine, id("source"), goType, order{Name: "x"}) }()
					<-held
					w.set(c.carried)
					close(hold)
					w.must(<-done)
				} else {
					w.hear = func(turn *neuron.Turn) error {
						turn.Write(expireNow{wired.ID})
						return nil
					}
					w.must(engine.Fire(t.Context(), w.Engine, id("source"), goType, order{Name: "x"}))
				}
				ctx := t.Context()
				w.quiet()
				p, err := w.Read(ctx, id("source"), neuron.Out, 0, 0)
				w.must(err)
				if p.Entries[0].Emitted.Receivers != c.receivers {
					t.Errorf("emitted to %d", p.Entries[0].Emitted.Receivers)
				}
				if codes := w.settled(id("sink")); c.receivers == 1 && (len(codes) != 1 || (codes[0] == "") != c.handled ||
					!c.handled && codes[0] != neuron.MissingConnection) {
					t.Errorf("the target's feed: %q", codes)
				}
				if heard := len(w.said()); !c.handled && !c.carried.IsZero() && heard != 0 {
					t.Errorf("the target's handler ran %d times", heard)
				}
			})
		}
	})
}

// expireNow stands for the clock that passes the expiry while the target's handler runs: it is committed ahead of the guard.
type expireNow struct{ id ident.ID }

func (expireNow) SQL() string     { return "update connection set expires_at = 1 where id = ?" }
func (e expireNow) Args() []any   { return []any{e.id[:]} }
func (expireNow) Guard() error    { return errors.New("no such connection") }
func (expireNow) LockKey() string { return "" }

// N-23: a durable alarm of the graph removes what has expired, the earliest first, also after a restart; others stay.
func TestExpiredConnectionsGo(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		w := newWorld(t, graph.Options{})
		var ids []ident.ID
		for _, after := range []time.Duration{2 * time.Hour, time.Hour, 3 * time.Hour, 0} {
			c := wire()
			if after > 0 {
				c.Expires = start.Add(after)
			}
			w.must(w.connect(c))
			ids = append(ids, c.ID)
		}
		if s := w.Stats(); s.Dormant != 1 {
			t.Errorf("%d alarms wait, want one", s.Dormant)
		}
		for _, step := range []struct {
			after time.Duration
			left  []int
		}{
			{time.Hour - time.Microsecond, []int{0, 1, 2, 3}}, {time.Hour, []int{0, 2, 3}}, {150 * time.Minute, []int{2, 3}},
			{4 * time.Hour, []int{3}},
		} {
			w.close()
			w.set(start.Add(step.after))
			w.open()
			w.quiet()
			rows := w.rows()
			if len(rows) != len(step.left) {
				t.Errorf("after %s there are %d connections", step.after, len(rows))
			}
			for _, i := range step.left {
				if _, ok := rows[ids[i]]; !ok {
					t.Errorf("after %s connection %d is gone", step.after, i)
				}
			}
		}
		if s := w.Stats(); s.Outbox != 0 {
			t.Errorf("%d alarms are left over", s.Outbox)
		}
	})
}

// N-23: the bounds of an owner and of one source and alias: the last one that fits, the next is refused, a replaced one
// counts once.
func TestBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		w := newWorld(t, graph.Options{Connections: 3, PerSource: 2})
		last := wire()
		w.must(w.connect(wire()))
		w.must(w.connect(last))
		w.must(w.connect(last))
		if err := w.connect(wire()); code(err) != graph.TooManyConnections {
			t.Errorf("third of a source: %v", err)
		}
		other := wire()
		other.Source = "me/test/other"
		w.must(w.connect(other))
		other.ID, other.Alias = ident.New(start), billType.Alias()
		if err := w.connect(other); code(err) != graph.TooManyConnections {
			t.Errorf("fourth of an owner: %v", err)
		}
		if n := len(w.rows()); n != 3 {
			t.Errorf("%d connections", n)
		}
	})
}

// N-24: a connection that was given another target since the fact was queued is not the one that the fact was to go
// through; one that was given another transform carries what that one says.
func TestReplacedWhileQueued(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		for _, to := range []string{"target", "transform"} {
			t.Run(to, func(t *testing.T) {
				w := newWorld(t, graph.Options{Schemas: []graph.Schema{graph.Describe(orderType)}})
				entered, leave := make(chan struct{}), make(chan struct{})
				w.hear = func(turn *neuron.Turn) error {
					if turn.Delivery().Caller.IsZero() {
						close(entered)
						<-leave
					}
					return nil
				}
				c := wire()
				w.must(w.connect(c))
				done := make(chan error, 1)
				go func() { done <- engine.Fire(t.Context(), w.Engine, id("sink"), orderType, order{Name: "first"}) }()
				<-entered
				w.must(engine.Fire(t.Context(), w.Engine, id("source"), goType, order{Name: "x", Secret: "s"}))
				if to == "target" {
					c.Target = "me/test/elsewhere"
				} else {
					c.Transform = &graph.Transform{To: orderType.Alias(), Fields: map[string]graph.Field{"secret": {Omit: true}}}
				}
				w.must(w.connect(c))
				close(leave)
				w.must(<-done)
				w.quiet()
				want := []neuron.Code{"", neuron.MissingConnection}
				if to == "transform" {
					want[1] = ""
				}
				if got := w.settled(id("sink")); !slices.Equal(got, want) {
					t.Errorf("%q", got)
				}
				if got := w.said(); to == "transform" && (len(got) != 2 || got[1] != "sink order {Name:x Count:0 Price:0 Secret: Tags:[]}") {
					t.Errorf("%q", got)
				}
				if got := w.settled(id("elsewhere")); len(got) != 0 {
					t.Errorf("the new target got the old fact: %q", got)
				}
			})
		}
	})
}
