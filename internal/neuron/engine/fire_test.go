package engine_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
)

// N-21, N-40: what a client fires without a receiver goes to broadcast handlers and to the connections of the client's
// neuron, at depth 0, once per id, also after a restart. With a receiver it is a Send.
func TestClientFire(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			d := turn.Delivery()
			seen.add("%s %s %d from %q", d.Target.Key, n.Text, d.Depth, d.Caller)
			return nil
		})
		neuron.Broadcast(k, noteType, func(string, note) (string, bool) { return "listener", true })
		w := &wires{b: b, t: t}
		o := engine.Options{Kinds: []*neuron.Kind{k}, Relay: w}
		l := live(t, b, o, "")
		w.add(l.Engine, neuron.Client("me", ""), noteType.Alias(), id("connected"))
		w.add(l.Engine, neuron.Client("me", "other"), noteType.Alias(), id("of the other"))
		f := engine.Fired{ID: ident.New(time.Now()), Owner: "me", Alias: noteType.Alias(), Payload: []byte(`{"text":"fired"}`)}
		for range 2 {
			if err := l.Fire(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		quiet(t, l.Engine)
		l.kill(t, b)
		l = live(t, b, o, "")
		w.add(l.Engine, neuron.Client("me", ""), noteType.Alias(), id("too late"))
		if err := l.Fire(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		quiet(t, l.Engine)
		got := map[string]int{}
		for _, line := range seen.all() {
			got[line]++
		}
		if len(got) != 2 || got[`listener fired 0 from "me/client/main"`] != 1 || got[`connected fired 0 from "me/client/main"`] != 1 {
			t.Errorf("%v", got)
		}
		out := page(t, l.Engine, neuron.Client("me", ""), neuron.Out)
		if len(out.Entries) != 1 || out.Entries[0].Emitted == nil || out.Entries[0].Emitted.Receivers != 2 || out.Entries[0].Causation != f.ID {
			t.Errorf("%+v", out.Entries)
		}
		f.ID, f.To = ident.New(time.Now()), id("named")
		if err := l.Fire(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		quiet(t, l.Engine)
		if all := seen.all(); len(all) != 3 || all[2] != `named fired 0 from ""` {
			t.Errorf("%v", all)
		}
		for name, bad := range map[neuron.Code]engine.Fired{
			neuron.CrossOwner:    {Owner: "you", To: id("named")},
			neuron.EmptyIdentity: {},
			neuron.Refused:       {Owner: "a/b"},
		} {
			bad.ID, bad.Alias, bad.Payload = ident.New(time.Now()), f.Alias, f.Payload
			var refusal *neuron.Refusal
			if err := l.Fire(t.Context(), bad); !errors.As(err, &refusal) || refusal.Code != name {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}

// N-19: a client's neuron to which another one sends counts the hop like any other.
func TestReemittedDepth(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var seen log
		k := neuron.NewKind("test")
		neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
			return neuron.Send(turn, neuron.Client("me", ""), otherType, n)
		})
		neuron.Handle(k, otherType, func(turn *neuron.Turn, n note) error {
			seen.add("%d", turn.Delivery().Depth)
			return nil
		})
		neuron.Broadcast(k, otherType, func(string, note) (string, bool) { return "listener", true })
		e := start(t, b, engine.Options{Kinds: []*neuron.Kind{k}})
		deliver(t, e, fresh(t, id("a"), ""))
		quiet(t, e)
		if got := fmt.Sprint(seen.all()); got != "[2]" {
			t.Error(got)
		}
	})
}

// N-24: only an emission goes through a connection; what comes from outside cannot claim one.
func TestOutsideNamesNoConnection(t *testing.T) {
	e := start(t, fake(), engine.Options{Kinds: []*neuron.Kind{emitter(func(*neuron.Turn, note) error { return nil })}})
	d := fresh(t, id("a"), "")
	d.Via = d.ID
	var refusal *neuron.Refusal
	if err := e.Deliver(t.Context(), d); !errors.As(err, &refusal) {
		t.Error(err)
	}
	if err := e.Accept(t.Context(), d); !errors.As(err, &refusal) {
		t.Error(err)
	}
}

// N-43: what is protected stays so when a client's neuron passes it on.
func TestReemittedProtection(t *testing.T) {
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		return neuron.Send(turn, neuron.Client("me", ""), otherType, n, neuron.Protected())
	})
	neuron.Handle(k, otherType, func(*neuron.Turn, note) error { return nil })
	neuron.Broadcast(k, otherType, func(string, note) (string, bool) { return "listener", true })
	e := start(t, fake(), engine.Options{Kinds: []*neuron.Kind{k}})
	deliver(t, e, fresh(t, id("source"), "secret"))
	quiet(t, e)
	for _, p := range []neuron.Page{page(t, e, neuron.Client("me", ""), neuron.Out), page(t, e, id("listener"), neuron.In)} {
		if len(p.Entries) != 1 || !p.Entries[0].Protected {
			t.Errorf("%+v", p.Entries)
		}
	}
}
