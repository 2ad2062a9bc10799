package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/postgres/postgrestest"
)

// tests are those of this package; the server that some of them need ends before goroutines are counted.
type tests struct{ *testing.M }

func (t tests) Run() int { return postgrestest.Main(t.M) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

const term = 15 * time.Second

// node is an owner that runs nothing: it holds places, some of them busy, and hears what it is told.
type node struct {
	t     *testing.T
	store *neurontest.Store
	side  lease.Store
	stop  context.CancelFunc
	ended chan error
	*lease.Keeper

	mu     sync.Mutex
	fence  neuron.Fence
	busy   neuron.PlaceSet
	moves  int
	from   map[string]int // places by whose life ended at them
	lostBy error
	woken  []ident.ID
	sweeps int
}

// start begins a life of a node; wrap may put something before its store.
func start(t *testing.T, s *neurontest.Store, id string, wrap func(lease.Store) lease.Store) *node {
	n := &node{t: t, store: s, side: &neurontest.Leases{Store: s, Lease: term}, ended: make(chan error, 1), from: map[string]int{}}
	if wrap != nil {
		n.side = wrap(n.side)
	}
	var err error
	if n.fence, err = s.Claim(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.Keeper = lease.New(lease.Options{Store: n.side, Info: lease.NodeInfo{URL: "https://" + id}})
	ctx, stop := context.WithCancel(t.Context())
	n.stop = stop
	go func() { n.ended <- n.Run(ctx, n) }()
	return n
}

// quit ends the loops and returns what they ended with.
func (n *node) quit() error { n.stop(); return <-n.ended }

func (n *node) Fence() neuron.Fence {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fence
}

func (n *node) set(p neuron.Place, epoch uint64) {
	e := *n.fence.Places
	e[p] = epoch
	n.fence.Places = &e
}

func (n *node) Gain(_ context.Context, taken map[neuron.Place]neuron.Taken) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, how := range taken {
		n.set(p, how.Epoch)
		n.from[how.From]++
	}
	n.moves += len(taken)
	return nil
}

func (n *node) Release(places neuron.PlaceSet, most int) (given neuron.PlaceSet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range places.Without(n.busy).All() {
		if given.Len() < most {
			given.Add(p)
			n.set(p, 0)
		}
	}
	n.moves += given.Len()
	return given
}

func (n *node) Lose(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lostBy = err
}

func (n *node) Wake(_ context.Context, ids []ident.ID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.woken = append(n.woken, ids...)
	return nil
}

func (n *node) Sweep(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sweeps++
	return nil
}

func (n *node) held() neuron.PlaceSet { return n.Fence().Places.Held() }

func (n *node) lost() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lostBy
}

func (n *node) moved() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.moves
}

// pass lets so much time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func shared() *neurontest.Store { return neurontest.NewShared(neuron.DefaultLimits()) }

// N-36: one node has all places at its first beat; each further one gets its share within two beats, and then nothing moves.
func TestFairShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		var nodes []*node
		for i := range 5 {
			nodes = append(nodes, start(t, s, fmt.Sprintf("node-%d", i), nil))
			pass(3 * term / 5)
			share := (neuron.Places + i) / (i + 1)
			var all neuron.PlaceSet
			for _, n := range nodes {
				if l := n.held().Len(); l > share || all.And(n.held()).Len() > 0 {
					t.Errorf("%d nodes: one holds %d", i+1, l)
				}
				all = all.Or(n.held())
			}
			if all != neuron.AllPlaces() {
				t.Errorf("%d nodes hold %d places", i+1, all.Len())
			}
			before := nodes[0].moved()
			pass(10 * term)
			if now := nodes[0].moved(); now != before {
				t.Errorf("%d nodes: %d places moved for nothing", i+1, now-before)
			}
		}
		if table := nodes[0].Table(); len(table.Nodes) != 5 || table.Nodes[3].URL != "https://node-3" || !table.Nodes[3].Alive {
			t.Errorf("table %+v", table.Nodes)
		}
		for _, n := range nodes {
			if err := n.quit(); err != nil || n.lost() != nil {
				t.Errorf("ended with %v, lost by %v", err, n.lost())
			}
		}
	})
}

