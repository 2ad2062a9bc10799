package graph_test

import (
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
)

// N-21: what a client fires without a receiver goes once through the live connections of the client's neuron for its alias, also
// when it is repeated after a restart, and not through those that were removed or made since, nor those of other sources and
// aliases.
func TestFiredThroughConnections(t *testing.T) {
	onBoth(t, func(t *testing.T, newWorld maker) {
		w := newWorld(t, graph.Options{})
		client := neuron.Client("me", "")
		connect := func(source neuron.ID, alias, target string) graph.Connect {
			c := wire()
			c.Source, c.Alias, c.Target = source.String(), alias, id(target).String()
			w.must(w.connect(c))
			return c
		}
		connect(client, orderType.Alias(), "first")
		gone := connect(client, orderType.Alias(), "gone")
		connect(client, orderType.Alias(), "second")
		connect(client, billType.Alias(), "bills")
		connect(neuron.Client("me", "other"), orderType.Alias(), "others")
		w.must(engine.Fire(t.Context(), w.Engine, graph.ID("me"), graph.DisconnectType, graph.Disconnect{ID: gone.ID}))
		f := engine.Fired{ID: ident.New(start), Owner: "me", Alias: orderType.Alias(), Payload: []byte(`{"name":"fired","count":1}`)}
		w.must(w.Fire(t.Context(), f))
		w.quiet()
		if got := w.said(); len(got) != 2 {
			t.Errorf("heard %q", got)
		}
		w.close()
		w.open()
		connect(client, orderType.Alias(), "late")
		w.must(w.Fire(t.Context(), f))
		w.quiet()
		if got := w.said(); len(got) != 0 {
			t.Errorf("heard again %q", got)
		}
		p, err := w.Read(t.Context(), client, neuron.Out, 0, 0)
		w.must(err)
		if len(p.Entries) != 1 || p.Entries[0].Emitted == nil || p.Entries[0].Emitted.Receivers != 2 {
			t.Errorf("the client's feed: %+v", p.Entries)
		}
		for target, want := range map[string]int{"first": 1, "second": 1, "gone": 0, "late": 0, "bills": 0, "others": 0} {
			if got := w.settled(id(target)); len(got) != want {
				t.Errorf("%s accepted %q, want %d", target, got, want)
			}
		}
	})
}
