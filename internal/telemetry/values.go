package telemetry

import (
	"time"

	"soma/ident"
)

// The outcomes of an attempt.
const (
	Committed = "committed" // handled, and its record committed
	Refused   = "refused"   // settled with a code
	Retried   = "retried"   // failed, and will be tried again
	Failed    = "failed"    // failed, and told to a caller who may repeat it
	Duplicate = "duplicate" // had been settled before
)

// Attempt is one try at a delivery. Its fields are those of observe.Attempt, so that one converts to the other.
type Attempt struct {
	ID, Correlation, Causation ident.ID
	Kind, Alias                string
	Number                     int    // from 1
	Outcome                    string // one of the constants
	Code                       string // of a refusal
	Dead                       bool   // it left a dead letter
	Began                      time.Time
	Took                       time.Duration // until its record was committed, or it had failed
	// Lag is the time from when an outbox row was due until its attempt began; negative for a delivery without a row.
	Lag time.Duration
}

// Group is one commit. Its fields are those of observe.Group.
type Group struct {
	Records int
	Took    time.Duration
	Failed  bool // nothing of it was applied
}

// Run is one run of an execution. Its fields are those of observe.Run.
type Run struct {
	ID                     ident.ID // with the attempt
	Correlation, Causation ident.ID // Causation is the delivery whose turn started it
	Kind                   string
	Status                 string // done, failed, unknown, or stopped by the end of the daemon
	Recovered              bool   // an adapter was asked about an earlier run
	Began                  time.Time
	Took                   time.Duration
}

// Bill is one attempt at an inference as the ledger has it.
type Bill struct {
	ID                                            ident.ID // of the execution, with the attempt
	Correlation, Causation                        ident.ID
	Provider, Model                               string
	Outcome                                       string
	Input, CacheRead, CacheWrite, Output, Thought int64  // tokens
	Cost                                          *int64 // nano-dollars, nil where nobody knows the price
	Began, Ended                                  time.Time
}

// Cell is one cell that has ended.
type Cell struct {
	ID                     string
	Correlation, Causation ident.ID
	Status                 string
	Ended                  time.Time
	Took                   time.Duration
}

// Request is one request to the API that was answered.
type Request struct {
	Route  string // method and pattern, "" for one outside of the table
	Status int
	Took   time.Duration
	Stream bool // Took is how long it was followed
}

// Sample is what is counted at the moment of a scrape. A negative number is not known and not shown.
type Sample struct {
	Warm, Mailbox, Running, Records int // activations; deliveries; handlers; records that wait for their commit
	Outbox, Alarms, Delivered       int // rows that wait for their turn; that wait for their time; that only wait for their removal
	Executions                      int
	PyKernels, Places               int // live python kernels; places that this node holds
	StoreBytes, WALBytes            int64
	FeedDrops                       uint64 // readers that were too slow, since the start
}

// Beat is one beat of the lease, with what it changed.
type Beat struct {
	OK                 bool
	Took               time.Duration
	Taken, Given, Lost int // places
}
