package engine

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/neuron/fifo"
)

// Bounds of what the drain keeps in memory: beyond them a row is remembered by its id and read again when its turn comes.
const (
	residentRows  = 50_000
	residentBytes = 64 << 20
)

// flushAfter is how long the removal of a delivered row waits for a commit that it can ride in.
const flushAfter = 100 * time.Millisecond

// alarmCheck bounds one wait for an alarm: its due time is on the wall clock, which may jump while the timer runs.
const alarmCheck = time.Minute

// laneKey names a lane. Deliveries of one sender to one target on one lane are drained in order; an alarm, an execution's
// outcome and what came from outside have no order to keep, so each is a lane of its own.
type laneKey struct {
	sender, target neuron.ID
	lane           neuron.Lane
	own            ident.ID
}

type lane struct {
	key   laneKey
	begun bool
	items fifo.Queue[*item] // once it has begun, the first one is in a mailbox, running, or waiting for its time
}

// remove takes an item out and reports whether it was the first.
func (l *lane) remove(it *item) bool {
	return l.items.Remove(func(other *item) bool { return other == it }) == 0
}

// insert puts an item behind those that its sender sent before it. Rows that other nodes have committed come out of order
// sometimes; the first item of a lane that has begun stays the first.
func (l *lane) insert(it *item) {
	first := 0
	if l.begun {
		first = 1
	}
	l.items.Insert(it, first, func(other *item) bool { return other.seq > it.seq })
}

// item is an outbox row in memory.
type item struct {
	id       ident.ID
	lane     *lane
	seq      uint64 // of the sender
	place    neuron.Place
	unsure   bool              // it may have been running at a node that died
	row      *neuron.OutboxRow // nil: read it when its turn comes
	alarm    bool
	gone     bool // cancelled or ended: a mailbox may still hold its job
	dormant  bool // an alarm ahead of its time
	due      time.Time
	wake     time.Time // when the clock looks at it, by the monotonic clock
	index    int       // in the heap; -1: not waiting
	giveUp   neuron.Code
	resident int // bytes counted for row
}

// drain holds the outbox rows of this daemon. It belongs to Engine.mu.
type drain struct {
	rows     map[ident.ID]*item
	lanes    map[laneKey]*lane
	waiting  waiting
	maxRows  int
	maxBytes int
	kept     int // rows in memory, and their bytes
	bytes    int
	dormant  int                       // alarms ahead of their time
	removed  map[ident.ID]neuron.Place // rows that are delivered but not deleted yet
	removals []ident.ID
	place    neuron.Place // of the last removal
	flushAt  time.Time
	wakeAt   time.Time // the clock's next look; zero: none
}

func (d *drain) init() {
	d.maxRows, d.maxBytes = residentRows, residentBytes
	d.rows, d.lanes, d.removed = map[ident.ID]*item{}, map[laneKey]*lane{}, map[ident.ID]neuron.Place{}
}

// holds reports whether a row of that id exists.
func (d *drain) holds(id ident.ID) bool {
	if _, ok := d.rows[id]; ok {
		return true
	}
	_, ok := d.removed[id]
	return ok
}

// admitRow takes a committed row into its lane; the first of a lane goes on at once or when its time has come.
func (e *Engine) admitRow(row *neuron.OutboxRow) {
	if it := e.addRow(row, true); it != nil && it.lane.items.Len() == 1 {
		e.head(it, row)
	}
}

// addRow puts a row into its lane and returns its item, nil if it is there already. begin says that a new lane begins.
func (e *Engine) addRow(row *neuron.OutboxRow, begin bool) *item {
	d := &e.drain
	if d.rows[row.ID] != nil {
		return nil
	}
	it := &item{id: row.ID, seq: row.Seq, place: row.Place, alarm: row.Alarm, due: row.Due, index: -1}
	if n := 256 + len(row.Payload); d.kept < d.maxRows && d.bytes+n <= d.maxBytes {
		it.row, it.resident = row, n
		d.kept++
		d.bytes += n
	}
	key := laneKey{sender: row.Caller, target: row.Target, lane: row.Lane}
	if row.Alarm || row.Seq == 0 {
		key.own = row.ID
	}
	l := d.lanes[key]
	if l == nil {
		l = &lane{key: key, begun: begin}
		d.lanes[key] = l
	}
	it.lane = l
	d.rows[row.ID] = it
	l.insert(it)
	return it
}

// head starts the first item of a lane; row is nil when it is not at hand.
func (e *Engine) head(it *item, row *neuron.OutboxRow) {
	it.lane.begun = true
	if it.alarm && it.due.After(e.now()) {
		it.dormant = true
		e.drain.dormant++
		e.wait(it, e.alarmWake(it))
		return
	}
	if row != nil && row.Attempts > 1 {
		// A retry that a restart interrupted; a clock that jumped must not make it wait longer than a backoff.
		if left := min(row.Due.Sub(e.now()), e.limits.BackoffMax); left > 0 {
			e.wait(it, time.Now().Add(left))
			return
		}
	}
	e.send(it)
}

func (e *Engine) alarmWake(it *item) time.Time {
	return time.Now().Add(min(it.due.Sub(e.now()), alarmCheck))
}

// send puts an item into its target's mailbox. Lanes bound what comes from here: one delivery each.
func (e *Engine) send(it *item) {
	j := &job{item: it, row: it.row, giveUp: it.giveUp}
	if it.row != nil {
		j.d = it.row.Delivery
	} else {
		j.d = neuron.Delivery{ID: it.id, Target: it.lane.key.target, Lane: it.lane.key.lane}
	}
	e.post(e.activate(it.lane.key.target), j)
}

