package fault

import (
	"context"
	"sync"

	"soma/ident"
	"soma/internal/neuron"
)

// Method names one call of the store.
type Method string

// The methods that can fail.
const (
	Claim       Method = "claim"
	Commit      Method = "commit"
	Neuron      Method = "neuron"
	ReserveKeys Method = "reserve_keys"
	Settled     Method = "settled"
	Entries     Method = "entries"
	Outbox      Method = "outbox"
	OutboxRows  Method = "outbox_rows"
	Executions  Method = "executions"
	DeadLetters Method = "dead_letters"
	Query       Method = "query"
)

// Fault is what happens to one call.
type Fault struct {
	// Hold keeps the call back until the channel is closed or the call's context ends, which fails the call.
	Hold <-chan struct{}
	// Held is closed once the call has come to Hold; nil is allowed.
	Held chan<- struct{}
	// Before fails the call: the wrapped store does not hear of it.
	Before error
	// After takes the place of the answer of a call that was carried out, such as a timeout after a success.
	After error
}

// Store is the wrapped store. It is safe for concurrent use.
type Store struct {
	inner neuron.Store

	mu    sync.Mutex
	calls map[Method]int
	plan  map[Method]map[int]Fault
}

var _ neuron.Store = (*Store)(nil)

// Wrap returns a store that does what inner does until At plans otherwise. Closing it closes inner.
func Wrap(inner neuron.Store) *Store {
	return &Store{inner: inner, calls: map[Method]int{}, plan: map[Method]map[int]Fault{}}
}

// At plans the fault of the nth call of a method, counted from 1 since Wrap.
func (s *Store) At(m Method, nth int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan[m] == nil {
		s.plan[m] = map[int]Fault{}
	}
	s.plan[m][nth] = f
}

// Next plans the fault of the next call of a method.
func (s *Store) Next(m Method, f Fault) { s.At(m, s.Calls(m)+1, f) }

// Calls returns how often a method was called.
func (s *Store) Calls(m Method) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[m]
}

// meet counts a call and returns what After says, once what comes before it has passed.
func (s *Store) meet(ctx context.Context, m Method) (after error, err error) {
	s.mu.Lock()
	s.calls[m]++
	f := s.plan[m][s.calls[m]]
	s.mu.Unlock()
	if f.Held != nil {
		close(f.Held)
	}
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f.After, f.Before
}

// through makes one call under its fault.
func through[T any](ctx context.Context, s *Store, m Method, call func() (T, error)) (T, error) {
	var none T
	after, err := s.meet(ctx, m)
	if err != nil {
		return none, err
	}
	v, err := call()
	if err == nil && after != nil {
		return none, after
	}
	return v, err
}

// Claim implements neuron.Store.
func (s *Store) Claim(ctx context.Context, node string) (neuron.Fence, error) {
	return through(ctx, s, Claim, func() (neuron.Fence, error) { return s.inner.Claim(ctx, node) })
}

// Commit implements neuron.Store.
func (s *Store) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	_, err := through(ctx, s, Commit, func() (struct{}, error) { return struct{}{}, s.inner.Commit(ctx, fence, group) })
	return err
}

// Neuron implements neuron.Store.
func (s *Store) Neuron(ctx context.Context, id neuron.ID) (neuron.NeuronRow, error) {
	return through(ctx, s, Neuron, func() (neuron.NeuronRow, error) { return s.inner.Neuron(ctx, id) })
}

// ReserveKeys implements neuron.Store.
func (s *Store) ReserveKeys(ctx context.Context) (first, last int64, err error) {
	keys, err := through(ctx, s, ReserveKeys, func() ([2]int64, error) {
		first, last, err := s.inner.ReserveKeys(ctx)
		return [2]int64{first, last}, err
	})
	return keys[0], keys[1], err
}

// Settled implements neuron.Store.
func (s *Store) Settled(ctx context.Context, key int64, id ident.ID) (bool, error) {
	return through(ctx, s, Settled, func() (bool, error) { return s.inner.Settled(ctx, key, id) })
}

// Entries implements neuron.Store.
func (s *Store) Entries(ctx context.Context, id neuron.ID, feed neuron.Feed, after uint64, limit int) (neuron.Page, error) {
	return through(ctx, s, Entries, func() (neuron.Page, error) { return s.inner.Entries(ctx, id, feed, after, limit) })
}

// Outbox implements neuron.Store.
func (s *Store) Outbox(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.OutboxRow, error) {
	return through(ctx, s, Outbox, func() ([]neuron.OutboxRow, error) { return s.inner.Outbox(ctx, in, after, limit) })
}

// OutboxRows implements neuron.Store.
func (s *Store) OutboxRows(ctx context.Context, ids []ident.ID) ([]neuron.OutboxRow, error) {
	return through(ctx, s, OutboxRows, func() ([]neuron.OutboxRow, error) { return s.inner.OutboxRows(ctx, ids) })
}

// Executions implements neuron.Store.
func (s *Store) Executions(ctx context.Context, in neuron.PlaceSet, after ident.ID, limit int) ([]neuron.Execution, error) {
	return through(ctx, s, Executions, func() ([]neuron.Execution, error) { return s.inner.Executions(ctx, in, after, limit) })
}

// DeadLetters implements neuron.Store.
func (s *Store) DeadLetters(ctx context.Context, after ident.ID, limit int) ([]neuron.DeadLetter, error) {
	return through(ctx, s, DeadLetters, func() ([]neuron.DeadLetter, error) { return s.inner.DeadLetters(ctx, after, limit) })
}

// Query implements neuron.Store.
func (s *Store) Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error {
	_, err := through(ctx, s, Query, func() (struct{}, error) { return struct{}{}, s.inner.Query(ctx, sql, args, row) })
	return err
}

// Close closes the wrapped store.
func (s *Store) Close() error { return s.inner.Close() }
