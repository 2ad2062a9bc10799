package engine

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/fifo"
	"soma/internal/neuron/recall"
)

// activation is a warm neuron: a projection of its committed rows and the deliveries that wait for it. mailbox, state and
// the links belong to Engine.mu; the rest belongs to whoever holds the activation's job.
type activation struct {
	id       neuron.ID
	key      int64
	place    neuron.Place
	state    state
	loaded   bool
	unsaved  bool // it has no row yet
	inSeq    uint64
	outSeq   uint64
	in, out  tallies
	alias    string
	body     []byte
	horizon  ident.ID    // no id above it was ever settled here
	asked    int         // ids at or below the horizon that came
	seen     *recall.Set // all that were settled within the window, nil before they are read
	again    *job        // whose attempt has been counted: it comes first
	signals  fifo.Queue[*job]
	mail     fifo.Queue[*job]
	prev     *activation
	next     *activation
	restedAt time.Time
}

// job is one delivery on its way through a mailbox.
type job struct {
	d neuron.Delivery
	// msg is what d's payload encodes, nil where only the payload is at hand.
	msg any
	// accept jobs are those of Accept; ops are committed with their turn.
	accept bool
	ops    []neuron.Op
	// item is the outbox row that the job drains, nil for one from outside; row is what was read of it.
	item *item
	row  *neuron.OutboxRow
	// kept is what a turn that is settled keeps all the same.
	kept *neuron.Result
	// giveUp settles the delivery without running its handler.
	giveUp neuron.Code
	// carried is set once a connection has turned d into what the target gets.
	carried bool
	erase   *bool // set for a job of Erase, which is no delivery: whether more is left
	began   time.Time
	done    chan error // capacity 1; nil for an item
}

// tally counts entries of one alias; a neuron knows few, so a list is smaller than a map and as fast.
type tally struct {
	alias string
	n     uint64
}

type tallies []tally

func (t *tallies) add(alias string) {
	for i := range *t {
		if (*t)[i].alias == alias {
			(*t)[i].n++
			return
		}
	}
	*t = append(*t, tally{alias, 1})
}

func (t tallies) counts() map[string]uint64 {
	m := make(map[string]uint64, len(t))
	for _, c := range t {
		m[c.alias] = c.n
	}
	return m
}

func (e *Engine) tallies(m map[string]uint64) tallies {
	t := make(tallies, 0, len(m))
	for alias, n := range m {
		t = append(t, tally{e.intern(alias), n})
	}
	return t
}

// intern returns the one string of a listed alias.
func (e *Engine) intern(alias string) string {
	if s, ok := e.types[alias]; ok {
		return s
	}
	return alias
}

// offer puts a job from outside into its target's mailbox.
func (e *Engine) offer(j *job) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.openLocked(); err != nil {
		return err
	}
	if err := e.ownLocked(&j.d); err != nil {
		return err
	}
	a := e.activate(j.d.Target)
	if a.queued() >= e.limits.Mailbox {
		return fmt.Errorf("%w: %s", neuron.ErrBusy, a.id)
	}
	e.post(a, j)
	return nil
}

// activate returns the activation of id, a fresh one that a worker will load when it was passive.
func (e *Engine) activate(id neuron.ID) *activation {
	a := e.warm[id]
	if a == nil {
		a = &activation{id: id}
		e.warm[id] = a
		e.shrink()
	}
	return a
}

// post puts a job into a mailbox; a signal overtakes queued mail.
func (e *Engine) post(a *activation, j *job) {
	if len(e.suspects) > 0 && e.suspects[j.d.ID] >= e.limits.Crashes {
		j.giveUp = neuron.CrashedTooOften
	}
	if j.d.Lane == neuron.Signal {
		a.signals.Push(j)
	} else {
		a.mail.Push(j)
	}
	e.waiting++
	was := a.state
	a.state = was.on(arrive)
	if was == idle {
		e.resting.drop(a)
		e.enqueue(a)
	}
}

func (e *Engine) enqueue(a *activation) {
	e.runq.Push(a)
	e.runnable.Signal()
}

// queued is how many deliveries wait.
func (a *activation) queued() int {
	n := a.mail.Len() + a.signals.Len()
	if a.again != nil {
		n++
	}
	return n
}

// nextJob takes the one that was put back, else the oldest signal, else the oldest mail.
func (a *activation) nextJob() *job {
	if j := a.again; j != nil {
		a.again = nil
		return j
	}
	if a.signals.Len() > 0 {
		return a.signals.Pop()
	}
	return a.mail.Pop()
}

// release ends the activation's job: the next one may run.
func (e *Engine) release(a *activation) {
	if a.queued() > 0 {
		a.state = a.state.on(more)
		e.enqueue(a)
		return
	}
	a.state = a.state.on(rest)
	a.restedAt = time.Now()
	e.resting.push(a)
	e.shrink()
	if e.resting.len == 1 {
		e.wakeBy(a.restedAt.Add(e.limits.IdleAfter))
	}
}

// shrink passivates the longest idle activations beyond Limits.Warm.
func (e *Engine) shrink() {
	for len(e.warm) > e.limits.Warm && e.resting.first != nil {
		e.passivate(e.resting.first)
	}
}

// passivate forgets an idle activation: its rows are all there is to it.
func (e *Engine) passivate(a *activation) {
	e.resting.drop(a)
	delete(e.warm, a.id)
}

// passivateIdle drops what has been idle for long and returns when the next one will have been, zero for none.
func (e *Engine) passivateIdle(now time.Time) time.Time {
	for a := e.resting.first; a != nil; a = e.resting.first {
		if at := a.restedAt.Add(e.limits.IdleAfter); at.After(now) {
			return at
		}
		e.passivate(a)
	}
	return time.Time{}
}

// load reads what the activation projects.
func (e *Engine) load(ctx context.Context, a *activation) error {
	row, err := e.store.Neuron(ctx, a.id)
	if err != nil {
		return fmt.Errorf("cannot activate %s: %w", a.id, err)
	}
	a.key, a.place, a.unsaved = row.Key, row.Place, row.Key == 0
	a.inSeq, a.outSeq, a.alias, a.body = row.InSeq, row.OutSeq, e.intern(row.StateAlias), row.State
	a.in, a.out = e.tallies(row.Tallies.In), e.tallies(row.Tallies.Out)
	if a.unsaved {
		if a.key, err = e.keys.take(ctx, e.store); err != nil {
			return fmt.Errorf("cannot activate %s: %w", a.id, err)
		}
		a.place = e.placeOf(a.id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// Ids made from here on are greater than this one; those from outside may be stamped by a clock that runs ahead.
	a.horizon = ident.New(e.now())
	if later(e.newest, a.horizon) {
		a.horizon = e.newest
	}
	a.loaded = true
	return nil
}

func later(a, b ident.ID) bool { return bytes.Compare(a[:], b[:]) > 0 }
