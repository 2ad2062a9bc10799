package process

import (
	"context"
	"fmt"
	"sync"

	"soma/ident"
	"soma/internal/neuron"
)

// pidBlockSize is how many pids one commit reserves; what a stop leaves of a block is a gap (M-12).
const pidBlockSize = 16

// pidBlock gives out pids in memory from a block that is reserved by one commit.
type pidBlock struct {
	host *Host

	mu        sync.Mutex
	next, end uint64 // the block is [next, end)
}

type saveNextPID struct{ next uint64 }

func (*saveNextPID) SQL() string {
	return `insert into meta (name, value) values ('next_pid', ?) on conflict (name) do update set value = excluded.value`
}

func (o *saveNextPID) Args() []any { return []any{fmt.Sprint(o.next)} }

// take returns a pid that was never given before.
func (b *pidBlock) take(ctx context.Context) (ident.PID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == b.end {
		if err := b.reserveLocked(ctx); err != nil {
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
	return b.reserveLocked(ctx)
}

func (b *pidBlock) reserveLocked(ctx context.Context) error {
	next := max(b.end, 1)
	err := b.host.o.Reader.Query(ctx, `select cast(value as integer) from meta where name = 'next_pid'`, nil,
		func(scan func(...any) error) error { return scan(&next) })
	if err == nil {
		err = b.host.neurons.Write(ctx, neuron.PlaceOf(b.host.o.Node), &saveNextPID{next: next + pidBlockSize})
	}
	if err != nil {
		return fmt.Errorf("cannot reserve pids: %w", err)
	}
	b.next, b.end = next, next+pidBlockSize
	return nil
}
