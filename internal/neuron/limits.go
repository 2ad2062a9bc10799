package neuron

import "time"

// Limits are the numbers of the runtime; DefaultLimits are those of the requirements.
type Limits struct {
	PayloadBytes   int           // largest payload in a row; larger ones are refused when sent, or travel by reference
	JournalEntries int           // entries a reader sees per feed
	JournalBytes   int           // payload bytes a reader sees per feed
	CheckpointTurn int           // turns of one neuron between two checkpoints
	DedupeWindow   int           // settled delivery ids that a neuron remembers
	AttemptTime    time.Duration // one attempt of a delivery
	Attempts       int           // attempts before a delivery ends as a dead letter
	Horizon        time.Duration // time since the first attempt, daemon down not counted, before it ends
	Crashes        int           // attempts that crashed the daemon before it ends
	Depth          int           // hops between neurons
	Receivers      int           // neurons that one emission goes to
	Waiting        int           // handlers that wait for answers at once; more are refused with ErrBusy
	BackoffMin     time.Duration // wait before the second attempt; doubles
	BackoffMax     time.Duration
	GroupRecords   int           // records in one commit
	GroupBytes     int           // bytes of rows in one commit
	Mailbox        int           // deliveries that wait for one neuron in memory; more are refused with ErrBusy
	Warm           int           // activations kept in memory
	IdleAfter      time.Duration // an activation without work is dropped after this
}

// DefaultLimits returns the defaults of N-14, N-18, N-19, N-20 and N-45 and of the store's design.
func DefaultLimits() Limits {
	return Limits{
		PayloadBytes: 64 << 10, JournalEntries: 512, JournalBytes: 512 << 10, CheckpointTurn: 64, DedupeWindow: 4096,
		AttemptTime: 45 * time.Second, Attempts: 1000, Horizon: 30 * time.Minute, Crashes: 3, Depth: 16, Receivers: 1000, Waiting: 256,
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Minute,
		GroupRecords: 256, GroupBytes: 1 << 20, Mailbox: 10_000, Warm: 10_000, IdleAfter: time.Minute,
	}
}
