package wire

import "time"

// Remove is the body of PUT /v1/sessions/{session}/removal.
type Remove struct {
	// Force first ends what runs in the session.
	Force bool `json:"force,omitempty"`
	// Before refuses a session in which something happened at this time or later.
	Before *time.Time `json:"before,omitempty"`
}

// States of a removal.
const (
	Removing  = "removing" // it goes on, whatever happens to the daemon
	Removed   = "removed"
	Stays     = "stays"     // of a prune: it is or was used meanwhile
	Elsewhere = "elsewhere" // of a prune: another node has to be asked
)

// Removal says how far the removal of a session is.
type Removal struct {
	Session string `json:"session"`
	State   string `json:"state"`
	// Rows is what was stored of it when this daemon began to delete, Done what it has deleted; both are 0 where another daemon
	// did it.
	Rows int64 `json:"rows"`
	Done int64 `json:"done"`
}

// Prune is the body of POST /v1/prune: sessions that are at rest and in which nothing has happened since Before.
type Prune struct {
	Before time.Time `json:"before"`
	DryRun bool      `json:"dry_run,omitempty"`
	After  string    `json:"after,omitempty"` // sessions with greater ids
	Limit  int       `json:"limit,omitempty"` // default 20, at most 100
}

// MaxPrune and DefaultPrune bound the sessions of one answer.
const (
	DefaultPrune = 20
	MaxPrune     = 100
)

// Pruned is one session of a prune.
type Pruned struct {
	Session   string    `json:"session"`
	Kind      string    `json:"kind"`
	Workspace string    `json:"workspace"`
	UsedAt    time.Time `json:"used_at"`
	State     string    `json:"state,omitempty"` // empty in a dry run
	// Rows is what is stored of it, in all and by table.
	Rows   int64            `json:"rows"`
	Tables map[string]int64 `json:"tables"`
}

// Spent is one line of what providers were asked and what it cost, sessions that were removed included.
type Spent struct {
	Provider   string `json:"provider"`
	Model      string `json:"model"`
	Attempts   int64  `json:"attempts"`
	Input      int64  `json:"input"`
	CacheRead  int64  `json:"cache_read"`
	CacheWrite int64  `json:"cache_write"`
	Output     int64  `json:"output"`
	Reasoning  int64  `json:"reasoning"`
	Cost       int64  `json:"cost"`      // nano-dollars, of the attempts whose cost is known
	Unknown    int64  `json:"unknown"`   // attempts whose cost is not
	Estimated  int64  `json:"estimated"` // attempts whose tokens are
	Removed    int64  `json:"removed"`   // attempts of removed sessions
}

// SizeGroup is how much of the store one kind of things takes.
type SizeGroup struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}
