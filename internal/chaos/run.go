package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// bootTime bounds the first start of a daemon.
const bootTime = time.Minute

// Run does all of it and returns the verdict. When ctx ends, it ends the daemons in order all the same, and judges what had come to its end.
// The error says that it could not be tried; then there is no verdict.
func Run(ctx context.Context, o Options) (v Verdict, err error) {
	if o.Daemons < 1 || o.Daemons > 1 && o.Store == "" {
		return v, errors.New("several daemons need a PostgreSQL database that they share")
	}
	if o.For <= 0 && o.Kills <= 0 || o.Agents < 1 {
		return v, errors.New("how long, and how many agents?")
	}
	began := time.Now()
	t := &tally{}
	r := &run{o: o, t: t, random: rand.New(rand.NewPCG(o.Seed, o.Seed))}
	defer r.release()
	if err := r.startAll(ctx); err != nil {
		if ctx.Err() != nil { // nothing has run in it yet
			return Verdict{Interrupted: true, Seed: o.Seed, Daemons: o.Daemons}, nil
		}
		return v, err
	}
	script, err := writeScript(o.Dir)
	if err != nil {
		return v, err
	}
	working, enough := context.WithCancel(ctx)
	defer enough()
	var beside sync.WaitGroup // what goes on until the work is done
	quiet := make(chan struct{})
	beside.Go(func() { r.tell(began, working, quiet) })
	for _, d := range r.daemons {
		beside.Go(func() { r.mind(d, quiet) })
	}
	var work sync.WaitGroup
	for i := range o.Agents {
		work.Go(func() {
			w := &worker{daemons: r.daemons, t: t, script: script, at: i % len(r.daemons)}
			for n := 0; working.Err() == nil; n++ {
				// A session that was begun is followed to its end, also when the disturbances are over.
				w.work(ctx, filepath.Join(o.Dir, fmt.Sprintf("work-%d-%d", i, n)))
			}
		})
	}
	err = r.disturb(ctx)
	enough()
	work.Wait()
	r.watches.Wait()
	close(quiet)
	beside.Wait()
	if err != nil && ctx.Err() == nil {
		return v, err
	}
	v = t.verdict()
	v.Interrupted, v.Seed, v.Daemons = ctx.Err() != nil, o.Seed, o.Daemons
	if v.Left, err = r.stopAll(context.WithoutCancel(ctx)); err != nil {
		return v, err
	}
	v.Seconds = int64(time.Since(began).Seconds())
	v.Passed = !v.Interrupted && len(v.Lost)+len(v.Doubled)+len(v.Left) == 0 && v.Sessions > 0
	return v, nil
}

// run is one run.
type run struct {
	o       Options
	t       *tally
	random  *rand.Rand
	daemons []*Daemon
	watches sync.WaitGroup // how long daemons take to come back
}

func (r *run) startAll(ctx context.Context) error {
	own := []string{backgroundAfter}
	if r.o.Store != "" {
		own = append(own, "SOMA_STORE="+r.o.Store)
		if r.o.Lease > 0 {
			own = append(own, "SOMA_TEST_LEASE="+r.o.Lease.String())
		}
	}
	for i := range r.o.Daemons {
		name := "home"
		if r.o.Daemons > 1 {
			name = fmt.Sprintf("home%d", i+1)
		}
		d, err := start(r.o.Program, filepath.Join(r.o.Dir, name), settings{python: r.o.Python, environ: r.o.Environ, own: own, cut: !r.o.Gentle})
		if err != nil {
			return err
		}
		r.daemons = append(r.daemons, d)
		booting, cancel := context.WithTimeout(ctx, bootTime)
		_, exited := d.now()
		r.watches.Go(func() {
			select {
			case <-exited:
				cancel()
			case <-booting.Done():
			}
		})
		up := d.answers(booting, 0)
		cancel()
		if !up {
			return fmt.Errorf("the daemon does not start: see %s", d.log())
		}
	}
	return nil
}

// stopAll ends all daemons in order and returns what is left of them.
func (r *run) stopAll(ctx context.Context) (left []string, err error) {
	for _, d := range r.daemons {
		_, serr := d.Stop(ctx)
		err = errors.Join(err, serr)
	}
	if err == nil { // also jobs, which do not name a home
		left, err = processesOf(r.o.Dir)
	}
	return left, err
}

