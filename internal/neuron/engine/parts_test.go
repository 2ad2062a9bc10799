package engine

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
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

func TestQueueKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue[int]
		in, out := 0, 0
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "what") < 3 {
				q.push(in)
				in++
			} else if q.len() > 0 {
				if q.peek() != out || q.pop() != out {
					t.Fatalf("out of order at %d", out)
				}
				out++
			}
			if q.len() != in-out {
				t.Fatalf("length %d, want %d", q.len(), in-out)
			}
		}
	})
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

// N-45: what ran is read back after a kill, and nothing after a clean end.
func TestInflight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inflight")
	open := func(wantCrashed bool, want ...ident.ID) *inflight {
		t.Helper()
		f, crashed, ids, err := openInflight(path)
		if err != nil || crashed != wantCrashed || len(ids) != len(want) {
			t.Fatalf("crashed %v ids %v, %v", crashed, ids, err)
		}
		for i := range want {
			if ids[i] != want[i] {
				t.Fatalf("ids %v, want %v", ids, want)
			}
		}
		return f
	}
	a, b := ident.New(time.Now()), ident.New(time.Now())
	f := open(false)
	f.begin(nil)
	f.enter(0, a)
	f.enter(1, b)
	f.leave(0)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	g := open(true, b) // the first one is dead
	g.begin(map[ident.ID]int{b: 2})
	h := open(true)
	if got := h.suspects(); len(got) != 1 || got[b] != 2 {
		t.Errorf("suspects %v", got)
	}
	h.begin(h.suspects())
	h.clear(b)
	if got := h.suspects(); len(got) != 0 {
		t.Errorf("suspects %v", got)
	}
	for _, f := range []*inflight{f, g, h} {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	if err := open(false).close(); err != nil {
		t.Error(err)
	}
	var none *inflight
	none.begin(nil)
	none.enter(0, a)
	none.leave(0)
	if err := none.close(); err != nil {
		t.Error(err)
	}
}

// N-45: a file with holes is written out before it is mapped, with what it holds; one that is cut short under a running engine
// charges nothing more and ends nothing.
func TestInflightIsCutShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inflight")
	a := ident.New(time.Now())
	if err := os.WriteFile(path, append(make([]byte, slotSize), append(a[:], 1)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*slotSize*slotCount); err != nil {
		t.Fatal(err)
	}
	f, _, ids, err := openInflight(path)
	if err != nil || len(ids) != 1 || ids[0] != a {
		t.Fatalf("ids %v, %v", ids, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != slotSize*slotCount || info.Sys().(*syscall.Stat_t).Blocks*512 < info.Size() {
		t.Errorf("%+v, %v", info, err)
	}
	faults := 0
	f.fault = func(any) { faults++ }
	f.begin(nil)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	f.enter(0, a)
	f.leave(0)
	f.clear(a)
	if err := f.close(); err != nil || faults != 1 {
		t.Errorf("%d faults, %v", faults, err)
	}
	if _, crashed, ids, err := openInflight(path); err != nil || crashed || len(ids) != 0 {
		t.Errorf("afterwards: crashed %v ids %v, %v", crashed, ids, err)
	}
}

// BenchmarkInflight is what a handler pays.
func BenchmarkInflight(b *testing.B) {
	f, _, _, err := openInflight(filepath.Join(b.TempDir(), "inflight"))
	if err != nil {
		b.Fatal(err)
	}
	a := ident.New(time.Now())
	for b.Loop() {
		f.enter(0, a)
		f.leave(0)
	}
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
			one, err := encodeEntry(&e)
			want, werr := json.Marshal(&e)
			if err != nil || werr != nil || !bytes.Equal(one, want) {
				t.Fatalf("%s, %v\nwant %s, %v", one, err, want, werr)
			}
			list = append(list, e)
		}
		all, err := encodeEntries(list)
		want, werr := json.Marshal(append([]neuron.Entry{}, list...))
		if err != nil || werr != nil || !bytes.Equal(all, want) {
			t.Fatalf("%s, %v\nwant %s, %v", all, err, want, werr)
		}
	})
}
