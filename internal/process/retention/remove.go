package retention

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

// removal is what is known of a removal that this daemon has seen.
type removal struct {
	rows, done int64
	ended      chan struct{} // closed when nothing is left
}

const (
	// removeWait is how long Remove waits for the end; the removal goes on all the same.
	removeWait = 15 * time.Second
	// maxRemovals bounds the removals that are remembered.
	maxRemovals = 10_000
)

// Remove removes a session with all that is its own: its processes, messages, inputs, calls, cells with their outputs, events,
// python kernels, journals. What it has cost stays in the sums. It returns when nothing is left, or after a while with state
// removing: it then goes on by itself, also after a crash. Repeated it answers how far it is.
//
// Errors: *wire.Error with not_found, in_use (without force, or used at or after Before), busy.
func (k *Keeper) Remove(ctx context.Context, session string, r wire.Remove) (wire.Removal, error) {
	var before time.Time
	if r.Before != nil {
		before = *r.Before
	}
	wait, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	if r.Force && r.Before == nil {
		if err := k.end(wait, session); err != nil {
			return wire.Removal{}, err
		}
	}
	marked, err := k.o.Sessions.BeginRemoval(wait, session, before)
	if err != nil {
		return wire.Removal{}, err
	}
	if marked {
		crash.Point(crash.RemoveMarked)
	}
	rm := k.removalOf(session)
	k.wake()
	left, err := k.marked(ctx, session)
	if err != nil {
		return wire.Removal{}, err
	}
	if left {
		select {
		case <-rm.ended:
		case <-wait.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return wire.Removal{}, err
	}
	return k.Removal(ctx, session)
}

// wake has marked sessions looked at.
func (k *Keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Removal tells how far the removal of a session is. The error is a *wire.Error with not_found where none was begun.
func (k *Keeper) Removal(ctx context.Context, session string) (wire.Removal, error) {
	out := wire.Removal{Session: session, State: wire.Removing}
	left, err := k.marked(ctx, session)
	if err != nil {
		return out, err
	}
	if !left {
		known, err := k.number(ctx, `select count(*) from ledger_sum where session = ?`, session)
		if err != nil {
			return out, err
		}
		there, err := k.number(ctx, `select count(*) from session where id = ?`, session)
		if err != nil {
			return out, err
		}
		if known == 0 || there > 0 {
			return out, wire.Errorf(wire.NotFound, "session %s is not being removed", session)
		}
		out.State = wire.Removed
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if rm := k.removals[session]; rm != nil {
		out.Rows, out.Done = rm.rows, rm.done
	}
	return out, nil
}

func (k *Keeper) marked(ctx context.Context, session string) (bool, error) {
	n, err := k.number(ctx, `select count(*) from session where id = ? and state = 'removing'`, session)
	return n > 0, err
}

// removalOf returns what is known of a removal. Where too much is, what has ended is forgotten.
func (k *Keeper) removalOf(session string) *removal {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.removals) >= maxRemovals {
		for id, rm := range k.removals {
			select {
			case <-rm.ended:
				delete(k.removals, id)
			default:
			}
		}
	}
	if k.removals[session] == nil {
		k.removals[session] = &removal{ended: make(chan struct{})}
	}
	return k.removals[session]
}

// removeMarked deletes what belongs to the marked sessions of this node. One that cannot go now stops no other.
func (k *Keeper) removeMarked(ctx context.Context) error {
	var errs []error
	for after := ""; ; {
		var page []target
		err := k.each(ctx, `select id, place, branch from session where state = 'removing' and id > ? order by id limit 256`, []any{after},
			func(scan func(...any) error) error {
				t, err := scanTarget(scan)
				page, after = append(page, t), t.session
				return err
			})
		if err != nil {
			return err
		}
		errs = append(errs, k.atOnce(ctx, page, func(t *target) error {
			if err := k.remove(ctx, t); err != nil {
				return fmt.Errorf("session %s: %w", t.session, err)
			}
			return nil
		}))
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(page) < 256 {
			return errors.Join(errs...)
		}
	}
}

// together is how many sessions are removed at once: each mostly waits for its commits, which fall together.
const together = 4

// atOnce runs fn for the targets that this node holds, some at a time.
func (k *Keeper) atOnce(ctx context.Context, targets []target, fn func(*target) error) error {
	var wg sync.WaitGroup
	turns := make(chan struct{}, together)
	errs := make([]error, len(targets))
	for i := range targets {
		if !k.o.Holds(targets[i].place) {
			continue
		}
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			errs[i] = fn(&targets[i])
			<-turns
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// target is a session whose rows are counted or deleted.
type target struct {
	session  string
	place    neuron.Place
	branches []ident.ID
	pids     []int64
	kernels  []string
}

func scanTarget(scan func(...any) error) (t target, err error) {
	var branch []byte
	if err := scan(&t.session, &t.place, &branch); err != nil {
		return t, err
	}
	id, err := ident.FromBytes(branch)
	t.branches = []ident.ID{id}
	return t, err
}

// find reads what else names the rows of a session.
func (k *Keeper) find(ctx context.Context, t *target) error {
	err := k.each(ctx, `select id from branch where session = ? order by id`, []any{t.session}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		id, err := ident.FromBytes(b)
		if !slices.Contains(t.branches, id) {
			t.branches = append(t.branches, id)
		}
		return err
	})
	if err == nil {
		err = k.each(ctx, `select pid from process where session = ? order by pid`, []any{t.session}, func(scan func(...any) error) error {
			var pid int64
			err := scan(&pid)
			t.pids = append(t.pids, pid)
			return err
		})
	}
	for _, b := range t.branches {
		if err != nil {
			break
		}
		err = k.each(ctx, `select id from kernel where branch = ? order by id`, []any{b[:]}, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			t.kernels = append(t.kernels, id)
			return err
		})
	}
	return err
}

// neurons returns the neurons of a session, its own the last.
func (k *Keeper) neurons(t *target) []neuron.ID {
	var ids []neuron.ID
	for _, pid := range t.pids {
		ids = append(ids, neuron.ID{Owner: k.o.Owner, Kind: process.ProcessKind, Key: strconv.FormatInt(pid, 10)})
	}
	for _, kind := range k.o.Beside {
		ids = append(ids, neuron.ID{Owner: k.o.Owner, Kind: kind, Key: t.session})
	}
	return append(ids, neuron.ID{Owner: k.o.Owner, Kind: process.SessionKind, Key: t.session})
}

// remove deletes everything of a marked session, its own row the last. It may be begun again at any time.
func (k *Keeper) remove(ctx context.Context, t *target) error {
	rm := k.removalOf(t.session)
	if err := k.find(ctx, t); err != nil {
		return err
	}
	tables, err := k.count(ctx, t)
	if err != nil {
		return err
	}
	k.mu.Lock()
	rm.rows = rm.done + sum(tables) // an attempt may have been given up
	k.mu.Unlock()
	d := &deleter{k: k, t: t, rm: rm}
	for _, step := range []func(context.Context) error{
		d.calls, d.payloads, d.cells, d.traces, d.shell, d.messages, d.inputs, d.events, d.pykernels,
		func(ctx context.Context) error { return d.erase(ctx, k.neurons(t)...) }, d.processes, d.last,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(k.o.Sessions.Scrub(), k.removeFiles(t)); err != nil {
		k.o.Log.Warn("cannot remove all files of a session", "session", t.session, "error", err)
	}
	k.o.Log.Debug("a session was removed", "session", t.session, "rows", rm.done)
	close(rm.ended)
	return nil
}

// removeFiles removes what python kernels of the session have left in their run directories, and what else is its own.
func (k *Keeper) removeFiles(t *target) error {
	var errs []error
	if k.o.Forget != nil {
		errs = append(errs, k.o.Forget(t.session))
	}
	if k.o.RunDir == "" {
		return errors.Join(errs...)
	}
	for _, id := range t.kernels {
		if _, err := ident.Parse(id); err == nil {
			errs = append(errs, os.RemoveAll(filepath.Join(k.o.RunDir, id)))
		}
	}
	return errors.Join(errs...)
}
