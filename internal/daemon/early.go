//go:build crash

package daemon

import (
	"context"
	"io/fs"
	"os"
	"time"

	"soma/internal/api"
	"soma/internal/crash"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/internal/pykernel"
	"soma/wire"
)

// What stands here lets things out before their commit, for the negative controls of the crash suite: it takes away the
// very order that the suite guards, and the suite has to notice.

// ahead is how long what was let out has to arrive before its commit begins.
const ahead = time.Second

// earlyStore shows the events and sends the frames of a group before it commits it.
type earlyStore struct {
	store
	d *daemon
}

func (d *daemon) neuronStore() neuron.Store {
	if crash.Off(crash.EarlyEvent) || crash.Off(crash.EarlyFrame) {
		return earlyStore{d.store, d}
	}
	return d.store
}

// migrations returns the ones of the folder SOMA_MIGRATIONS, by which the suite adds a later one; nil without it.
func (d *daemon) migrations() fs.FS {
	if dir := d.env("SOMA_MIGRATIONS"); dir != "" {
		return os.DirFS(dir)
	}
	return nil
}

// Commit gives the numbers that the store would give, lets out, and commits.
func (s earlyStore) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	next, out := map[string]uint64{}, false
	for _, r := range group {
		for _, op := range r.Ops {
			switch op := op.(type) {
			case *process.Event:
				if err := s.number(ctx, next, op, process.Sequences()[0].Last); err != nil {
					return err
				}
				if crash.Off(crash.EarlyEvent) {
					s.d.events.publish(op.Event)
					out = true
				}
			case *pykernel.AppendFrame:
				if err := s.number(ctx, next, op, pykernel.FrameSequenceLast); err != nil {
					return err
				}
				out = out || crash.Off(crash.EarlyFrame)
			}
		}
		if crash.Off(crash.EarlyFrame) {
			s.d.sup.Committed(r.Ops)
		}
	}
	if out {
		time.Sleep(ahead)
	}
	return s.store.Commit(ctx, fence, group)
}

func (s earlyStore) number(ctx context.Context, next map[string]uint64, op neuron.Numbered, last string) error {
	name, key := op.Sequence()
	if _, ok := next[name+key]; !ok {
		err := s.Query(ctx, last, []any{key}, func(scan func(...any) error) error {
			var n uint64
			err := scan(&n)
			next[name+key] = n
			return err
		})
		if err != nil {
			return err
		}
	}
	next[name+key]++
	op.SetNumber(next[name+key])
	return nil
}

// earlyAnswers answers an input before it is admitted.
type earlyAnswers struct {
	*process.Host
	d     *daemon
	tasks *lifecycle.Tasks
}

func (d *daemon) sessions() api.Sessions {
	if crash.Off(crash.EarlyAnswer) {
		return earlyAnswers{d.host, d, new(lifecycle.Tasks)}
	}
	return d.host
}

// Admit answers what it hopes for.
func (e earlyAnswers) Admit(ctx context.Context, session, clientID string, in wire.Input) (wire.InputState, error) {
	s, err := e.Session(ctx, session)
	if err != nil {
		return wire.InputState{}, err
	}
	err = e.tasks.Go(e.d.ctx, "late input", func(ctx context.Context) error {
		time.Sleep(ahead)
		_, err := e.Host.Admit(ctx, session, clientID, in)
		return err
	})
	return wire.InputState{
		Session: session, ClientID: clientID, PID: s.PID, Mode: wire.Steer, State: "admitted", Event: s.LastEvent, At: now(),
	}, err
}
