package observe

import (
	"time"

	"soma/ident"
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

// RunStopped is the status of a run that the end of the engine cut off: the next start recovers it.
const RunStopped = "stopped"
