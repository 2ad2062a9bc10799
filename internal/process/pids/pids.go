package pids

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"soma/ident"
	"soma/internal/neuron"
)

// blockSize is how many pids one commit reserves; what a stop leaves of a block is a gap (M-12).
const blockSize = 16

// tries bounds how often a block is asked for that another node was quicker to reserve.
const tries = 100

// Block gives out pids in memory from a block that is reserved by one commit. It is safe for concurrent use.
type Block struct {
	Reader neuron.Reader
	Write  func(ctx context.Context, place neuron.Place, ops ...neuron.Op) error

	mu        sync.Mutex
	next, end uint64 // the block is [next, end)
}

var errTaken = errors.New("another node has reserved these pids")

// saveNext moves the next pid on, if it is still what it was.
type saveNext struct{ was, next uint64 }

func (*saveNext) SQL() string {
	return `insert into meta (name, value) values ('next_pid', ?) on conflict (name) do update set value = excluded.value where meta.value = ?`
}

func (o *saveNext) Args() []any { return []any{fmt.Sprint(o.next), fmt.Sprint(o.was)} }

// Guard is the error where another node was quicker.
func (*saveNext) Guard() error { return errTaken }

// LockKey names the row, which all nodes change.
func (*saveNext) LockKey() string { return "meta/next_pid" }

var (
	_ neuron.Guarded = (*saveNext)(nil)
	_ neuron.Shared  = (*saveNext)(nil)
)

// Take returns a pid that was never given before. A block is reserved under a place that this node holds; the error is that of
// the write, wrapped.
func (b *Block) Take(ctx context.Context, place neuron.Place) (ident.PID, error) {
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

// Reserve sees to it that a block is there, under a place that this node holds.
func (b *Block) Reserve(ctx context.Context, place neuron.Place) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != b.end {
		return nil
	}
	return b.reserveLocked(ctx, place)
}

func (b *Block) reserveLocked(ctx context.Context, place neuron.Place) error {
	for try := 1; ; try++ {
		next := uint64(1)
		err := b.Reader.Query(ctx, `select cast(value as bigint) from meta where name = 'next_pid'`, nil,
			func(scan func(...any) error) error { return scan(&next) })
		if err == nil {
			err = b.Write(ctx, place, &saveNext{was: next, next: next + blockSize})
		}
		switch {
		case err == nil:
			b.next, b.end = next, next+blockSize
			return nil
		case !errors.Is(err, errTaken) || try == tries:
			return fmt.Errorf("cannot reserve pids: %w", err)
		}
	}
}
