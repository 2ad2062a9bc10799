package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/internal/crash"
	"soma/internal/store/postgres"
	"soma/internal/store/schema"
	"soma/internal/store/transfer"
)

// Options are what all work here is told.
type Options struct {
	// Progress is called now and then from the goroutine that copies; nil for nobody.
	Progress func(transfer.Progress)
	Now      func() time.Time
}

// Result tells what was copied.
type Result struct {
	From string `json:"from"`
	To   string `json:"to"`
	transfer.Report
	transfer.Facts
	Took time.Duration `json:"took_ns"`
}

// NotEmptyError reports a target that holds something already.
type NotEmptyError struct{ Place Place }

func (e *NotEmptyError) Error() string { return e.Place.String() + " holds a store already" }

// Copy copies a store into an empty one. No daemon uses either: it takes the locks of homes, and looks for lives of nodes in
// databases. The target is a store of its own then: new generation, and the python kernels that live stay with the old one.
// Errors: *config.LockedError, *postgres.AliveError, *schema.SealedError, *NotEmptyError, those of transfer.Copy.
func Copy(ctx context.Context, from, to Place, o Options) (r Result, err error) {
	if from == to {
		return r, errors.New("cannot copy a store into itself")
	}
	began := o.Now()
	release, err := from.hold(false)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, release()) }()
	free, err := to.hold(true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, free()) }()
	src, err := from.read(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if seal, err := src.Seal(ctx); err != nil {
		return r, err
	} else if seal != nil {
		return r, fmt.Errorf("cannot copy %s: %w", from, &schema.SealedError{Seal: *seal})
	}
	idle, err := quiet(ctx, from, src)
	if err != nil {
		return r, err
	}
	if r, err = into(ctx, src, from, to, crash.CopyMid, "its store was copied", idle, o); err != nil {
		return r, err
	}
	r.Took = o.Now().Sub(began)
	if to.Home == "" {
		return r, nil
	}
	return r, forget(ctx, to.Home) // of a store that was there before
}

// quiet makes sure that no node uses a database, and returns the check that none has meanwhile.
func quiet(ctx context.Context, from Place, src source) (func(context.Context) error, error) {
	s, ok := src.(*postgres.Snapshot)
	if !ok { // the lock of the home does it
		return func(context.Context) error { return nil }, nil
	}
	if id, err := s.Alive(ctx); err != nil {
		return nil, err
	} else if id != "" {
		return nil, fmt.Errorf("cannot copy %s: %w", from, &postgres.AliveError{Node: id})
	}
	before, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		now, err := postgres.OpenSnapshot(ctx, from.Database.Reveal())
		if err != nil {
			return err
		}
		defer now.Close()
		after, err := now.Nodes(ctx)
		if err == nil && after != before {
			err = fmt.Errorf("a daemon has used %s meanwhile: stop it, and copy again", from)
		}
		return err
	}, nil
}

// into copies an opened store into a place that was made ready, and makes it a store of its own.
func into(ctx context.Context, src source, from, to Place, mid crash.Name, reason string, idle func(context.Context) error, o Options) (r Result, err error) {
	r.From, r.To = from.String(), to.String()
	if r.Facts, err = transfer.Look(ctx, src); err != nil {
		return r, err
	}
	generation, err := src.Generation(ctx)
	if err != nil {
		return r, err
	}
	dst, err := to.fill(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	seal := schema.Seal{Kind: schema.Copying, From: from.String(), At: o.Now().UTC(), Generation: generation}
	r.Report, err = transfer.Copy(ctx, src, dst, transfer.Options{Seal: seal, Mid: mid, Progress: o.Progress})
	if errors.Is(err, transfer.ErrNotEmpty) {
		return r, &NotEmptyError{to}
	}
	if err == nil {
		err = idle(ctx)
	}
	if err != nil {
		return r, fmt.Errorf("cannot copy to %s: %w", to, err)
	}
	if err := dst.Finish(ctx, transfer.Finish{Reason: reason, Epoch: r.Epoch}); err != nil {
		return r, fmt.Errorf("cannot copy to %s: %w", to, err)
	}
	return r, nil
}
