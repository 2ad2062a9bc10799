package wire

import "time"

// Bounds of lists and waits: a list route takes ?limit= from 1 to MaxLimit items, DefaultLimit where it is absent; an output
// page takes ?limit= bytes in the same way; ?wait= of a process is at most MaxWait.
const (
	DefaultLimit  = 100
	MaxLimit      = 1000
	DefaultOutput = 64 << 10
	MaxOutput     = 1 << 20
	MaxWait       = 60 * time.Second
)

// MaxID is the greatest length of an id that a client chooses: MaxID characters of [A-Za-z0-9._-] (see ValidID).
const MaxID = 128

// ValidID reports whether id may stand in a path as the id of a session, an input, a cell or a signal.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxID || id == "." || id == ".." {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// SessionFilter selects sessions, sorted by id. The zero value selects all, DefaultLimit of them.
type SessionFilter struct {
	Workspace string // "" for all
	Kind      string // "" for all
	After     string // ids greater than this
	Limit     int
}

// ProcessFilter selects processes, sorted by pid. The zero value selects those that have not ended, DefaultLimit of them.
type ProcessFilter struct {
	All       bool   // ended ones too
	Workspace string // "" for all
	Session   string // "" for all
	After     uint64 // pids greater than this
	Limit     int
}

// Model is one model that the daemon can run, by the name that --model takes.
type Model struct {
	Name    string `json:"name"`
	Type    string `json:"type"`               // script, openai
	Model   string `json:"model,omitempty"`    // the provider's own name
	BaseURL string `json:"base_url,omitempty"` // without credentials
	Default bool   `json:"default,omitempty"`
	Problem string `json:"problem,omitempty"` // why it cannot be used now
}

// Health answers GET /healthz.
type Health struct {
	OK bool `json:"ok"`
}
