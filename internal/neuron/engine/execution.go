package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// ongoing is an execution whose row exists.
type ongoing struct {
	attempt int
	place   neuron.Place
	cancel  context.CancelCauseFunc
}

// ErrCancelled is the cause of the context of an execution that was cancelled.
var ErrCancelled = errors.New("execution cancelled")

// errSuperseded ends the run of an attempt that a newer one replaced.
var errSuperseded = errors.New("execution superseded by a newer attempt")

// Cancel ends the context of a running execution; its outcome still comes. It reports whether the execution was there. Turns
// use Turn.CancelExecution.
func (e *Engine) Cancel(id ident.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.execs[id.WithAttempt(0)]
	if ok {
		x.cancel(ErrCancelled)
	}
	return ok
}

// perform runs a committed execution in a goroutine of its own; recovered asks its adapter about an earlier run instead.
func (e *Engine) perform(ctx context.Context, x neuron.Execution, recovered bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	if old := e.execs[x.ID]; old != nil {
		old.cancel(errSuperseded)
	}
	e.execs[x.ID] = &ongoing{x.Attempt, e.placeOf(x.Neuron), cancel}
	e.mu.Unlock()
	err := e.runs.Go(ctx, "execution "+x.Kind, func(task context.Context) error {
		defer cancel(nil)
		began := time.Now()
		ended := e.runAdapter(task, x, recovered)
		e.ran(&x, ended.Status, recovered, began)
		// Cancelling ends the run, not the way of its outcome. A stopping engine accepts none: the next start recovers.
		e.bring(context.WithoutCancel(task), x, ended)
		return nil
	})
	if err != nil {
		cancel(err)
	}
}

// conclude brings an outcome that needs no run.
func (e *Engine) conclude(ctx context.Context, x neuron.Execution, ended neuron.Ended) {
	e.mu.Lock()
	e.execs[x.ID] = &ongoing{x.Attempt, e.placeOf(x.Neuron), func(error) {}}
	e.mu.Unlock()
	// Go fails only when the engine stops; the next start concludes again.
	_ = e.runs.Go(ctx, "outcome of "+x.Kind, func(task context.Context) error {
		e.ran(&x, ended.Status, true, time.Now())
		e.bring(context.WithoutCancel(task), x, ended)
		return nil
	})
}

func (e *Engine) runAdapter(ctx context.Context, x neuron.Execution, recovered bool) (ended neuron.Ended) {
	ended = neuron.Ended{ID: x.ID, Attempt: x.Attempt, Status: neuron.Failed}
	adapter := e.adapters[x.Kind]
	if adapter == nil {
		ended.Error = fmt.Sprintf("no adapter for executions of kind %q", x.Kind)
		return ended
	}
	defer func() {
		if v := recover(); v != nil {
			e.log.Error("execution panicked", "neuron", x.Neuron, "kind", x.Kind, "execution", x.ID, "panic", v, "stack", string(debug.Stack()))
			ended = neuron.Ended{ID: x.ID, Attempt: x.Attempt, Status: neuron.Failed, Error: fmt.Sprintf("panic: %v", v)}
		}
	}()
	if x.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.Deadline)
		defer cancel()
	}
	var payload json.RawMessage
	var err error
	found := true
	if recovered {
		payload, found, err = adapter.Recover(ctx, x)
	} else {
		payload, err = adapter.Run(ctx, x)
	}
	switch {
	case err != nil:
		ended.Error = strings.ToValidUTF8(err.Error(), "\ufffd") // as its row has it
	case !found:
		ended.Status, ended.Error = neuron.Unknown, "a restart hid the outcome"
	case len(payload) > 0 && !json.Valid(payload):
		ended.Error = "the outcome is no JSON"
	default:
		ended.Status, ended.Payload = neuron.Done, payload
	}
	return ended
}

// bring delivers an outcome until it is accepted or the engine stops.
func (e *Engine) bring(ctx context.Context, x neuron.Execution, ended neuron.Ended) {
	payload := neuron.AppendEnded(make([]byte, 0, 128+len(ended.Payload)+len(ended.Error)), &ended)
	d := neuron.Delivery{
		ID: x.OutcomeID(), Alias: x.Then, Payload: payload, Caller: x.Neuron, Target: x.Neuron, Correlation: x.Correlation,
		Causation: x.Causation, Depth: x.Depth, At: e.now(),
	}
	for n := 1; ; n++ {
		err := e.take(ctx, &job{d: d, msg: ended})
		if err == nil || errors.Is(err, neuron.ErrStopped) || e.stops() {
			return
		}
		e.log.Error("cannot accept an outcome", "execution", x.ID, "neuron", x.Neuron, "error", err)
		pause := time.NewTimer(e.backoff(n))
		select {
		case <-pause.C:
		case <-e.ending:
			pause.Stop()
			return
		}
	}
}

// recover deals with an execution that the end of a daemon interrupted, by its policy (N-10). A crash, not a stop, counts
// against it.
func (e *Engine) recover(ctx context.Context, x neuron.Execution) {
	ended := neuron.Ended{ID: x.ID, Attempt: x.Attempt, Status: neuron.Unknown, Error: "a restart hid the outcome"}
	switch {
	case x.Policy == neuron.Attach && x.Crashes >= e.limits.Crashes:
		ended.Error = "crashed too often"
		e.conclude(ctx, x, ended)
	case x.Policy == neuron.Attach:
		e.perform(ctx, x, true)
	case x.Policy == neuron.Idempotent && x.Crashes >= e.limits.Crashes:
		ended.Status, ended.Error = neuron.Failed, "crashed too often"
		e.conclude(ctx, x, ended)
	case x.Policy == neuron.Idempotent:
		e.perform(ctx, x, false)
	default:
		e.conclude(ctx, x, ended)
	}
}