// release leaves nothing behind, whatever went wrong.
func (r *run) release() {
	for _, d := range r.daemons {
		d.Kill()
		d.close()
	}
}

// tell tells of the progress about once a second.
func (r *run) tell(began time.Time, working context.Context, quiet <-chan struct{}) {
	if r.o.Progress == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.o.Progress(r.t.progress(time.Since(began), working.Err() != nil))
		case <-quiet:
			return
		}
	}
}

// homeLocked is the exit code of a daemon that finds its home locked: a child that the killed one was about to start may hold
// the lock for a moment.
const homeLocked = 73

// mind starts a daemon again that has ended by itself, which it must not.
func (r *run) mind(d *Daemon, quiet <-chan struct{}) {
	for {
		life, exited := d.now()
		select {
		case <-exited:
		case <-quiet:
			return
		}
		how, alone, err := d.startedAgain(life)
		switch {
		case err != nil:
			r.t.lose("cannot start the daemon again: %v", err)
			return
		case alone && how.ExitCode() != homeLocked:
			r.t.lose("the daemon ended by itself (%v): see %s", how, d.log())
		}
		select {
		case <-time.After(lookGap):
		case <-quiet:
			return
		}
	}
}

// The gaps between two disturbances, and the lengths of pauses.
const (
	gapMin, gapMore     = 50 * time.Millisecond, 700 * time.Millisecond
	pauseMin, pauseMore = 50 * time.Millisecond, 2 * time.Second
)

func between(r *rand.Rand, least, more time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(more)))
}

// disturb kills, pauses and cuts until it is enough.
func (r *run) disturb(ctx context.Context) error {
	if r.o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.o.For)
		defer cancel()
	}
	for r.o.Kills == 0 || r.t.kills() < int64(r.o.Kills) {
		select {
		case <-time.After(between(r.random, gapMin, gapMore)):
		case <-ctx.Done():
			return nil
		}
		d := r.daemons[r.random.IntN(len(r.daemons))]
		kind := r.random.IntN(4)
		if !r.o.Gentle {
			kind = r.random.IntN(8)
		}
		var err error
		switch kind {
		case 0:
			if d.signalKernel(ctx, r.random, syscall.SIGKILL) != 0 {
				r.t.kernelKills.Add(1)
			}
		case 3:
			if r.o.Gentle {
				err = r.kill(ctx, d)
			} else {
				r.pauseKernel(ctx, d)
			}
		case 4, 5:
			r.t.cuts.Add(int64(d.relay.cut(r.random)))
		case 6:
			err = r.pause(ctx, d)
		default:
			err = r.kill(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kill kills a daemon, starts the next and notes when it answers.
func (r *run) kill(ctx context.Context, d *Daemon) error {
	at := time.Now()
	life, err := d.again()
	if err != nil {
		return err
	}
	r.t.daemonKills.Add(1)
	r.watches.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootTime)
		defer cancel()
		if d.answers(ctx, life) {
			r.t.recovered(time.Since(at))
		} else if d.life() == life {
			r.t.lose("a daemon that was started again does not answer within %s: see %s", bootTime, d.log())
		}
	})
	return nil
}

// pauseKernel stops a python kernel for a while.
func (r *run) pauseKernel(ctx context.Context, d *Daemon) {
	pid := d.signalKernel(ctx, r.random, syscall.SIGSTOP)
	if pid == 0 {
		return
	}
	r.t.pauses.Add(1)
	select {
	case <-time.After(between(r.random, pauseMin, pauseMore)):
	case <-ctx.Done():
	}
	_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
}

// pause stops a daemon for a while; where others share the store it may lose its places.
func (r *run) pause(ctx context.Context, d *Daemon) error {
	if err := d.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.t.pauses.Add(1)
	more := pauseMore
	if r.o.Daemons > 1 && r.o.Lease > 0 {
		more = 2 * r.o.Lease
	}
	select {
	case <-time.After(between(r.random, pauseMin, more)):
	case <-ctx.Done():
	}
	return d.signal(syscall.SIGCONT)
}
