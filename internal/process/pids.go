package process

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"soma/ident"
	"soma/internal/neuron"
)

// pidBlockSize is how many pids one commit reserves; what a stop leaves of a block is a gap (M-12).
const pidBlockSize = 16

// pidTries bounds how often a block is asked for that another node was quicker to reserve.
const pidTries = 100

// pidBlock gives out pids in memory from a block that is reserved by one commit.
type pidBlock struct {
	host *Host

	mu        sync.Mutex
	next, end uint64 // the block is [next, end)
}

var errPIDsTaken = errors.New("another node has reserved these pids")

// saveNextPID moves the next pid on, if it is still what it was.
type saveNextPID struct{ was, next uint64 }

func (*saveNextPID) SQL() string {
	return `insert into meta (name, value) values ('next_pid', ?) on conflict (name) do update set value = excluded.value where meta.value = ?`
}

func (o *saveNextPID) Args() []any { return []any{fmt.Sprint(o.next), fmt.Sprint(o.was)} }

// Guard is the error where another node was quicker.
func (*saveNextPID) Guard() error { return errPIDsTaken }

// LockKey names the row, which all nodes change.
func (*saveNextPID) LockKey() string { return "meta/next_pid" }

var (
	_ neuron.Guarded = (*saveNextPID)(nil)
	_ neuron.Shared  = (*saveNextPID)(nil)
)

// take returns a pid that was never given before. A block is reserved under a place that this node holds.
func (b *pidBlock) take(ctx context.Context, place neuron.Place) (ident.PID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == b.end {
		if err := b.reserveLocked(ctx, place); err != nil {
			return 0, err
		}
	}
	b.next++
	return ident.PID(b.next - 1), nil
}

func (b *pidBlock) reserve(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != b.end {
		return nil
	}
	return b.reserveLocked(ctx, neuron.PlaceOf(b.host.o.Node))
}

func (b *pidBlock) reserveLocked(ctx context.Context, place neuron.Place) error {
	for try := 1; ; try++ {
		next := uint64(1)
		err := b.host.o.Reader.Query(ctx, `select cast(value as bigint) from meta where name = 'next_pid'`, nil,
			func(scan func(...any) error) error { return scan(&next) })
		if err == nil {
			err = b.host.neurons.Write(ctx, place, &saveNextPID{was: next, next: next + pidBlockSize})
		}
		switch {
		case err == nil:
			b.next, b.end = next, next+pidBlockSize
			return nil
		case moved(err):
			return problem(err)
		case !errors.Is(err, errPIDsTaken) || try == pidTries:
			return fmt.Errorf("cannot reserve pids: %w", err)
		}
	}
}