// wait makes the clock look at the item at the given time.
func (e *Engine) wait(it *item, wake time.Time) {
	if it.gone {
		return
	}
	it.wake = wake
	heap.Push(&e.drain.waiting, it)
	e.wakeBy(wake)
}

// due sends what has waited long enough and returns when the next one will have, zero for none.
func (e *Engine) due(now time.Time) time.Time {
	w := &e.drain.waiting
	for len(*w) > 0 {
		it := (*w)[0]
		if it.wake.After(now) {
			return it.wake
		}
		heap.Pop(w)
		if it.dormant {
			if it.due.After(e.now()) {
				e.wait(it, e.alarmWake(it))
				continue
			}
			it.dormant = false
			e.drain.dormant--
		}
		e.send(it)
	}
	return time.Time{}
}

// delivered ends an item whose delivery is settled; the row goes with a later commit.
func (e *Engine) delivered(it *item) {
	d := &e.drain
	if it.gone {
		return
	}
	crash.Point(crash.DrainDelivered)
	e.forget(it)
	d.removals = append(d.removals, it.id)
	d.removed[it.id] = it.place
	d.place = it.place
	if d.flushAt.IsZero() {
		d.flushAt = time.Now().Add(flushAfter)
		e.wakeBy(d.flushAt)
	}
}

// cancelRow ends an item whose row a committed record deleted.
func (e *Engine) cancelRow(id ident.ID) {
	if it := e.drain.rows[id]; it != nil {
		e.forget(it)
	}
}

// forget takes an item out of memory and lets the next of its lane go.
func (e *Engine) forget(it *item) {
	d := &e.drain
	if it.gone {
		return
	}
	d.clear(it)
	l := it.lane
	first := l.remove(it)
	if l.items.Len() == 0 {
		delete(d.lanes, l.key)
		return
	}
	if first {
		next := l.items.Peek()
		e.head(next, next.row)
	}
}

// clear takes an item out of all but its lane.
func (d *drain) clear(it *item) {
	it.gone = true
	if it.index >= 0 {
		heap.Remove(&d.waiting, it.index)
	}
	if it.dormant {
		it.dormant = false
		d.dormant--
	}
	if it.row != nil {
		d.kept--
		d.bytes -= it.resident
		it.row = nil
	}
	delete(d.rows, it.id)
}

// drop forgets an item with its lane, whose other items are dropped too.
func (d *drain) drop(it *item) {
	d.clear(it)
	delete(d.lanes, it.lane.key)
}

// spent counts the attempt that has just failed and returns why there is no other, "" when there is.
func (e *Engine) spent(j *job) neuron.Code {
	if j.row == nil {
		return "" // it could not even be read
	}
	row := *j.row
	if row.FirstTry.IsZero() {
		row.FirstTry = e.now()
	}
	row.Tried += min(time.Since(j.began), e.limits.AttemptTime)
	j.row = &row
	switch {
	case row.Attempts >= e.limits.Attempts:
		return neuron.AttemptsSpent
	case row.Tried >= e.limits.Horizon:
		return neuron.HorizonPassed
	}
	return ""
}

// retry writes the count of the next attempt (N-45) and then waits for its time. Only time really tried counts for the
// horizon: the attempts and the waits between them, measured on the monotonic clock.
func (e *Engine) retry(j *job) {
	if j.row == nil {
		e.mu.Lock()
		e.wait(j.item, time.Now().Add(e.limits.BackoffMax))
		e.mu.Unlock()
		return
	}
	row := *j.row
	pause := e.backoff(max(1, row.Attempts))
	row.Attempts = max(1, row.Attempts) + 1
	row.Tried += pause
	row.Due = e.now().Add(pause)
	e.submit(&staged{
		rec: &neuron.Record{Place: row.Place, Neuron: row.Target, Retried: []neuron.OutboxRow{row}},
		end: func(err error) {
			if err != nil {
				e.log.Error("cannot count an attempt", "delivery", row.ID, "error", err)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if j.item.row != nil && !j.item.gone {
				j.item.row = &row
			}
			e.wait(j.item, time.Now().Add(pause))
		},
	})
}

// backoff returns the wait after the n-th attempt: it doubles, and half of it is left to chance.
func (e *Engine) backoff(n int) time.Duration {
	d := e.limits.BackoffMax
	if n < 32 {
		d = min(d, e.limits.BackoffMin<<(n-1))
	}
	return d/2 + rand.N(d/2+1)
}

// removal returns a record that deletes delivered rows, nil when there are none.
func (e *Engine) removal() *staged {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := &e.drain
	if len(d.removals) == 0 {
		return nil
	}
	ids := d.removals
	d.removals, d.flushAt = nil, time.Time{}
	return &staged{
		rec: &neuron.Record{Place: d.place, Delivered: ids},
		end: func(err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, id := range ids {
				delete(e.drain.removed, id)
			}
			if err != nil {
				e.log.Error("cannot delete delivered rows", "error", err)
			}
			e.checkQuiet()
		},
	}
}

// waiting is a heap of items by the time of their next look.
type waiting []*item

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].wake.Before(w[j].wake) }
func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

func (w *waiting) Push(v any) {
	it := v.(*item)
	it.index = len(*w)
	*w = append(*w, it)
}

func (w *waiting) Pop() any {
	old := *w
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	it.index = -1
	return it
}
