package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"soma/internal/config"
	"soma/internal/neuron"
)

// A daemon that shares its store and has lost its places goes the way of a crash, in the same OS process: every part is made
// anew and takes from the store what it needs. Listeners, lock and token outlive that.

const (
	// againMin and againMax are the pauses before the store is opened again.
	againMin = 100 * time.Millisecond
	againMax = 5 * time.Second
	// A daemon that has lost its places maxLosses times within lossesWithin ends: two of one id would fence each other for ever.
	maxLosses    = 10
	lossesWithin = time.Minute
)

// lives are the lives of a daemon, one after the other.
type lives struct {
	home   config.Home
	config *config.Config
	o      Options
	lock   *config.Lock
	node   string
	token  *config.TokenChecker
	log    *slog.Logger
	doors  *doors
	losses []time.Time
}

// run lives until ctx ends or something happens that a new life does not mend.
func (l *lives) run(ctx context.Context) error {
	err := l.live(ctx, nil)
	for pause := againMin; ctx.Err() == nil && again(err); {
		now := time.Now()
		if l.losses = append(l.losses, now); len(l.losses) > maxLosses {
			l.losses = l.losses[1:]
			if now.Sub(l.losses[0]) < lossesWithin {
				return fmt.Errorf("cannot keep the places: they were lost %d times within %s; is a copy of this home in use? it needs another file %s: %w",
					maxLosses, lossesWithin, l.home.NodeFile(), err)
			}
		}
		l.log.Warn("the daemon begins anew", "why", err)
		end, aerr := l.doors.leaveOpen(ctx)
		if aerr != nil {
			return errors.Join(err, aerr, end())
		}
		for {
			began := time.Now()
			err = l.live(ctx, end)
			var closed *closedError
			if !errors.As(err, &closed) || ctx.Err() != nil {
				break
			}
			l.log.Warn("cannot open the store; it is tried again", "error", err, "in", pause)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			if pause = min(2*pause, againMax); time.Since(began) > lossesWithin {
				pause = againMin
			}
		}
		err = errors.Join(err, end())
		pause = againMin
	}
	if l.doors != nil {
		l.doors.close()
	}
	return err
}

// again reports whether a life that ended so is followed by another one.
func again(err error) bool {
	var lost *lostError
	return errors.As(err, &lost)
}

// lostError ends a life whose places are or may be another node's.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// closedError says that the shared store could not be opened and may be in a moment.
type closedError struct{ error }

func (e *closedError) Unwrap() error { return e.error }

// live makes the parts of one life and lets them run. away, if there was a life before, ends what answers meanwhile.
func (l *lives) live(outer context.Context, away func() error) (err error) {
	d := &daemon{
		home: l.home, config: l.config, o: l.o, log: l.log, lock: l.lock, node: l.node, token: l.token, doors: l.doors, began: time.Now(),
		claimed: make(chan struct{}), ctx: context.WithoutCancel(outer),
	}
	ctx, stop := context.WithCancelCause(d.ctx)
	d.stop = stop
	defer stop(nil)
	defer context.AfterFunc(outer, d.ask)()
	if d.doors == nil && d.config.Store != "" {
		// Its address goes into the node's row with the first beat.
		if d.doors, err = openDoors(d.home, d.config); err != nil {
			return err
		}
		l.doors = d.doors
	}
	if err := d.wire(ctx); err != nil {
		if d.config.Store != "" && away != nil && !final(err) {
			return &closedError{err}
		}
		return err
	}
	err = d.run(ctx, func() (err error) {
		if d.doors == nil {
			d.doors, err = openDoors(d.home, d.config)
			l.doors = d.doors
		}
		if away != nil {
			err = errors.Join(err, away())
		}
		return err
	})
	err = errors.Join(err, d.store.Close())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.anew() {
		return &lostError{err}
	}
	return err
}

// anew reports whether this life has ended because its places are or may be another node's, and for no other reason. The
// caller holds mu.
func (d *daemon) anew() bool {
	return d.shared != nil && errors.Is(d.fatal, neuron.ErrFenced) && !d.asked
}
