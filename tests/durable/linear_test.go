package durable_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"soma/ident"
	"soma/internal/neuron"
	"soma/tests/durable/counter"
)

var soakFor = flag.Duration("for", 0, "how long the model and the clients run; 0: as long as takes seconds")

// move is what a client asked for.
type move struct {
	key string
	by  int64
}

// counters say which sums clients may see: as if one move came after the other.
var counters = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(move).key
			parts[key] = append(parts[key], op)
		}
		var all [][]porcupine.Operation
		for _, part := range parts {
			all = append(all, part)
		}
		return all
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		sum := state.(int64) + input.(move).by
		return sum == output.(int64), sum
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v = %d", input, output) },
}

// clients move and read counters through both nodes, each under one id until it is answered.
type clients struct {
	c     *pair
	began time.Time
	stop  atomic.Bool
	wg    sync.WaitGroup
	count atomic.Int64
	tries atomic.Int64

	mu      sync.RWMutex // the nodes' processes
	moves   sync.Mutex
	history []porcupine.Operation
}

func (c *pair) clients(n int) *clients {
	k := &clients{c: c, began: time.Now()}
	for i := range n {
		k.wg.Go(func() { k.run(i) })
	}
	return k
}

func (k *clients) run(client int) {
	r := rand.New(rand.NewPCG(uint64(client), 7))
	for n := 0; !k.stop.Load(); n++ {
		m := move{fmt.Sprint("c", r.IntN(8)), int64(r.IntN(4))} // by 0 is a look
		id := ident.New(time.Now())
		called := time.Since(k.began)
		sum, ok := k.until(client+n, id, m)
		if !ok {
			return
		}
		returned := time.Since(k.began)
		k.moves.Lock()
		k.history = append(k.history, porcupine.Operation{ClientId: client, Input: m, Call: int64(called), Output: sum, Return: int64(returned)})
		k.moves.Unlock()
		k.count.Add(1)
		pause(k.c.t, time.Duration(r.IntN(20))*time.Millisecond)
	}
}

// until asks one node after the other.
func (k *clients) until(first int, id ident.ID, m move) (int64, bool) {
	for n := first; k.c.t.Context().Err() == nil; n++ {
		k.mu.RLock()
		p := k.c.nodes[n%2].process
		k.mu.RUnlock()
		ctx, cancel := context.WithTimeout(k.c.t.Context(), 300*time.Millisecond)
		sum, err := p.ask(ctx, request{Op: "add", ID: id, Key: m.key, Add: counter.Add{By: m.by}})
		cancel()
		if err == nil {
			return sum, true
		}
		k.tries.Add(1)
		pause(k.c.t, 5*time.Millisecond)
	}
	return 0, false
}

// progress waits until the clients have been answered some more.
func (k *clients) progress(some int64) {
	k.c.t.Helper()
	want, end := k.count.Load()+some, time.Now().Add(patience)
	for k.count.Load() < want {
		if time.Now().After(end) {
			k.c.t.Fatal("the clients are not answered any more")
		}
		pause(k.c.t, 10*time.Millisecond)
	}
}

func (k *clients) replace(i int) {
	n := k.c.nodes[i]
	p := start(k.c.t, n.setup)
	k.mu.Lock()
	defer k.mu.Unlock()
	n.process = p
}

// troubles are what happens to the nodes meanwhile.
var troubles = []struct {
	name string
	make func(k *clients, i int) error
}{
	{"paused past its lease", func(k *clients, i int) error {
		k.c.nodes[i].signal(syscall.SIGSTOP)
		pause(k.c.t, 2*term)
		k.c.nodes[i].signal(syscall.SIGCONT)
		return nil
	}},
	{"cut on the way there", func(k *clients, i int) error { k.cut(i, false); return nil }},
	{"cut on the way back", func(k *clients, i int) error { k.cut(i, true); return nil }},
	{"killed", func(k *clients, i int) error {
		k.c.nodes[i].kill()
		k.progress(5)
		k.replace(i)
		return nil
	}},
	{"PostgreSQL killed", func(k *clients, _ int) error {
		return errors.Join(k.c.server.Kill(), k.c.server.Restart(k.c.t.Context()))
	}},
	{"lapsed and alone", func(k *clients, i int) error {
		k.c.nodes[1-i].kill()
		k.c.nodes[i].signal(syscall.SIGSTOP)
		pause(k.c.t, 2*term)
		k.c.nodes[i].signal(syscall.SIGCONT)
		k.progress(5)
		k.replace(1 - i)
		return nil
	}},
	{"paused for less than its lease", func(k *clients, i int) error {
		k.c.nodes[i].signal(syscall.SIGSTOP)
		pause(k.c.t, term/4)
		k.c.nodes[i].signal(syscall.SIGCONT)
		return nil
	}},
}

// cut cuts the node's next commit.
func (k *clients) cut(i int, answered bool) {
	sent := false
	done := make(chan struct{})
	var once sync.Once
	k.c.nodes[i].relay.Cut(func(text string, answer bool) bool {
		commit := !answer && strings.Contains(text, counter.AddType.Alias())
		sent = sent || commit
		cut := commit && !answered || sent && answer && answered
		if cut {
			once.Do(func() { close(done) })
		}
		return cut
	})
	late := time.NewTimer(4 * term)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C: // it happens to run none of the counters now
	}
	k.c.nodes[i].relay.Cut(nil)
}

// end lets the clients finish and judges what they saw.
func (k *clients) end() error {
	k.stop.Store(true)
	k.wg.Wait()
	want := map[neuron.ID]int64{}
	for _, op := range k.history {
		want[counter.Counter(op.Input.(move).key)] += op.Input.(move).by
	}
	var errs []error
	switch porcupine.CheckOperationsTimeout(counters, k.history, 30*time.Second) {
	case porcupine.Illegal:
		errs = append(errs, errors.New("no order of the moves explains what the clients saw"))
	case porcupine.Unknown:
		errs = append(errs, errors.New("whether an order explains what the clients saw was not found out in time"))
	}
	return errors.Join(append(errs, k.c.end(want))...)
}

// N-36, N-33, N-07, N-20: what clients see of counters through two nodes is linearizable, while the nodes are paused, killed and cut
// off and PostgreSQL is killed; and each move has happened once.
func TestLinearizable(t *testing.T) {
	c := newPair(t)
	k := c.clients(4)
	began := time.Now()
	for n := 0; *soakFor == 0 && n < len(troubles) || time.Since(began) < *soakFor; n++ {
		trouble, i := troubles[n%len(troubles)], n/len(troubles)%2
		if *soakFor > 0 {
			trouble, i = troubles[rand.IntN(len(troubles))], rand.IntN(2)
		}
		k.progress(20)
		if err := trouble.make(k, i); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: node %s, after %d moves", trouble.name, c.nodes[i].setup.name, k.count.Load())
	}
	k.progress(50)
	if err := k.end(); err != nil {
		t.Error(err)
	}
	t.Logf("%d moves, %d tries without an answer", len(k.history), k.tries.Load())
}

// A history that no order explains is noticed.
func TestCheckerNotices(t *testing.T) {
	for name, c := range map[string]struct {
		sums [3]int64
		want bool
	}{"in order": {[3]int64{1, 2, 3}, true}, "lost": {[3]int64{1, 1, 2}, false}, "doubled": {[3]int64{1, 3, 4}, false}} {
		var history []porcupine.Operation
		for i, sum := range c.sums {
			history = append(history, porcupine.Operation{Input: move{"k", 1}, Output: sum, Call: int64(10 * i), Return: int64(10*i + 5)})
		}
		if got := porcupine.CheckOperations(counters, history); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
