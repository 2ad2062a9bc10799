package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Group runs actors until the first of them returns, then interrupts the others and waits for all. The zero value with a
// Grace is ready for use; a Group runs once and belongs to one goroutine.
type Group struct {
	// Grace is how long the actors have to return after the interrupt; zero means 10 s.
	Grace  time.Duration
	actors []actor
}

type actor struct {
	name string
	run  func(context.Context) error
}

// Add adds an actor before Run. Its run function works until its context is done and then returns soon; returning earlier,
// with or without an error, ends the whole group.
func (g *Group) Add(name string, run func(ctx context.Context) error) {
	g.actors = append(g.actors, actor{name, run})
}

// Run starts all actors in the order of Add and blocks until all have returned, or until Grace has passed after the
// interrupt. The interrupt is the return of the first actor or the end of ctx. Errors carry their actor's name and are
// joined in order of return; cancellation after the interrupt is not an error. What did not stop is a [*StopError] and
// its goroutine is left behind: the program should end.
func (g *Group) Run(ctx context.Context) error {
	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	type end struct {
		actor int
		err   error
	}
	ends := make(chan end, len(g.actors))
	running := map[int]bool{}
	for i, a := range g.actors {
		running[i] = true
		go guard(ctx, a.run, func(err error) { ends <- end{i, err} })
	}

	var errs []error
	take := func(e end) {
		delete(running, e.actor)
		if e.err != nil && !stopping(ctx, e.err) {
			errs = append(errs, fmt.Errorf("%s: %w", g.actors[e.actor].name, e.err))
		}
	}
	if len(running) > 0 {
		select {
		case e := <-ends:
			take(e)
		case <-ctx.Done():
		}
	}
	interrupt()

	grace := g.Grace
	if grace == 0 {
		grace = 10 * time.Second
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	for len(running) > 0 {
		select {
		case e := <-ends:
			take(e)
			continue
		case <-deadline.C:
		}
		late := &StopError{After: grace}
		for i, a := range g.actors {
			if running[i] {
				late.Names = append(late.Names, a.name)
			}
		}
		errs = append(errs, late)
		break
	}
	return errors.Join(errs...)
}
