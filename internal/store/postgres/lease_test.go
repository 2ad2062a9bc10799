package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
)

// pair opens two stores on one database.
func pair(t *testing.T, o Options) (*Store, *Store) {
	t.Helper()
	a := fresh(t, o)
	b := openAt(t, dsnOf(t, a), o)
	t.Cleanup(func() { _ = b.Close() })
	return a, b
}

func claimed(t testing.TB, s *Store, node string) neuron.Fence {
	t.Helper()
	f, err := s.Claim(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func take(t testing.TB, s *Store, f neuron.Fence, places neuron.PlaceSet) (neuron.Fence, map[neuron.Place]neuron.Taken) {
	t.Helper()
	taken, err := s.Take(t.Context(), f, places)
	if err != nil {
		t.Fatal(err)
	}
	now := *f.Places
	for p, how := range taken {
		now[p] = how.Epoch
	}
	return neuron.Fence{Node: f.Node, Epoch: f.Epoch, Places: &now}, taken
}

func beat(t testing.TB, s *Store, f neuron.Fence) lease.Table {
	t.Helper()
	table, err := s.Beat(t.Context(), f, lease.NodeInfo{URL: "https://" + f.Node, Cert: "cert of " + f.Node})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// silence makes a node one whose last beat is long ago.
func silence(t testing.TB, s *Store, node string) {
	exec(t, s, fmt.Sprintf("update node set beat = beat - 3600 * 1000000::bigint where id = '%s'", node))
}

// one is a record of the n-th turn of the neuron "k" at its place.
func one(seq uint64) *neuron.Record {
	id := neuron.ID{Owner: "me", Kind: "test", Key: "k"}
	return &neuron.Record{Neuron: id, Place: neuron.PlaceOf(id.String()), Key: 1, New: seq == 1, Turn: &neuron.TurnRow{
		Seq: seq, DeliveryID: ident.Named("k", fmt.Sprint(seq)), Incoming: []byte(`{"alias":"test.v1"}`), OutFirst: 1}}
}

// N-36: what the table says of nodes and places, who gets which place, and who gives it back.
func TestLease(t *testing.T) {
	a, b := pair(t, Options{})
	fa, fb := claimed(t, a, "a"), claimed(t, b, "b")
	low, high := neuron.PlacesOf(1, 2, 3), neuron.PlacesOf(3, 4)
	fa, taken := take(t, a, fa, low)
	if len(taken) != 3 || taken[1].From != "" || taken[1].Epoch == 0 {
		t.Fatalf("free places: %+v", taken)
	}
	if fb, taken = take(t, b, fb, high); len(taken) != 1 || taken[4].Epoch == 0 {
		t.Fatalf("a place of a living node was taken: %+v", taken)
	}
	beat(t, a, fa)
	table := beat(t, b, fb)
	if len(table.Nodes) != 2 || table.Now.IsZero() {
		t.Fatalf("nodes %+v at %s", table.Nodes, table.Now)
	}
	for i, f := range []neuron.Fence{fa, fb} {
		n := table.Nodes[i]
		if n.ID != f.Node || n.Epoch != f.Epoch || n.URL != "https://"+f.Node || n.Cert != "cert of "+f.Node || !n.Alive || n.Beat.After(table.Now) {
			t.Errorf("node %+v", n)
		}
	}
	if table.Places[3] != (lease.Held{Holder: "a", Epoch: fa.Places[3]}) || table.Places[4].Holder != "b" || table.Places[5].Holder != "" {
		t.Errorf("places 3 to 5: %+v", table.Places[3:6])
	}
	if err := a.Give(t.Context(), fa, neuron.PlacesOf(3, 4)); err != nil { // 4 is not its own
		t.Fatal(err)
	}
	if fb, taken = take(t, b, fb, high); len(taken) != 2 || taken[3].Epoch <= fa.Places[3] || taken[3].From != "" || taken[4].From != "b" {
		t.Fatalf("after a place was given: %+v", taken)
	}
	silence(t, a, "a")
	if table = beat(t, b, fb); table.Nodes[0].Alive {
		t.Errorf("the silent node lives: %+v", table.Nodes[0])
	}
	if fb, taken = take(t, b, fb, low); len(taken) != 3 || taken[1].From != "a" || taken[2].From != "a" {
		t.Fatalf("places of a silent node: %+v", taken)
	}
	if err := b.Leave(t.Context(), fb); err != nil {
		t.Fatal(err)
	}
	table = beat(t, a, fa)
	if i := slices.IndexFunc(table.Places[:], func(h lease.Held) bool { return h.Holder != "" }); i >= 0 || table.Nodes[1].Alive || !table.Nodes[1].Beat.IsZero() {
		t.Errorf("after the node has left: place %d is held, %+v", i, table.Nodes[1])
	}
}

// N-36: who has been silent for seven days and holds nothing is forgotten at the next claim, which has a greater epoch than all there ever
// were; so has the one who comes back, and his life from before can do nothing.
func TestNodesAreForgotten(t *testing.T) {
	a, b := pair(t, Options{})
	silent := map[string]neuron.Fence{}
	var greatest uint64
	for _, id := range []string{"old", "holds", "young", "left", "waits"} {
		f := claimed(t, a, id)
		if f.Epoch <= greatest {
			t.Fatalf("epoch %d after %d", f.Epoch, greatest)
		}
		silent[id], greatest = f, f.Epoch
	}
	holds, _ := take(t, a, silent["holds"], neuron.PlacesOf(7))
	if err := a.Leave(t.Context(), silent["left"]); err != nil {
		t.Fatal(err)
	}
	const day = int64(24 * time.Hour / time.Microsecond)
	age := func(id string, days int64) {
		exec(t, a, fmt.Sprintf("update node set beat = case when beat = 0 then 0 else beat - %d end, started_at = started_at - %d where id = '%s'", days*day, days*day, id))
	}
	for id := range silent {
		age(id, 8)
	}
	age("young", -2)
	holding := make(chan struct{})
	go func() { // another transaction has the row: nobody waits for it
		defer close(holding)
		_ = b.control.use(t.Context(), func(c *session) error {
			return c.transaction(t.Context(), func() error {
				if _, err := c.exec(t.Context(), lockNode, "waits", int64(silent["waits"].Epoch)); err != nil {
					t.Error(err)
				}
				holding <- struct{}{}
				<-holding
				return nil
			})
		})
	}()
	<-holding
	began := time.Now()
	next := claimed(t, a, "next")
	if d := time.Since(began); d > courtesy {
		t.Errorf("the claim took %v", d)
	}
	holding <- struct{}{}
	<-holding
	if next.Epoch <= greatest {
		t.Errorf("epoch %d after %d", next.Epoch, greatest)
	}
	var ids []string
	for _, n := range beat(t, a, next).Nodes {
		ids = append(ids, n.ID)
	}
	if !slices.Equal(ids, []string{"holds", "next", "waits", "young"}) {
		t.Errorf("nodes %v", ids)
	}
	if _, err := a.Beat(t.Context(), silent["old"], lease.NodeInfo{}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("a forgotten life beats: %v", err)
	}
	if _, err := a.Take(t.Context(), silent["old"], neuron.PlacesOf(9)); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("a forgotten life takes: %v", err)
	}
	// Nothing is forgotten of who has the greatest epoch, however old: he claims himself, or another is greater.
	age("next", 8)
	again := claimed(t, a, "old")
	if again.Epoch <= next.Epoch || again.Epoch == silent["old"].Epoch {
		t.Errorf("the node that came back has epoch %d", again.Epoch)
	}
	age("old", 8)
	if f := claimed(t, a, "old"); f.Epoch <= again.Epoch {
		t.Errorf("epoch %d after %d", f.Epoch, again.Epoch)
	}
	if _, err := a.Beat(t.Context(), silent["old"], lease.NodeInfo{}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the life from before beats under the new row: %v", err)
	}
	if taken := number(t, a, "select count(*) from node where id = 'holds'"); taken != 1 {
		t.Error("a node with a place was forgotten")
	}
	// Its places go to who is alive, and then its row.
	f := claimed(t, a, "last")
	if _, taken := take(t, a, f, neuron.PlacesOf(7)); taken[7].From != "holds" || taken[7].Epoch <= holds.Places[7] {
		t.Errorf("taken %+v", taken)
	}
	claimed(t, a, "last")
	if n := number(t, a, "select count(*) from node where id = 'holds'"); n != 0 {
		t.Error("the row of a node without places stays")
	}
}

// N-36: a life that ended beats no more, takes nothing and commits nothing, though its places stay with its node.
func TestEndedLife(t *testing.T) {
	a, b := pair(t, Options{})
	old, _ := take(t, a, claimed(t, a, "a"), neuron.AllPlaces())
	if err := a.Commit(t.Context(), old, []*neuron.Record{one(1)}); err != nil {
		t.Fatal(err)
	}
	now := claimed(t, b, "a")
	if now.Epoch <= old.Epoch {
		t.Fatalf("epoch %d after %d", now.Epoch, old.Epoch)
	}
	if _, err := a.Beat(t.Context(), old, lease.NodeInfo{}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("beat: %v", err)
	}
	if _, err := a.Take(t.Context(), old, neuron.PlacesOf(1)); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("take: %v", err)
	}
	if err := a.Commit(t.Context(), old, []*neuron.Record{one(2)}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("commit: %v", err)
	}
	if err := a.Give(t.Context(), old, neuron.AllPlaces()); err != nil {
		t.Fatal(err)
	}
	if _, taken := take(t, b, now, neuron.AllPlaces()); len(taken) != neuron.Places || taken[7].From != "a" {
		t.Errorf("%d places taken, %+v", len(taken), taken[7])
	}
}

// paused is a transaction of a daemon that sleeps in the middle of its commit: its fence is checked, its rows are written,
// the end is not sent.
func paused(t *testing.T, s *Store, f neuron.Fence, r *neuron.Record) (finish func() error) {
	t.Helper()
	s.mu.Lock()
	s.writer.mu.Lock()
	w, err := s.writer.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := &batch{s: w, texts: &s.texts}
	if err := s.fill(t.Context(), b, f, []*neuron.Record{r}); err != nil {
		t.Fatal(err)
	}
	p := w.c.StartPipeline(context.WithoutCancel(t.Context()))
	for _, st := range b.steps {
		p.SendQueryPrepared(st.p.name, st.values, st.p.forms, st.p.results)
	}
	p.SendFlushRequest()
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.GetResults(); err != nil { // the fence holds: its locks are taken
		t.Fatal(err)
	}
	finish = sync.OnceValue(func() error {
		defer s.mu.Unlock()
		defer s.writer.mu.Unlock()
		err := p.Sync()
		if err == nil {
			err = b.rest(p)
		}
		return errors.Join(err, p.Close())
	})
	t.Cleanup(func() { _ = finish() })
	return finish
}

// rest reads the results after the first one.
func (b *batch) rest(p interface{ GetResults() (any, error) }) error {
	for range b.steps {
		if _, err := p.GetResults(); err != nil {
			return err
		}
	}
	return nil
}

// N-36, N-07: a takeover waits for a commit that is under way, ends it when it does not end, and what it wrote is not there. A
// weaker lock, or none, lets the takeover go by: then both the new owner and the old commit get through.
func TestPausedOwner(t *testing.T) {
	for _, how := range []string{"take", "claim"} {
		t.Run(how, func(t *testing.T) {
			a, b := pair(t, Options{})
			fa, _ := take(t, a, claimed(t, a, "a"), neuron.AllPlaces())
			fb := claimed(t, b, "b")
			if err := a.Commit(t.Context(), fa, []*neuron.Record{one(1)}); err != nil {
				t.Fatal(err)
			}
			silence(t, b, "a")
			finish := paused(t, a, fa, one(2))
			began := time.Now()
			if how == "claim" {
				fb = claimed(t, b, "a")
			}
			fb, taken := take(t, b, fb, neuron.AllPlaces())
			if took := time.Since(began); len(taken) != neuron.Places || took < courtesy || took > controlTime {
				t.Errorf("%d places taken after %s", len(taken), took)
			}
			if n, err := b.Neuron(t.Context(), one(1).Neuron); err != nil || n.InSeq != 1 {
				t.Fatalf("the new owner starts at %d, %v", n.InSeq, err)
			}
			if err := finish(); err == nil {
				t.Error("the old owner's commit went through")
			}
			if err := b.Commit(t.Context(), fb, []*neuron.Record{one(2)}); err != nil {
				t.Errorf("the new owner cannot commit: %v", err)
			}
			if err := a.Commit(t.Context(), fa, []*neuron.Record{one(3)}); !errors.Is(err, neuron.ErrFenced) {
				t.Errorf("the old owner commits: %v", err)
			}
		})
	}
}

// N-36: where the commit ends in time, the takeover comes after it and sees it.
func TestTakeoverWaits(t *testing.T) {
	a, b := pair(t, Options{})
	fa, _ := take(t, a, claimed(t, a, "a"), neuron.AllPlaces())
	fb := claimed(t, b, "b")
	silence(t, b, "a")
	finish := paused(t, a, fa, one(1))
	done := make(chan error, 1)
	go func() {
		_, err := b.Take(t.Context(), fb, neuron.AllPlaces())
		done <- err
	}()
	// It waits for the lock once the server says so.
	for number(t, a, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 0 {
		select {
		case err := <-done:
			t.Fatalf("the takeover did not wait: %v", err)
		default:
		}
	}
	if err := finish(); err != nil {
		t.Fatalf("the commit under way was lost: %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, err := b.Neuron(t.Context(), one(1).Neuron); err != nil || n.InSeq != 1 {
		t.Errorf("the new owner starts at %d, %v", n.InSeq, err)
	}
	if err := a.Commit(t.Context(), fa, []*neuron.Record{one(2)}); !errors.Is(err, neuron.ErrFenced) {
		t.Errorf("the old owner commits: %v", err)
	}
}

// Two nodes that want the same places get each one once, and end nobody's transaction.
func TestTakeAtOnce(t *testing.T) {
	// N-36
	a, b := pair(t, Options{})
	fa, fb := claimed(t, a, "a"), claimed(t, b, "b")
	got := make(chan int, 2)
	for s, f := range map[*Store]neuron.Fence{a: fa, b: fb} {
		go func() {
			n := 0
			for range 5 {
				taken, err := s.Take(t.Context(), f, neuron.AllPlaces())
				if err != nil {
					t.Error(err)
				}
				n = max(n, len(taken))
			}
			got <- n
		}()
	}
	if x, y := <-got, <-got; x+y != neuron.Places {
		t.Errorf("%d and %d places", x, y)
	}
}

// Hints reach the other stores, in pieces that a notification holds, and not the one that gives them.
func TestHints(t *testing.T) {
	// N-36
	a, b := pair(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	heard, own := make(chan []neuron.Hint, 100), make(chan []neuron.Hint, 100)
	ended := make(chan error, 2)
	go func() { ended <- b.Listen(ctx, func(hints []neuron.Hint) { heard <- hints }) }()
	go func() { ended <- a.Listen(ctx, func(hints []neuron.Hint) { own <- hints }) }()
	for number(t, a, "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle' and query = 'listen "+channel+"'") < 2 {
	}
	var want []neuron.Hint
	for i := range 1000 {
		want = append(want, neuron.Hint{ID: ident.Named("hint", fmt.Sprint(i)), Place: neuron.Place(i)})
	}
	if err := a.Announce(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	var got []neuron.Hint
	for pieces := 0; len(got) < len(want); pieces++ {
		got = append(got, <-heard...)
	}
	if !slices.Equal(got, want) {
		t.Error("other hints were heard than announced")
	}
	if err := b.Announce(t.Context(), want[:1]); err != nil {
		t.Fatal(err)
	}
	if hints := <-own; !slices.Equal(hints, want[:1]) {
		t.Errorf("the first store heard %d hints, its own among them", len(hints))
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("listen: %v", err)
		}
	}
	for _, m := range messages("tag", want) {
		if len(m) >= 8000 || !strings.HasPrefix(m, "tag ") {
			t.Errorf("a message of %d bytes", len(m))
		}
	}
}
