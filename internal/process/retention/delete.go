package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/internal/pykernel"
)

// chunk is how many rows one commit deletes at most; half where each may have another one in content.
const chunk = 256

// deleter deletes the rows of one session, step by step.
type deleter struct {
	k  *Keeper
	t  *target
	rm *removal
}

// write commits deletions of n rows.
func (d *deleter) write(ctx context.Context, n int, ops ...neuron.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if err := d.k.write(ctx, d.t.place, ops...); err != nil {
		return err
	}
	d.k.mu.Lock()
	d.rm.done += int64(n)
	d.k.mu.Unlock()
	crash.Point(crash.RemoveMid)
	return nil
}

// through deletes rows of one key in the order of another: read returns their second key in order, drop deletes all through one.
func (d *deleter) through(ctx context.Context, read, drop string, key any) error {
	for {
		n := 0
		var last any
		err := d.k.each(ctx, read, []any{key, int64(chunk)}, func(scan func(...any) error) error { n++; return scan(&last) })
		if err != nil || n == 0 {
			return err
		}
		if err := d.write(ctx, n, do(drop, key, last)); err != nil || n < chunk {
			return err
		}
	}
}

// calls deletes the ledger, whose sums stay, and before each of its rows the tool calls of the answer that it paid for.
func (d *deleter) calls(ctx context.Context) error {
	for _, pid := range d.t.pids {
		for {
			ids, err := d.k.ledgerIDs(ctx, pid, ident.ID{}, chunk)
			if err != nil {
				return err
			}
			for _, id := range ids {
				calls, err := d.k.callsOf(ctx, id)
				if err != nil {
					return err
				}
				ops := make([]neuron.Op, len(calls))
				for i, c := range calls {
					ops[i] = do(dropCall, c)
				}
				if err := d.write(ctx, len(ops), ops...); err != nil {
					return err
				}
			}
			if len(ids) > 0 {
				if err := d.write(ctx, len(ids), moveLedger(d.t.session, pid, ids[len(ids)-1], d.k.o.Now())...); err != nil {
					return err
				}
			}
			if len(ids) < chunk {
				break
			}
		}
	}
	return nil
}

func (d *deleter) cells(ctx context.Context) error {
	for _, b := range d.t.branches {
		for n := chunk; n == chunk; {
			n = 0
			var ops []neuron.Op
			rows := 0
			err := d.k.each(ctx, `select id, content from cell where branch = ? order by started_at, id limit 128`, []any{b[:]},
				func(scan func(...any) error) error {
					var id string
					var content []byte
					if err := scan(&id, &content); err != nil {
						return err
					}
					n += 2
					rows++
					ops = append(ops, do(dropCell, id))
					// What was kept for an outcome that came too late is named by nothing.
					if key, err := ident.Parse(id); err == nil {
						output := ident.Derive(key, "output")
						ops = append(ops, do(dropContent, output[:]))
						if content != nil && ident.ID(content) == output {
							rows++
							return nil
						}
					}
					if content != nil {
						rows++
						ops = append(ops, do(dropContent, content))
					}
					return nil
				})
			if err == nil {
				err = d.write(ctx, rows, ops...)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deleter) messages(ctx context.Context) error {
	for _, b := range d.t.branches {
		for n := chunk; n == chunk; {
			n = 0
			rows := 0
			var last int64
			var contents []neuron.Op
			err := d.k.each(ctx, `select seq, content from message where branch = ? order by seq limit 128`, []any{b[:]},
				func(scan func(...any) error) error {
					var content []byte
					n += 2
					rows++
					err := scan(&last, &content)
					if content != nil {
						rows++
						contents = append(contents, do(dropContent, content))
					}
					return err
				})
			if err == nil && n > 0 {
				err = d.write(ctx, rows, append([]neuron.Op{do(dropMessages, b[:], last)}, contents...)...)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *deleter) inputs(ctx context.Context) error {
	return d.through(ctx, `select client_id from input where session = ? order by client_id limit ?`, dropInputs, d.t.session)
}

func (d *deleter) events(ctx context.Context) error {
	return d.through(ctx, `select seq from event where session = ? order by seq limit ?`, dropEvents, d.t.session)
}

func (d *deleter) pykernels(ctx context.Context) error {
	for _, id := range d.t.kernels {
		if err := d.k.dropPykernel(ctx, d.t.place, id); err != nil {
			return err
		}
		d.k.mu.Lock()
		d.rm.done++
		d.k.mu.Unlock()
	}
	return nil
}

// dropPykernel deletes what is stored of a python kernel that has ended.
func (k *Keeper) dropPykernel(ctx context.Context, place neuron.Place, id string) error {
	var ops []neuron.Op
	for _, c := range pykernel.ClearKernel(id) {
		ops = append(ops, c)
	}
	return k.write(ctx, place, append(ops, do(dropKernel, id))...)
}

func (d *deleter) processes(ctx context.Context) error {
	return d.through(ctx, `select pid from process where session = ? order by pid limit ?`, dropProcesses, d.t.session)
}

// busyWait and busyTries bound the wait for a neuron that is at work.
const (
	busyWait  = 50 * time.Millisecond
	busyTries = 100
)

// erase deletes what is stored of neurons. Their last deliveries may be under way.
func (d *deleter) erase(ctx context.Context, ids ...neuron.ID) error {
	for _, id := range ids {
		for tries, more := 0, true; more; {
			rows, err := d.k.neuronRows(ctx, id)
			if err != nil {
				return err
			}
			began := time.Now()
			more, err = d.k.o.Neurons.Erase(ctx, id)
			if errors.Is(err, neuron.ErrBusy) && tries < busyTries {
				tries++
				more, err = true, d.k.wait(ctx, busyWait)
			} else if err == nil {
				err = d.erased(ctx, id, rows, began)
			}
			if err != nil {
				return fmt.Errorf("cannot erase %s: %w", id, err)
			}
		}
	}
	return nil
}

func (d *deleter) erased(ctx context.Context, id neuron.ID, had int64, began time.Time) error {
	left, err := d.k.neuronRows(ctx, id)
	if err != nil {
		return err
	}
	d.k.mu.Lock()
	d.rm.done += had - left
	d.k.mu.Unlock()
	crash.Point(crash.RemoveMid)
	return d.k.rest(ctx, began)
}

func (k *Keeper) wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// last deletes what a session is found by.
func (d *deleter) last(ctx context.Context) error {
	var ops []neuron.Op
	for _, b := range d.t.branches {
		ops = append(ops, do(dropBranch, b[:]))
	}
	return d.write(ctx, len(ops)+1, append(ops, &process.DropSession{ID: d.t.session})...)
}
