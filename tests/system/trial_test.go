//go:build crash

package system_test

import (
	"context"
	"fmt"
	"testing"

	"soma/internal/crash"
	"soma/wire"
)

// trial is one run of the scripted work in a new home. Its zero value is undisturbed.
type trial struct {
	point crash.Name
	at    int // the hit that kills
	fault crash.Fault
	works int // that run at once; 0 means 1
	// extra are the attempts that the death costs, by step; nil allows any.
	extra map[int]attempts
	// waits holds cell c until the daemon has died.
	waits bool
	// then is where the second daemon dies, at its first hit, if it comes by.
	then     crash.Name
	settings []string // of the config
	// Hooks, all optional: before the first daemon starts; for each live output and event of a work; after a death.
	prepare func(context.Context, *world) error
	output  func(*work, wire.OutputEvent) error
	event   func(context.Context, *work, wire.Event) error
	died    func(*work) error
}

func (tr trial) name() string {
	if tr.point == "" {
		return "undisturbed"
	}
	name := fmt.Sprintf("%s:%d", tr.point, tr.at)
	if tr.then != "" {
		name += fmt.Sprintf(" then %s:1", tr.then)
	}
	if tr.works > 1 {
		name += fmt.Sprintf(" with %d works", tr.works)
	}
	return name
}

// result is what a trial has shown.
type result struct {
	first  outcome // of the first work
	deaths int
	passed map[string]int
}

// run runs a trial to its end and makes all checks but the comparison with an undisturbed run. The error is the first
// check that failed.
func (tr trial) run(t *testing.T, bin string) (res result, err error) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), within, fmt.Errorf("%s: no end after %v", tr.name(), within))
	defer cancel()
	w := newWorld(t, bin, tr.settings...)
	for i := range max(tr.works, 1) {
		k, err := w.newWork(fmt.Sprintf("w%d", i), tr.waits)
		if err != nil {
			return res, err
		}
		k.output, k.event = tr.output, tr.event
	}
	if tr.then != "" {
		w.again = []string{fmt.Sprintf("SOMA_CRASH=%s:1", tr.then)}
	}
	w.died = func(context.Context) error {
		for _, k := range w.works {
			if tr.died != nil {
				if err := tr.died(k); err != nil {
					return err
				}
			}
			if err := k.open(); err != nil {
				return err
			}
		}
		return nil
	}
	if tr.prepare != nil {
		if err := tr.prepare(ctx, w); err != nil {
			return res, err
		}
	}
	var deadly []string
	if tr.point != "" {
		deadly = append(deadly, fmt.Sprintf("SOMA_CRASH=%s:%d", tr.point, tr.at))
	}
	if tr.fault != "" {
		deadly = append(deadly, "SOMA_FAULT="+string(tr.fault))
	}
	err = w.startDeadly(ctx, deadly...)
	if err == nil {
		err = each(w.works, func(k *work) error { return k.run(ctx) })
	}
	if err != nil {
		return res, err
	}
	outcomes := make([]outcome, len(w.works))
	for i, k := range w.works {
		err := w.keep(ctx, func() (err error) { outcomes[i], err = k.finish(ctx); return err })
		if err != nil {
			return res, err
		}
	}
	if err := w.stop(ctx); err != nil {
		return res, err
	}
	m, err := takeImage(w.home, w.dir)
	if err != nil {
		return res, err
	}
	defer m.close()
	if err := m.consistent(ctx); err != nil {
		return res, err
	}
	if err := m.settled(ctx); err != nil {
		return res, err
	}
	for i, k := range w.works {
		if err := k.check(ctx, m, outcomes[i], tr.extra); err != nil {
			return res, err
		}
		if outcomes[i].hash != outcomes[0].hash {
			return res, fmt.Errorf("works %s and %s have different transcripts", w.works[0].name, k.name)
		}
	}
	res.first, res.deaths = outcomes[0], w.deaths
	res.passed, err = w.passed()
	return res, err
}

// startDeadly starts the daemon that is to die; it may do so before it listens.
func (w *world) startDeadly(ctx context.Context, env ...string) error {
	err := w.start(ctx, env...)
	if err == nil || len(env) == 0 {
		return err
	}
	return w.revive(ctx, w.current())
}

// each runs fn for all works at once and returns the first error.
func each(works []*work, fn func(*work) error) error {
	errs := make(chan error, len(works))
	for _, k := range works {
		go func() { errs <- fn(k) }()
	}
	var first error
	for range works {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