// N-36, M-12: a place where something goes on stays where it is, however unfair that is.
func TestBusyPlacesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		a := start(t, s, "a", nil)
		pass(time.Second)
		a.mu.Lock()
		for p := range neuron.AllPlaces().All() {
			if p%8 != 0 {
				a.busy.Add(p)
			}
		}
		a.mu.Unlock()
		b := start(t, s, "b", nil)
		pass(term)
		if l := b.held().Len(); l != 32 || a.held().And(a.busy) != a.busy {
			t.Errorf("b holds %d, a %d", l, a.held().Len())
		}
		a.mu.Lock()
		a.busy = neuron.PlacesOf(1, 2, 3)
		a.mu.Unlock()
		pass(term)
		if l := b.held().Len(); l != 128 || a.held().And(a.busy) != a.busy {
			t.Errorf("later b holds %d, a %d", l, a.held().Len())
		}
		_, _ = a.quit(), b.quit()
	})
}

// N-36: the places of a node that has stopped beating go to the others once the lease is over, not before, and they hear whose
// life ended there; those of a node that left go at once, as free ones.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		a, b := start(t, s, "a", nil), start(t, s, "b", nil)
		pass(term)
		if err := a.quit(); err != nil {
			t.Fatal(err)
		}
		left := time.Now()
		for b.held().Len() < neuron.Places {
			if b.held().Len() > 128 {
				t.Fatalf("%d places after %v", b.held().Len(), time.Since(left))
			}
			pass(term / 150)
			if time.Since(left) > 2*term {
				t.Fatal("no takeover")
			}
		}
		// Its last beat was at most a fifth of the lease ago when it ended, and the other looks when the lease is over.
		if d := time.Since(left); d < term*4/5 || d > term+term/50 {
			t.Errorf("taken over after %v", d)
		}
		if b.from["a"] != 128 {
			t.Errorf("by former holders: %v", b.from)
		}
		c := start(t, s, "c", nil)
		pass(term)
		if err := c.quit(); err != nil {
			t.Fatal(err)
		}
		if err := c.Leave(t.Context(), c.Fence()); err != nil || c.Leased() {
			t.Fatalf("leave: %v, leased %v", err, c.Leased())
		}
		pass(time.Millisecond) // b is told
		if b.held().Len() != neuron.Places || b.from["c"] != 0 {
			t.Errorf("b holds %d, by former holders %v", b.held().Len(), b.from)
		}
		_ = b.quit()
	})
}

// N-36: a new life of a node has the places of its last one at its first beat, lapsed or not, and knows that they are its own.
func TestSameNodeTakesItsOwn(t *testing.T) {
	for _, pause := range []time.Duration{0, 10 * term} {
		synctest.Test(t, func(t *testing.T) {
			s := shared()
			a, b := start(t, s, "a", nil), start(t, s, "b", nil)
			pass(term)
			mine := a.held()
			_ = a.quit()
			if pause > 0 {
				_ = b.quit() // nobody takes what has lapsed
			}
			pass(pause)
			again := start(t, s, "a", nil)
			pass(time.Millisecond)
			if got := again.held().And(mine); got != mine || again.from["a"] != mine.Len() {
				t.Errorf("%d of %d places, by former holders %v", got.Len(), mine.Len(), again.from)
			}
			if again.Fence().Places[slices.Collect(mine.All())[0]] <= a.Fence().Places[slices.Collect(mine.All())[0]] {
				t.Error("the epoch did not grow")
			}
			_ = again.quit()
			if pause == 0 {
				_ = b.quit()
			}
		})
	}
}

// cut lets beats through or not.
type cut struct {
	lease.Store
	mu    sync.Mutex
	beats int
	fail  func(n int) error // the error of the n-th beat, counted from when it is set
	hang  bool
}

func (c *cut) Beat(ctx context.Context, f neuron.Fence, info lease.NodeInfo) (lease.Table, error) {
	c.mu.Lock()
	fail, hang := c.fail, c.hang
	c.beats++
	n := c.beats
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		return lease.Table{}, ctx.Err()
	}
	if fail != nil {
		if err := fail(n); err != nil {
			return lease.Table{}, err
		}
	}
	return c.Store.Beat(ctx, f, info)
}

func (c *cut) set(hang bool, fail func(int) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hang, c.fail, c.beats = hang, fail, 0
}

var errCut = errors.New("connection cut")

