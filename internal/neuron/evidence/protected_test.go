package evidence_test

import (
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

// N-43: a fact that is marked as protected reaches its receivers whole, and who reads journals or dead letters sees all of it
// but the payload.
func TestProtectedFacts(t *testing.T) {
	w := newWorld(t)
	k := neuron.NewKind("test")
	neuron.Handle(k, noteType, func(turn *neuron.Turn, n note) error {
		for _, to := range []neuron.ID{id("b"), {Owner: "me", Kind: "nobody", Key: "n"}} {
			if err := neuron.Send(turn, to, otherType, n, neuron.Protected()); err != nil {
				return err
			}
		}
		return neuron.Send(turn, id("b"), otherType, n)
	})
	var got []int
	neuron.Handle(k, otherType, func(_ *neuron.Turn, n note) error { got = append(got, n.N); return nil })
	w.start(t, nil, k)
	w.deliver(t, id("a"), 4711)
	w.quiet(t)
	if len(got) != 2 || got[0] != 4711 || got[1] != 4711 {
		t.Errorf("the receiver got %v", got)
	}
	for of, feed := range map[string]string{"me/test/a": wire.FeedOut, "me/test/b": wire.FeedIn} {
		j, err := w.ev.Journal(t.Context(), of, feed, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, e := range j.Entries {
			if e.Alias == otherType.Alias() && e.Protected == (e.Payload != nil) {
				t.Errorf("%s: %+v", of, e)
			}
			if e.Protected {
				shown++
			}
		}
		if shown == 0 {
			t.Errorf("%s shows nothing protected: %+v", of, j.Entries)
		}
	}
	letters, err := w.engine.DeadLetters(t.Context(), ident.ID{}, 10)
	if err != nil || len(letters) != 1 || letters[0].Payload == nil {
		t.Fatalf("%+v, %v", letters, err)
	}
	told, err := w.ev.DeadLetters(t.Context(), "", 10)
	if err != nil || len(told) != 1 || told[0].Payload != nil || told[0].Alias != otherType.Alias() {
		t.Errorf("%+v, %v", told, err)
	}
}
