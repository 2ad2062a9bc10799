package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// term is the lease of these tests.
const term = 1500 * time.Millisecond

// pair are two nodes on one database of PostgreSQL, each behind a relay of its own, and the places fairly shared.
type pair struct {
	t      testing.TB
	dsn    string
	nodes  [2]*slot
	server *postgrestest.Server
}

// slot is one node, whichever process it is now.
type slot struct {
	setup setup
	relay *postgrestest.Relay
	*process
}

func newPair(t testing.TB, env ...string) *pair {
	t.Helper()
	server := postgrestest.Shared(t)
	direct := postgrestest.Database(t)
	_, database, _ := strings.Cut(direct, "dbname=")
	database, _, _ = strings.Cut(database, " ")
	c := &pair{t: t, dsn: direct, server: server}
	for i, name := range []string{"a", "b"} {
		r := postgrestest.StartRelay(t, server)
		n := &slot{setup: setup{dsn: r.DSN(database), name: name, lease: term, env: env}, relay: r}
		c.nodes[i] = n
		n.process = start(t, n.setup)
		if i == 0 {
			n.held(neuron.Places)
		}
	}
	c.fair()
	return c
}

// fair waits until each node holds its share.
func (c *pair) fair() {
	c.t.Helper()
	for _, n := range c.nodes {
		if !n.held(neuron.Places / 2) {
			c.t.Fatalf("node %s does not hold its share", n.setup.name)
		}
	}
}

// of returns the key of a counter that node i runs.
func (c *pair) of(i int) string {
	c.t.Helper()
	for n := range 200 {
		key := fmt.Sprint("k", n)
		if _, err := c.nodes[i].ask(c.t.Context(), request{Op: "add", ID: ident.New(time.Now()), Key: key}); err == nil {
			return key
		}
	}
	c.t.Fatalf("node %s runs nothing", c.nodes[i].setup.name)
	return ""
}

// add moves a counter on at one node.
func (c *pair) add(i int, id ident.ID, key string, by int64) (int64, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.nodes[i].ask(ctx, request{Op: "add", ID: id, Key: key, Add: counter.Add{By: by}})
}

// anywhere adds at either node until one answers.
func (c *pair) anywhere(id ident.ID, key string, by int64) int64 {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		for i := range c.nodes {
			if sum, err := c.add(i, id, key, by); err == nil {
				return sum
			} else if time.Now().After(end) {
				c.t.Fatal(err)
			}
		}
		pause(c.t, 10*time.Millisecond)
	}
}

// end stops both nodes in order and compares what they leave.
func (c *pair) end(want map[neuron.ID]int64) error {
	c.t.Helper()
	rest(c.t, c.dsn)
	for _, n := range c.nodes {
		n.stop()
	}
	s, err := counter.Open(c.t.Context(), c.dsn, counter.Small(), term)
	if err != nil {
		return err
	}
	return errors.Join(counter.Check(c.t.Context(), s, want), s.Close())
}