// N-36: a node that cannot beat believes nothing half a lease after its last beat, long before others may take its places,
// whether its beats fail or hang.
func TestSelfFence(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := shared()
			c := &cut{}
			a := start(t, s, "a", func(inner lease.Store) lease.Store { c.Store = inner; return c })
			pass(time.Second) // the last beat that came through was at 0
			if !a.Leased() {
				t.Fatal("not leased after a beat")
			}
			c.set(hang, func(int) error { return errCut })
			pass(term/2 - time.Second - time.Millisecond)
			if !a.Leased() || a.lost() != nil {
				t.Fatalf("leased %v, lost by %v a moment too early", a.Leased(), a.lost())
			}
			pass(2 * time.Millisecond)
			if a.Leased() {
				t.Fatal("still leased half a lease after the last beat")
			}
			pass(term / 25)
			if err := a.lost(); !errors.Is(err, lease.ErrLapsed) || !errors.Is(err, neuron.ErrFenced) {
				t.Fatalf("lost by %v", err)
			}
			if err := <-a.ended; !errors.Is(err, neuron.ErrFenced) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// N-36: single beats that fail are repeated soon and change nothing.
func TestLostBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		c := &cut{}
		a := start(t, s, "a", func(inner lease.Store) lease.Store { c.Store = inner; return c })
		pass(time.Second)
		c.set(false, func(n int) error {
			if n%4 != 0 {
				return errCut
			}
			return nil
		})
		pass(20 * term)
		if a.lost() != nil || a.held().Len() != neuron.Places || !a.Leased() {
			t.Errorf("lost by %v, %d places", a.lost(), a.held().Len())
		}
		_ = a.quit()
	})
}

// N-36: a node hears from its next beat that a place is another's, and that another life of it has begun.
func TestTakenAway(t *testing.T) {
	for name, take := range map[string]func(*testing.T, *neurontest.Store){
		"place": func(_ *testing.T, s *neurontest.Store) { s.Take("b", neuron.PlacesOf(17)) },
		"life": func(t *testing.T, s *neurontest.Store) {
			if _, err := s.Claim(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := shared()
				a := start(t, s, "a", nil)
				pass(time.Second)
				take(t, s)
				pass(term / 5)
				if err := a.lost(); !errors.Is(err, neuron.ErrFenced) || errors.Is(err, lease.ErrLapsed) || a.Leased() {
					t.Errorf("lost by %v, leased %v", err, a.Leased())
				}
				if err := <-a.ended; !errors.Is(err, neuron.ErrFenced) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// failing frees nothing.
type failing struct{ lease.Store }

func (failing) Give(context.Context, neuron.Fence, neuron.PlaceSet) error { return errCut }

// N-36: a place that was released but could not be freed is taken again, and no place is without an owner for ever.
func TestFreeingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		a := start(t, s, "a", func(inner lease.Store) lease.Store { return failing{inner} })
		pass(time.Second)
		b := start(t, s, "b", nil)
		pass(10 * term)
		c := &neurontest.Leases{Store: s, Lease: term}
		table, err := c.Beat(t.Context(), b.Fence(), lease.NodeInfo{})
		if err != nil {
			t.Fatal(err)
		}
		for p, h := range table.Places {
			if h.Holder != "a" {
				t.Fatalf("place %d is with %q", p, h.Holder)
			}
		}
		if a.lost() != nil {
			t.Errorf("lost by %v", a.lost())
		}
		_, _ = a.quit(), b.quit()
	})
}

// N-36: hints reach the nodes that hold their places and neither others nor their sender, and a sweep comes whether or not
// there are any.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		a, b, c := start(t, s, "a", nil), start(t, s, "b", nil), start(t, s, "c", nil)
		pass(term - time.Second) // each has its share; their sweeps are at 5 s and 10 s
		var hints []neuron.Hint
		var ids []ident.ID
		for p := range neuron.AllPlaces().All() {
			h := neuron.Hint{ID: ident.New(time.Now()), Place: p}
			hints = append(hints, h)
			if b.held().Has(p) {
				ids = append(ids, h.ID)
			}
		}
		a.Elsewhere(hints[:1])
		a.Elsewhere(hints[1:])
		synctest.Wait()
		b.mu.Lock()
		if !slices.Equal(b.woken, ids) || len(ids) == 0 || b.sweeps != 2 {
			t.Errorf("b heard %d of %d ids and swept %d times", len(b.woken), len(ids), b.sweeps)
		}
		b.mu.Unlock()
		pass(2 * time.Second)
		a.mu.Lock()
		c.mu.Lock()
		if len(a.woken) != 0 || a.sweeps != 3 || len(c.woken) != c.fence.Places.Held().Len() {
			t.Errorf("a heard %v and swept %d times, c heard %d", a.woken, a.sweeps, len(c.woken))
		}
		c.mu.Unlock()
		a.mu.Unlock()
		_, _, _ = a.quit(), b.quit(), c.quit()
	})
}
