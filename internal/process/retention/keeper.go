package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/wire"
)

// Neurons is what the room needs of the engine. Its methods block until the commit and are safe for concurrent use.
type Neurons interface {
	// Write commits ops without a turn.
	Write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error
	// Erase deletes rows of a neuron that is at rest, a bounded number a call; neuron.ErrBusy where it is not.
	Erase(ctx context.Context, id neuron.ID) (more bool, err error)
}

// Sessions is what the room needs of the host of processes.
type Sessions interface {
	// BeginRemoval marks a session for removal: its rows are then this room's to delete.
	BeginRemoval(ctx context.Context, session string, before time.Time) (marked bool, err error)
	// InUse says what of a session runs, "" if nothing does; Close and Signal end it.
	InUse(ctx context.Context, session string) (string, error)
	Close(ctx context.Context, session string) (wire.Session, error)
	Signal(ctx context.Context, pid uint64, clientID string, s wire.Signal) (wire.Process, error)
	// Scrub takes what is left of answers out of files that nobody waits for.
	Scrub() error
}

// Bounds say how much of what is stored stays. The zero value of a field means its default.
type Bounds struct {
	DeadLetters int           // in all: 10,000
	Events      int           // of a session: 50,000
	Inputs      int           // of a session, those that have ended: 10,000
	Kernels     int           // of a session, those that have ended: 100
	Sums        int           // removed sessions whose sums are kept one by one: 10,000
	Payloads    time.Duration // how long one stays at least, also if nothing names it: 1 h
	Strangers   time.Duration // how long a neuron of what never was stays: 1 h
}

// Options are what a keeper is made of; all fields are needed but where noted.
type Options struct {
	Owner    string
	Reader   neuron.Reader
	Neurons  Neurons
	Sessions Sessions
	// Holds says whether this node holds a place; nil: it holds all.
	Holds func(neuron.Place) bool
	// Keep removes sessions that have been at rest for so long; 0: none goes by itself.
	Keep time.Duration
	// RunDir holds the run directories of python kernels, by kernel; empty: there are none.
	RunDir string
	// OutputDir holds the files with long outputs of cells; empty: there are none.
	OutputDir string
	// Beside are further kinds of neurons whose key is the id of a session, and which go with it.
	Beside []string
	// Forget removes what else is in files of a session that was removed; nil: there is nothing.
	Forget func(session string) error
	// Sizes reads how much each table holds; nil: nobody knows.
	Sizes  func(ctx context.Context) ([]neuron.TableSize, error)
	Bounds Bounds
	// Every is the pause between two rounds of clearing; 0 means ten minutes, less that nothing is cleared but by Clear.
	Every time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Keeper keeps what is stored within its bounds. Its methods are safe for concurrent use.
type Keeper struct {
	o     Options
	tasks lifecycle.Tasks
	kick  chan struct{} // capacity 1: a session was marked

	mu       sync.Mutex
	removals map[string]*removal
	sizes    sizes

	clearing sync.Mutex      // one round at a time; guards what follows
	suspects map[string]bool // payloads that nothing named at the last look, by id
	looked   time.Time       // when sessions were last looked through
	walked   int64           // the key of the neuron up to which strangers were looked for
}

// New returns a keeper that does nothing by itself before Start.
func New(o Options) *Keeper {
	if o.Holds == nil {
		o.Holds = func(neuron.Place) bool { return true }
	}
	if o.Every == 0 {
		o.Every = 10 * time.Minute
	}
	b, d := &o.Bounds, Bounds{10_000, 50_000, 10_000, 100, 10_000, time.Hour, time.Hour}
	for _, f := range []struct{ have, or *int }{
		{&b.DeadLetters, &d.DeadLetters}, {&b.Events, &d.Events}, {&b.Inputs, &d.Inputs}, {&b.Kernels, &d.Kernels}, {&b.Sums, &d.Sums},
	} {
		if *f.have <= 0 {
			*f.have = *f.or
		}
	}
	for _, f := range []struct{ have, or *time.Duration }{{&b.Payloads, &d.Payloads}, {&b.Strangers, &d.Strangers}} {
		if *f.have <= 0 {
			*f.have = *f.or
		}
	}
	return &Keeper{o: o, kick: make(chan struct{}, 1), removals: map[string]*removal{}}
}

// startPause lets a daemon that has just begun do what people wait for first.
const startPause = 2 * time.Second

// Start goes on with the removals that were begun, and clears away from time to time. The engine must run; Stop ends it.
func (k *Keeper) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	return errors.Join(
		k.tasks.Go(ctx, "removals", k.removeLoop), k.tasks.Go(ctx, "old sessions", k.pruneLoop),
		k.tasks.Go(ctx, "retention", k.clearLoop), k.tasks.Go(ctx, "sizes", k.sizeLoop),
	)
}

// Stop ends what Start began and waits for it. What is half removed goes on at the next start.
func (k *Keeper) Stop(ctx context.Context) error { return k.tasks.Stop(ctx) }

// retryPause is the wait before a removal that failed is tried again.
const retryPause = 10 * time.Second

// removeLoop deletes what belongs to marked sessions.
func (k *Keeper) removeLoop(ctx context.Context) error {
	retry := time.NewTimer(0) // those of an earlier daemon
	defer retry.Stop()
	for {
		select {
		case <-k.kick:
		case <-retry.C:
		case <-ctx.Done():
			return nil
		}
		if err := k.removeMarked(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Warn("a removal has to wait", "error", err)
			retry.Reset(retryPause)
		}
	}
}

// pruneLoop has old sessions removed, where the person says when they are old.
func (k *Keeper) pruneLoop(ctx context.Context) error {
	if k.o.Keep <= 0 || k.o.Every < 0 {
		return nil
	}
	next := time.NewTicker(min(k.o.Every, max(k.o.Keep/8, time.Second)))
	defer next.Stop()
	for {
		if err := k.PruneOld(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Warn("cannot remove old sessions", "error", err)
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// clearLoop keeps everything within its bounds.
func (k *Keeper) clearLoop(ctx context.Context) error {
	every := k.o.Every
	if every < 0 {
		return nil
	}
	next := time.NewTimer(min(startPause, every))
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		if err := k.Clear(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Warn("cannot clear away all that is beyond its bounds", "error", err)
		}
		next.Reset(max(every, 20*time.Since(began))) // at most a twentieth of the time
	}
}

// mostPause bounds the pause after a commit.
const mostPause = 100 * time.Millisecond

// write commits ops and then leaves the committer alone for as long as that took, so that turns have half of it at least.
func (k *Keeper) write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error {
	if len(ops) == 0 {
		return nil
	}
	began := time.Now()
	if err := k.o.Neurons.Write(ctx, place, ops...); err != nil {
		return fmt.Errorf("cannot delete rows: %w", err)
	}
	return k.rest(ctx, began)
}

// rest waits as long as it took since began.
func (k *Keeper) rest(ctx context.Context, began time.Time) error {
	pause := time.NewTimer(min(time.Since(began), mostPause))
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// each reads rows.
func (k *Keeper) each(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	if err := k.o.Reader.Query(ctx, sql, args, row); err != nil {
		return fmt.Errorf("cannot read what is kept: %w", err)
	}
	return nil
}

// number reads one number.
func (k *Keeper) number(ctx context.Context, sql string, args ...any) (n int64, err error) {
	return n, k.each(ctx, sql, args, func(scan func(...any) error) error { return scan(&n) })
}
