package retention

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
)

// chunk is how many rows one commit deletes at most; half where each may have another one in content.
const chunk = 256

// deleter deletes the rows of one session, step by step. What it has to delete it gathers until that makes a commit.
type deleter struct {
	k    *Keeper
	t    *target
	rm   *removal
	ops  []neuron.Op
	rows int
}

// add deletes n rows with this commit or a later one.
func (d *deleter) add(ctx context.Context, n int, ops ...neuron.Op) error {
	if d.rows > 0 && d.rows+n > chunk {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	d.ops, d.rows = append(d.ops, ops...), d.rows+n
	return nil
}

// flush commits what was gathered. Rows that were added before it are not there any more for who reads afterwards.
func (d *deleter) flush(ctx context.Context) error {
	if len(d.ops) == 0 {
		return nil
	}
	if err := d.k.write(ctx, d.t.place, d.ops...); err != nil {
		return err
	}
	d.did(d.rows)
	d.ops, d.rows = nil, 0
	crash.Point(crash.RemoveMid)
	return nil
}

func (d *deleter) did(rows int) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.rm.done += int64(rows)
}

// through deletes rows of one key in the order of another: read returns their second key in order, drop deletes all through one.
func (d *deleter) through(ctx context.Context, read, drop string, key any) error {
	for n := chunk; n == chunk; {
		n = 0
		var last any
		err := d.k.each(ctx, read, []any{key, int64(chunk)}, func(scan func(...any) error) error { n++; return scan(&last) })
		if err == nil && n > 0 {
			err = d.add(ctx, n, do(drop, key, last))
		}
		if err == nil && n == chunk {
			err = d.flush(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// calls deletes the ledger, whose sums stay, and before each of its rows the tool calls of the answer that it paid for.
func (d *deleter) calls(ctx context.Context) error {
	for _, pid := range d.t.pids {
		var after ident.ID
		for n := chunk; n == chunk; {
			ids, err := d.k.ledgerIDs(ctx, pid, after, chunk)
			if err != nil {
				return err
			}
			n = len(ids)
			for _, id := range ids {
				after = id
				calls, err := d.k.callsOf(ctx, id)
				if err != nil {
					return err
				}
				ops := make([]neuron.Op, len(calls), len(calls)+2)
				for i, c := range calls {
					ops[i] = do(dropCall, c)
				}
				if err := d.add(ctx, len(ops)+1, append(ops, moveLedger(d.t.session, pid, id, d.k.o.Now())...)...); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *deleter) cells(ctx context.Context) error {
	for _, b := range d.t.branches {
		for n := chunk / 2; n == chunk/2; {
			n = 0
			var ops []neuron.Op
			rows := 0
			err := d.k.each(ctx, `select id, content, body from cell where branch = ? order by started_at, id limit 128`, []any{b[:]},
				func(scan func(...any) error) error {
					var id string
					var content, body []byte
					if err := scan(&id, &content, &body); err != nil {
						return err
					}
					n++
					b := bodyOf(body)
					rows += 1 + len(b.Images)
					if err := d.k.dropSpill(b.Spill); err != nil {
						return err
					}
					ops = append(ops, do(dropCell, id))
					if content != nil {
						rows++
						ops = append(ops, do(dropContent, bytes.Clone(content)))
					}
					// What was kept for an outcome that came too late is named by nothing.
					if key, err := ident.Parse(id); err == nil {
						if output := ident.Derive(key, "output"); !bytes.Equal(output[:], content) {
							ops = append(ops, do(dropContent, output[:]))
						}
						ops = append(ops, do(dropImages, imagesOf(key)...))
					}
					return nil
				})
			if err == nil {
				err = d.add(ctx, rows, ops...)
			}
			if err == nil && n == chunk/2 {
				err = d.flush(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// bodyOf reads of the stored outcome of a cell what names other things that are kept.
func bodyOf(body []byte) (b cells.Body) {
	if bytes.Contains(body, []byte(`"images":[`)) || bytes.Contains(body, []byte(`"spill":{`)) {
		if err := json.Unmarshal(body, &b); err != nil {
			return cells.Body{} // no outcome of ours
		}
	}
	return b
}

// dropSpill removes the file with a cell's output. A python kernel names it: nothing outside of the folder of outputs is removed,
// also by links. One of another node is not here: it goes by its age.
func (k *Keeper) dropSpill(spill *pykernel.Spill) error {
	if spill == nil || k.o.OutputDir == "" || filepath.Dir(spill.Path) != k.o.OutputDir {
		return nil
	}
	root, err := os.OpenRoot(k.o.OutputDir)
	if err == nil {
		err = errors.Join(root.Remove(filepath.Base(spill.Path)), root.Close())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// imagesOf are the ids of the images that a cell can have shown.
func imagesOf(cell ident.ID) []any {
	ids := make([]any, pykernel.MaxImages)
	for i := range ids {
		id := pykernel.ImageID(cell, i)
		ids[i] = id[:]
	}
	return ids
}

func (d *deleter) traces(ctx context.Context) error {
	return d.through(ctx, `select cell from cell_trace where session = ? order by cell limit ?`, dropTraces, d.t.session)
}

func (d *deleter) shell(ctx context.Context) error {
	return d.through(ctx, `select id from shell_command where session = ? order by id limit ?`, dropShell, d.t.session)
}

func (d *deleter) messages(ctx context.Context) error {
	for _, b := range d.t.branches {
		for n := chunk / 2; n == chunk/2; {
			n = 0
			rows := 0
			var last int64
			var contents []neuron.Op
			err := d.k.each(ctx, `select seq, content from message where branch = ? order by seq limit 128`, []any{b[:]},
				func(scan func(...any) error) error {
					var content []byte
					n++
					rows++
					err := scan(&last, &content)
					if content != nil {
						rows++
						contents = append(contents, do(dropContent, bytes.Clone(content)))
					}
					return err
				})
			if err == nil && n > 0 {
				err = d.add(ctx, rows, append([]neuron.Op{do(dropMessages, b[:], last)}, contents...)...)
			}
			if err == nil && n == chunk/2 {
				err = d.flush(ctx)
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
		if err := d.through(ctx, `select id from job where kernel = ? order by id limit ?`, dropJobs, id); err != nil {
			return err
		}
		if err := d.add(ctx, 1, pykernelOps(id)...); err != nil {
			return err
		}
	}
	return nil
}

// pykernelOps deletes what is stored of a python kernel that has ended.
func pykernelOps(id string) []neuron.Op {
	var ops []neuron.Op
	for _, c := range pykernel.ClearKernel(id) {
		ops = append(ops, c)
	}
	return append(ops, do(`delete from job where kernel = ?`, id), do(dropKernel, id))
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
	if err := d.flush(ctx); err != nil {
		return err
	}
	for _, id := range ids {
		rows, err := d.k.neuronRows(ctx, id)
		for tries, more := 0, true; more && err == nil; {
			began := time.Now()
			more, err = d.k.o.Neurons.Erase(ctx, id)
			if errors.Is(err, neuron.ErrBusy) && tries < busyTries {
				tries++
				more, err = true, d.k.wait(ctx, busyWait)
			} else if err == nil {
				crash.Point(crash.RemoveMid)
				err = d.k.rest(ctx, began)
			}
		}
		if err != nil {
			return fmt.Errorf("cannot erase %s: %w", id, err)
		}
		d.did(int(rows))
	}
	return nil
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
	if err := d.add(ctx, len(ops)+1, append(ops, &process.DropSession{ID: d.t.session})...); err != nil {
		return err
	}
	return d.flush(ctx)
}
