package neurontest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
)

// Applier is an operation that the store performs by Go instead of its statement. Apply returns how many rows it changed.
type Applier interface {
	neuron.Op
	Apply(t *Table) int
}

// Store keeps everything until it is garbage. It is safe for concurrent use. Several engines may be opened on one of New one
// after the other: the newest claim fences the older ones, as after a crash. On one of NewShared they run at the same time,
// each with the places that Take has given to it.
type Store struct {
	limits neuron.Limits

	mu         sync.Mutex
	before     func([]*neuron.Record) error
	several    bool
	epoch      uint64
	node       string            // of the newest claim
	lives      map[string]uint64 // epoch of each node's newest claim
	nodes      map[string]lease.Node
	listeners  map[*Leases]func([]neuron.Hint)
	places     [neuron.Places]holding
	reserved   int64
	pos        int64
	neurons    map[neuron.ID]*row
	keys       map[int64]*row
	turns      map[ident.ID]int64
	outbox     map[ident.ID]neuron.OutboxRow
	executions map[ident.ID]execution
	dead       map[ident.ID]neuron.DeadLetter
	contents   map[ident.ID][]byte
	numbers    map[[2]string]uint64
	table      Table
	tables     tables
	groups     []int // records of each commit
	reads      reads
}

// execution is a row and its place.
type execution struct {
	neuron.Execution
	place neuron.Place
}

// row is a neuron with all it ever settled and sent.
type row struct {
	neuron.NeuronRow
	id      neuron.ID
	in, out []neuron.Entry
	ids     []ident.ID
}

var _ neuron.Store = (*Store)(nil)

// New returns an empty store with the windows of limits.
func New(limits neuron.Limits) *Store {
	return &Store{
		limits: limits, neurons: map[neuron.ID]*row{}, keys: map[int64]*row{}, turns: map[ident.ID]int64{},
		outbox: map[ident.ID]neuron.OutboxRow{}, executions: map[ident.ID]execution{}, lives: map[string]uint64{},
		nodes: map[string]lease.Node{}, listeners: map[*Leases]func([]neuron.Hint){},
		dead: map[ident.ID]neuron.DeadLetter{}, contents: map[ident.ID][]byte{}, numbers: map[[2]string]uint64{},
		table: Table{rows: map[string]string{}}, tables: tables{},
	}
}

// OnCommit sets what is called before each commit, without the store's lock; its error becomes that of the commit.
func (s *Store) OnCommit(fn func(group []*neuron.Record) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fn
}

// Groups returns how many records each commit had.
func (s *Store) Groups() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.groups)
}

// Reads returns how often a neuron and how often a settled delivery was looked up.
func (s *Store) Reads() (neurons, settled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads.neurons, s.reads.settled
}

type reads struct{ neurons, settled int }

// Rows returns a copy of the table that Appliers change.
func (s *Store) Rows() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.table.rows)
}

// Commit applies the group; the first record that cannot be applied undoes it all.
func (s *Store) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(group); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(fence, group) {
		return neuron.ErrFenced
	}
	u := &undo{}
	s.table.undo = u
	for _, op := range neuron.SharedOps(group) {
		if err := s.perform(u, op.Op); err != nil {
			u.all()
			return &neuron.RecordError{Index: op.Record, Err: err}
		}
	}
	for i, r := range group {
		if err := s.write(u, r); err != nil {
			u.all()
			return &neuron.RecordError{Index: i, Err: err}
		}
	}
	s.groups = append(s.groups, len(group))
	return nil
}

