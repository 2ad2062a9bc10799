package engine

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
)

// Observer is told what the engine does, for diagnosis: nothing that it does changes what the engine does next. Its methods
// are called by several goroutines of the engine, sometimes on the way of a commit: they must not block and not call the
// engine.
type Observer interface {
	// Attempted is told of each attempt at a delivery when it is over; one that is settled, after its commit.
	Attempted(Attempt)
	// Grouped is told of each commit.
	Grouped(Group)
	// Ran is told of each run of an execution, and of one that recovery ended without a run.
	Ran(Run)
}

// Attempt is one try at a delivery. It holds nothing of what the delivery says.
type Attempt struct {
	ID, Correlation, Causation ident.ID
	Kind, Alias                string
	Number                     int    // from 1
	Outcome                    string // AttemptCommitted and so on
	Code                       string // of a refusal
	Dead                       bool   // it left a dead letter
	Began                      time.Time
	Took                       time.Duration // until its record was committed, or it had failed
	// Lag is the time from when an outbox row was due until its attempt began; negative for a delivery without a row.
	Lag time.Duration
}

// The outcomes of an attempt.
const (
	AttemptCommitted = "committed" // handled, and its record committed
	AttemptRefused   = "refused"   // settled with a code
	AttemptRetried   = "retried"   // failed, and will be tried again
	AttemptFailed    = "failed"    // failed, and told to a caller who may repeat it
	AttemptDuplicate = "duplicate" // had been settled before
)

// Group is one commit.
type Group struct {
	Records int
	Took    time.Duration
	Failed  bool // nothing of it was applied
}

// Run is one run of an execution.
type Run struct {
	ID                     ident.ID // with the attempt
	Correlation, Causation ident.ID // Causation is the delivery whose turn started it
	Kind                   string
	Status                 string // a neuron.Status, or RunStopped
	Recovered              bool   // an adapter was asked about an earlier run
	Began                  time.Time
	Took                   time.Duration
}

// SystemAliases are those of the deliveries that the engine handles itself, whatever the kind of the target.
func SystemAliases() []string { return []string{endedAlias, call.LostAlias} }

// RunStopped is the status of a run that the end of the engine cut off: the next start recovers it.
const RunStopped = "stopped"

// attempted tells the observer of an attempt that is over.
func (e *Engine) attempted(j *job, outcome string, refusal *neuron.Refusal, dead bool) {
	if e.observer == nil {
		return
	}
	d := &j.d
	a := Attempt{
		ID: d.ID, Correlation: d.Correlation, Causation: d.Causation, Kind: d.Target.Kind, Alias: d.Alias, Number: j.attempts(),
		Outcome: outcome, Dead: dead, Began: j.began, Took: time.Since(j.began), Lag: -1,
	}
	if refusal != nil {
		a.Code = string(refusal.Code)
	}
	if j.row != nil {
		a.Lag = max(0, j.began.Sub(j.row.Due))
	}
	e.observer.Attempted(a)
}

// settledAttempts tells the observer of the turns of a committed group.
func (e *Engine) settledAttempts(group []*staged) {
	if e.observer == nil {
		return
	}
	for _, s := range group {
		switch {
		case s.a == nil:
		case s.refusal != nil:
			e.attempted(s.j, AttemptRefused, s.refusal, len(s.rec.Dead) > 0)
		default:
			e.attempted(s.j, AttemptCommitted, nil, false)
		}
	}
}

// ran tells the observer of the end of a run.
func (e *Engine) ran(x *neuron.Execution, status neuron.Status, recovered bool, began time.Time) {
	if e.observer == nil {
		return
	}
	r := Run{
		ID: x.OutcomeID(), Correlation: x.Correlation, Causation: x.Causation, Kind: x.Kind, Status: string(status),
		Recovered: recovered, Began: began, Took: time.Since(began),
	}
	if e.stops() {
		r.Status = RunStopped
	}
	e.observer.Ran(r)
}
