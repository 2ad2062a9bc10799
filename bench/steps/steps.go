// Package steps measures agent steps: the dispatch turn and the answer turn of an inference, both committed, for 64
// processes whose provider answers at once. It wires the real store, engine and process host.
//
// Each process works through one input in a loop of steps, as agents do: every answer but the last makes a call. The calls
// name a tool that does not exist, so that each is refused, with its rows, in the answer's turn, and no python kernel is
// measured.
package steps

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"soma/bench/measure"
	"soma/internal/agent/model"
	"soma/internal/agent/price"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/process"
	"soma/internal/store/sqlite"
	"soma/message"
	"soma/wire"
)

const (
	processes = 64
	// each is the steps of one process.
	each = 100
)

// Run returns the line agent_steps. dir must lie on a disk.
func Run(ctx context.Context, dir, fs string) (measure.Line, error) {
	w := &world{gate: make(chan struct{}), done: make(chan struct{})}
	s, err := sqlite.Open(ctx, filepath.Join(dir, "steps.db"), sqlite.Options{Sequences: process.Sequences()})
	if err != nil {
		return measure.Line{}, err
	}
	defer s.Close()
	defer lifecycle.Headroom()() // as a daemon has it
	log := slog.New(slog.DiscardHandler)
	host := process.New(process.Options{
		Owner: "me", Node: "bench", Reader: s, Models: w, Prices: price.Builtin(), Python: "/bin/true", MaxConcurrent: processes,
		Spool: dir, Live: func(string, string, any) {}, Now: time.Now, Log: log,
	})
	e, err := engine.New(engine.Options{
		Store: s, Kinds: host.Kinds(), Types: host.Aliases(), Adapters: map[string]neuron.Adapter{process.InferenceKind: host.Adapter()},
		Node: "bench", Log: log, Generation: s.Generation(),
		Committed: func(group []*neuron.Record) {
			for _, r := range group {
				for _, op := range r.Ops {
					host.Committed(op)
					if ev, ok := op.(*process.Event); ok && ev.Kind == wire.StepEnded {
						w.answered()
					}
				}
			}
		},
		Fatal: func(err error) { panic(err) },
	})
	if err != nil {
		return measure.Line{}, err
	}
	host.Bind(e)
	if err := host.Load(ctx); err != nil {
		return measure.Line{}, err
	}
	if err := e.Start(ctx); err != nil {
		return measure.Line{}, err
	}
	defer e.Stop(ctx)
	if err := host.Start(ctx); err != nil {
		return measure.Line{}, err
	}
	defer host.Stop(ctx)
	if err := fill(ctx, host, dir); err != nil {
		return measure.Line{}, err
	}
	began := time.Now()
	close(w.gate)
	select {
	case <-w.done:
	case <-ctx.Done():
		return measure.Line{}, context.Cause(ctx)
	}
	n := processes * each
	return measure.Line{Name: "agent_steps", Value: float64(n) / time.Since(began).Seconds(), Unit: "1/s", N: n, FS: fs}, nil
}

// fill opens the sessions and gives each its input; the first step of each process waits at the gate.
func fill(ctx context.Context, host *process.Host, dir string) error {
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			session := fmt.Sprint("s", p)
			if _, errs[p] = host.Open(ctx, session, wire.OpenSession{Workspace: dir, Model: "bench", Keep: true}); errs[p] != nil {
				return
			}
			_, errs[p] = host.Admit(ctx, session, "in", wire.Input{Text: "work"})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// world is the model of the bench, and counts what is committed.
type world struct {
	gate, done chan struct{}
	steps      atomic.Int64
}

func (w *world) answered() {
	if w.steps.Add(1) == processes*each {
		close(w.done)
	}
}

// Find makes it a process.Models.
func (w *world) Find(context.Context, string) (process.Model, error) {
	return process.Model{Vendor: "script", Model: "bench", Provider: w}, nil
}

// Stream makes it a model.Provider.
func (w *world) Stream(ctx context.Context, r model.Request) (model.Stream, error) {
	select {
	case <-w.gate:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &stream{calls: len(r.Messages) < 2*each-1}, nil // the input, then an answer and a result for each step before
}

type stream struct {
	calls bool
	n     int
}

// Next answers with one token, perhaps a call, and the end.
func (s *stream) Next(context.Context) (model.Event, error) {
	s.n++
	switch {
	case s.n == 1:
		return model.Event{Kind: model.Token, Text: "done"}, nil
	case s.n == 2 && s.calls:
		return model.Event{Kind: model.ToolCall, Call: &message.Call{ID: "call", Tool: "none", Arguments: []byte("{}")}}, nil
	case s.n <= 3:
		s.n = 3
		return model.Event{Kind: model.Done, End: &model.End{Usage: s.Usage(), Stop: model.StopEnd}}, nil
	}
	return model.Event{}, io.EOF
}

func (s *stream) Usage() message.Usage { return message.Usage{Input: 10, Output: 1} }

func (s *stream) Close() error { return nil }
