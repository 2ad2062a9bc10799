package engine

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/neuron"
)

// The table of states: from each one only the listed events lead on.
func TestStates(t *testing.T) {
	want := map[state]map[event]state{
		idle:       {arrive: queued},
		queued:     {arrive: queued, take: busy},
		busy:       {arrive: busy, stage: committing, more: queued, rest: idle},
		committing: {arrive: committing, stage: committing, more: queued, rest: idle}, // stage: what follows a failed commit
	}
	for s := idle; s <= committing; s++ {
		for ev := arrive; ev <= rest; ev++ {
			next, ok := want[s][ev]
			if got, panicked := try(s, ev); panicked == ok || ok && got != next {
				t.Errorf("state %d event %d: %d, panic %v", s, ev, got, panicked)
			}
		}
	}
}

func try(s state, ev event) (next state, panicked bool) {
	defer func() { panicked = recover() != nil }()
	return s.on(ev), false
}

func TestBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ident.ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), ident.Size, ident.Size).Draw(t, "id"))
		if id.IsZero() {
			t.Skip()
		}
		b := before(id)
		if !later(id, b) {
			t.Fatalf("%v is not before %v", b, id)
		}
		for i := len(b) - 1; i >= 0; i-- { // one more is id again
			b[i]++
			if b[i] != 0 {
				break
			}
		}
		if b != id {
			t.Fatalf("%v is not next to %v", b, id)
		}
	})
}

// The entries are those that encoding/json would write.
func TestEntriesAreJSON(t *testing.T) {
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "plain.alias.v1"}), rapid.String())
	ids := rapid.Custom(func(t *rapid.T) (id ident.ID) {
		if rapid.Bool().Draw(t, "set") {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), ident.Size, ident.Size).Draw(t, "id"))
		}
		return id
	})
	part := rapid.StringMatching(`[^/\x00]{1,12}`)
	neurons := rapid.Custom(func(t *rapid.T) (id neuron.ID) {
		if rapid.Bool().Draw(t, "set") {
			id = neuron.ID{Owner: part.Draw(t, "owner"), Kind: part.Draw(t, "kind"), Key: part.Draw(t, "key")}
		}
		return id
	})
	rapid.Check(t, func(t *rapid.T) {
		var list []neuron.Entry
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := neuron.Entry{Settled: neuron.Code(texts.Draw(t, "code")), Delivery: neuron.Delivery{
				ID: ids.Draw(t, "id"), Alias: texts.Draw(t, "alias"), Content: ids.Draw(t, "content"), Caller: neurons.Draw(t, "caller"),
				Target: neurons.Draw(t, "target"), Via: ids.Draw(t, "via"), Correlation: ids.Draw(t, "correlation"), Causation: ids.Draw(t, "causation"),
				Seq: rapid.Uint64().Draw(t, "seq"), Depth: rapid.Int().Draw(t, "depth"), Lane: neuron.Lane(rapid.Byte().Draw(t, "lane")),
				At: time.Unix(0, rapid.Int64().Draw(t, "at")).UTC(), Key: texts.Draw(t, "key"),
			}}
			e.Protected = rapid.Bool().Draw(t, "protected")
			if rapid.Bool().Draw(t, "asked") {
				e.Request = &neuron.Request{ID: ids.Draw(t, "request"), Until: e.At}
				for range rapid.IntRange(0, 2).Draw(t, "waiting") {
					e.Request.Chain = append(e.Request.Chain, neurons.Draw(t, "waits"))
				}
			}
			if rapid.Bool().Draw(t, "payload") {
				e.Payload, _ = json.Marshal(rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "body"))
			}
			if rapid.Bool().Draw(t, "retried") {
				e.Attempts, e.Handled = rapid.Int().Draw(t, "attempts"), time.Unix(0, rapid.Int64().Draw(t, "handled")).UTC()
			}
			if rapid.Bool().Draw(t, "ended") {
				e.Ended = &neuron.EndedDelivery{ID: ids.Draw(t, "ended"), Target: neurons.Draw(t, "of"), Code: "x"}
			}
			if rapid.Bool().Draw(t, "emitted") {
				e.Emitted = &neuron.Emission{Receivers: rapid.Int().Draw(t, "receivers")}
			}
			one, err := neuron.EncodeEntry(&e)
			want, werr := json.Marshal(&e)
			if err != nil || werr != nil || !bytes.Equal(one, want) {
				t.Fatalf("%s, %v\nwant %s, %v", one, err, want, werr)
			}
			list = append(list, e)
		}
		all, err := neuron.EncodeEntries(list)
		want, werr := json.Marshal(append([]neuron.Entry{}, list...))
		if err != nil || werr != nil || !bytes.Equal(all, want) {
			t.Fatalf("%s, %v\nwant %s, %v", all, err, want, werr)
		}
	})
}