func pause(t testing.TB, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// gate is a named pipe that holds a handler.
type gate struct {
	path string
	pipe *os.File
}

func newGate(t testing.TB) *gate {
	t.Helper()
	g := &gate{path: filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(g.path, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.pipe, err = os.OpenFile(g.path, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.pipe.Close() })
	return g
}

func (g *gate) open(t testing.TB) {
	if _, err := g.pipe.Write([]byte{1}); err != nil {
		t.Error(err)
	}
}

// pausedOwner pauses the owner of a counter in the middle of its turn, until the other node has taken the counter and moved it
// on, and returns what went wrong: the owner must not commit nor answer, and nothing may be lost or doubled.
func pausedOwner(t testing.TB, env ...string) error {
	t.Helper()
	c := newPair(t, env...)
	a := c.nodes[0]
	key, held, other := c.of(0), ident.New(time.Now()), ident.New(time.Now())
	if sum, err := c.add(0, ident.New(time.Now()), key, 100); err != nil || sum != 100 {
		t.Fatalf("%d, %v", sum, err)
	}
	g := newGate(t)
	answer := a.begin(request{Op: "add", ID: held, Key: key, Add: counter.Add{By: 1, Gate: g.path}})
	if _, ok := a.event("entered", 1); !ok {
		t.Fatal("the handler has not begun")
	}
	lives := a.count("began")
	a.signal(syscall.SIGSTOP)
	if !c.nodes[1].held(neuron.Places) {
		t.Fatal("the other node does not take over")
	}
	if sum, err := c.add(1, other, key, 10); err != nil || sum != 110 {
		t.Fatalf("at the other node: %d, %v", sum, err)
	}
	g.open(t)
	a.signal(syscall.SIGCONT)
	var errs []error
	if l, ok := <-answer; !ok {
		t.Fatal("the paused node died")
	} else if l.Error == "" {
		errs = append(errs, fmt.Errorf("the paused node answered with %d", l.Value))
	} else {
		t.Logf("the paused node said: %s", l.Error)
	}
	if len(errs) == 0 {
		a.event("began", lives+1)
		c.fair()
	}
	// What the client has not heard of it repeats, at either node.
	if sum := c.anywhere(held, key, 1); sum != 111 {
		errs = append(errs, fmt.Errorf("repeated, the delivery came to %d, want 111", sum))
	}
	return errors.Join(append(errs, c.end(map[neuron.ID]int64{counter.Counter(key): 111}))...)
}

// N-36, N-07: an owner that was paused past its lease commits nothing and answers nothing of what it had begun; it comes back
// as a new life and serves.
func TestPausedOwner(t *testing.T) {
	if err := pausedOwner(t); err != nil {
		t.Error(err)
	}
}

// N-36: the same where the owner goes on to believe in its lease: the server's fence alone refuses its commit.
func TestPausedOwnerThatBelieves(t *testing.T) {
	if err := pausedOwner(t, "SOMA_FAULT=belief_off"); err != nil {
		t.Error(err)
	}
}

// N-36: a node whose own lease has lapsed, with nobody there to take its places, ends that life and takes them again as a new
// one; what it had begun is done once, also when it is repeated.
func TestOwnLapsedLease(t *testing.T) {
	s := setup{dsn: postgrestest.Database(t), name: "a", lease: term}
	p := start(t, s)
	if !p.held(neuron.Places) {
		t.Fatal("the node does not hold all places")
	}
	g := newGate(t)
	id := ident.New(time.Now())
	answer := p.begin(request{Op: "add", ID: id, Key: "k", Add: counter.Add{By: 1, Gate: g.path}})
	p.event("entered", 1)
	p.signal(syscall.SIGSTOP)
	pause(t, 2*term)
	g.open(t)
	p.signal(syscall.SIGCONT)
	// Nobody has taken the places: what was begun may still be committed, under the epoch that is good until then.
	if l, ok := <-answer; !ok || l.Error == "" && l.Value != 1 {
		t.Errorf("the node answered %+v after its lease", l)
	}
	first, _ := p.event("began", 1)
	second, ok := p.event("began", 2)
	if !ok || second.Value <= first.Value || !p.held(neuron.Places) {
		t.Fatalf("lives under epochs %d and %d", first.Value, second.Value)
	}
	if sum, err := p.ask(t.Context(), request{Op: "add", ID: id, Key: "k", Add: counter.Add{By: 1}}); err != nil || sum != 1 {
		t.Errorf("repeated: %d, %v", sum, err)
	}
	p.stop()
	check(t, s.dsn, map[neuron.ID]int64{counter.Counter("k"): 1})
}

// N-33, N-36: the connection of an owner is cut at a commit, before the group reaches the server and before its answer comes
// back: the owner does not know, begins a new life, and the delivery that its client repeats is done once.
func TestConnectionCutAtCommit(t *testing.T) {
	c := newPair(t)
	want := map[neuron.ID]int64{}
	for _, answered := range []bool{false, true} {
		c.fair()
		key, id := c.of(0), ident.New(time.Now())
		want[counter.Counter(key)]++
		sent, lives := false, c.nodes[0].count("began")
		mark := id.String()
		c.nodes[0].relay.Cut(func(text string, answer bool) bool {
			if !answer && strings.Contains(text, mark) {
				sent = true
				return !answered
			}
			return sent && answer && answered
		})
		_, err := c.add(0, id, key, 1)
		c.nodes[0].relay.Cut(nil)
		if err == nil || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("cut with the answer on its way %v: %v", answered, err)
		}
		c.nodes[0].event("began", lives+1)
		if sum := c.anywhere(id, key, 1); sum != want[counter.Counter(key)] {
			t.Errorf("repeated, it came to %d, want %d", sum, want[counter.Counter(key)])
		}
	}
	if err := c.end(want); err != nil {
		t.Error(err)
	}
}

// N-33: PostgreSQL dies under load and comes back. Nothing is lost or doubled.
func TestServerDies(t *testing.T) {
	c := newPair(t)
	key := "dies"
	want := int64(0)
	for round := range 2 {
		done := make(chan error, 1)
		go func() {
			pause(t, 30*time.Millisecond)
			done <- errors.Join(c.server.Kill(), c.server.Restart(t.Context()))
		}()
		for n := 0; ; n++ {
			want++
			if sum := c.anywhere(ident.New(time.Now()), key, 1); sum != want {
				t.Fatalf("round %d: add %d came to %d", round, want, sum)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			default:
				continue
			}
			break
		}
	}
	t.Logf("%d adds, lives %d and %d", want, c.nodes[0].count("began"), c.nodes[1].count("began"))
	if err := c.end(map[neuron.ID]int64{counter.Counter(key): want}); err != nil {
		t.Error(err)
	}
}