func (s *Store) write(u *undo, r *neuron.Record) error {
	if r.New {
		if s.neurons[r.Neuron] != nil || s.keys[r.Key] != nil {
			return fmt.Errorf("neuron %s has a row", r.Neuron)
		}
		n := &row{id: r.Neuron, NeuronRow: neuron.NeuronRow{Key: r.Key, Place: r.Place}}
		set(u, s.neurons, r.Neuron, n)
		set(u, s.keys, r.Key, n)
	}
	if r.Turn != nil {
		if err := s.writeTurn(u, r); err != nil {
			return err
		}
	}
	for _, c := range r.Contents {
		if _, ok := s.contents[c.ID]; ok {
			return fmt.Errorf("content %s exists", c.ID)
		}
		set(u, s.contents, c.ID, c.Bytes)
	}
	for _, o := range r.Outbox {
		if _, ok := s.outbox[o.ID]; ok {
			return fmt.Errorf("outbox row %s exists", o.ID)
		}
		set(u, s.outbox, o.ID, o)
	}
	for _, o := range r.Retried {
		if old, ok := s.outbox[o.ID]; ok {
			old.Due, old.FirstTry, old.Tried, old.Attempts, old.Crashes = o.Due, o.FirstTry, o.Tried, o.Attempts, o.Crashes
			set(u, s.outbox, o.ID, old)
		}
	}
	for _, id := range r.Delivered {
		remove(u, s.outbox, id)
	}
	for _, d := range r.Dead {
		set(u, s.dead, d.ID, d)
	}
	for _, id := range r.Undead {
		if _, ok := s.dead[id]; !ok {
			return neuron.ErrNoDeadLetter
		}
		remove(u, s.dead, id)
	}
	for _, x := range r.Started {
		set(u, s.executions, x.ID.WithAttempt(0), execution{x, r.Place})
	}
	for _, id := range r.Ended {
		remove(u, s.executions, id.WithAttempt(0))
	}
	for _, op := range r.Ops {
		if _, ok := op.(neuron.Shared); ok {
			continue // it ran before all records
		}
		if err := s.perform(u, op); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) writeTurn(u *undo, r *neuron.Record) error {
	t, n := r.Turn, s.keys[r.Key]
	if n == nil || n.id != r.Neuron {
		return fmt.Errorf("neuron %s has no row %d", r.Neuron, r.Key)
	}
	if t.IsStep() {
		return s.writeStep(u, r, n)
	}
	if _, ok := s.turns[t.DeliveryID]; ok {
		return neuron.ErrDuplicate
	}
	if t.Seq != n.InSeq+1 || t.OutFirst != n.OutSeq+1 {
		return fmt.Errorf("turn %d/%d does not follow %d/%d", t.Seq, t.OutFirst, n.InSeq, n.OutSeq)
	}
	var in neuron.Entry
	var out []neuron.Entry
	if err := json.Unmarshal(t.Incoming, &in); err != nil {
		return err
	}
	if len(t.Outgoing) > 0 {
		if err := json.Unmarshal(t.Outgoing, &out); err != nil {
			return err
		}
	}
	old := *n
	old.Tallies = neuron.Tallies{In: maps.Clone(n.Tallies.In), Out: maps.Clone(n.Tallies.Out)}
	u.add(func() { *n = old })
	set(u, s.turns, t.DeliveryID, n.Key)
	s.pos++
	t.Pos = s.pos
	n.in, n.out, n.ids = append(n.in, in), append(n.out, out...), append(n.ids, t.DeliveryID)
	count(&n.Tallies.In, in)
	count(&n.Tallies.Out, out...)
	n.InSeq, n.OutSeq = n.InSeq+1, n.OutSeq+uint64(len(out))
	n.SinceCheckpoint++
	if t.StateAlias != "" {
		n.StateAlias, n.State = t.StateAlias, bytes.Clone(t.State)
	}
	if c := r.Checkpoint; c != nil {
		n.SinceCheckpoint = 0
		if c.InSeq != n.InSeq || c.OutSeq != n.OutSeq || !maps.Equal(c.Tallies.In, n.Tallies.In) ||
			!maps.Equal(c.Tallies.Out, n.Tallies.Out) || c.StateAlias != n.StateAlias || !bytes.Equal(c.State, n.State) {
			return fmt.Errorf("checkpoint %+v is not what the turns made: %+v", c, n.Checkpoint)
		}
	}
	if gone := len(n.ids) - 2*s.limits.DedupeWindow; gone > 0 {
		remove(u, s.turns, n.ids[gone-1])
	}
	return nil
}

// writeStep adds to the outgoing feed only.
func (s *Store) writeStep(u *undo, r *neuron.Record, n *row) error {
	t := r.Turn
	if t.Seq != n.InSeq+1 || t.OutFirst != n.OutSeq+1 || len(t.Incoming) > 0 || len(t.Outgoing) == 0 || t.StateAlias != "" || r.Checkpoint != nil {
		return fmt.Errorf("step %d/%d of %d/%d is none", t.Seq, t.OutFirst, n.InSeq, n.OutSeq)
	}
	var out []neuron.Entry
	if err := json.Unmarshal(t.Outgoing, &out); err != nil {
		return err
	}
	old := *n
	old.Tallies = neuron.Tallies{In: maps.Clone(n.Tallies.In), Out: maps.Clone(n.Tallies.Out)}
	u.add(func() { *n = old })
	s.pos++
	t.Pos = s.pos
	n.out = append(n.out, out...)
	count(&n.Tallies.Out, out...)
	n.OutSeq += uint64(len(out))
	return nil
}

func count(m *map[string]uint64, entries ...neuron.Entry) {
	for _, e := range entries {
		if *m == nil {
			*m = map[string]uint64{}
		}
		(*m)[e.Alias]++
	}
}

func (s *Store) perform(u *undo, op neuron.Op) error {
	if n, ok := op.(neuron.Numbered); ok {
		name, key := n.Sequence()
		k := [2]string{name, key}
		set(u, s.numbers, k, s.numbers[k]+1)
		n.SetNumber(s.numbers[k])
	}
	var changed int
	if a, ok := op.(Applier); ok {
		changed = a.Apply(&s.table)
	} else {
		var err error
		if changed, err = s.exec(u, op.SQL(), op.Args()); err != nil {
			return fmt.Errorf("cannot write %T: %w", op, err)
		}
	}
	if g, ok := op.(neuron.Guarded); ok && changed != 1 {
		return g.Guard()
	}
	return nil
}

// Query runs the queries of the neuron room, and what tables can.
func (s *Store) Query(_ context.Context, sql string, args []any, fn func(scan func(dest ...any) error) error) error {
	if sql == neuron.SelectOutboxIDs || sql == neuron.SelectOutboxTo {
		return s.queryOutbox(sql, args, fn)
	}
	rows, err := s.find(sql, args)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := fn(func(dest ...any) error { return scan(row, dest) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) find(sql string, args []any) ([][]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sql != neuron.SelectContent {
		return s.query(sql, args)
	}
	id, err := ident.FromBytes(args[0].([]byte))
	if err != nil {
		return nil, err
	}
	b, ok := s.contents[id]
	if !ok {
		return nil, nil
	}
	return [][]any{{bytes.Clone(b)}}, nil
}

// Close does nothing: a later engine may use the store.
func (s *Store) Close() error { return nil }
