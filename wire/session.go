package wire

import "time"

// Session kinds.
const (
	SessionRun = "run" // agents work in it
	SessionPy  = "py"  // cells without an agent
)

// OpenSession is the body of PUT /v1/sessions/{id}. Repeated with the same body it answers the same.
type OpenSession struct {
	Kind      string `json:"kind,omitempty"` // default run
	Workspace string `json:"workspace"`      // absolute, existing
	Model     string `json:"model,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Python    string `json:"python,omitempty"` // interpreter; default: config, then python3 on PATH
	// Keep leaves the process waiting for input when its inputs are worked through; else it ends with code 0.
	Keep bool `json:"keep,omitempty"`
}

// Session is a session and its newest process.
type Session struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Branch    string     `json:"branch,omitempty"` // the default one; absent in events
	Workspace string     `json:"workspace"`
	Model     string     `json:"model,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	Python    string     `json:"python,omitempty"`
	State     string     `json:"state"` // open, closed, removing
	PID       uint64     `json:"pid,omitempty"`
	LastEvent uint64     `json:"last_event"`
	Node      string     `json:"node,omitempty"` // that holds it, where daemons share the store
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"`
}

// Input modes.
const (
	Steer = "steer" // joins before the next provider call
	After = "after" // joins when the agent turn has ended
)

// Input is the body of PUT /v1/sessions/{session}/inputs/{client id}.
type Input struct {
	Text string `json:"text"`
	Mode string `json:"mode,omitempty"` // default steer
}

// InputState answers a PUT or GET of an input.
type InputState struct {
	Session  string `json:"session"`
	ClientID string `json:"client_id"`
	PID      uint64 `json:"pid"`
	Mode     string `json:"mode"`
	State    string `json:"state"` // admitted, delivered, cancelled, retired (a wake of which all was read before it came)
	// Event is the session's sequence just before the input was admitted: following after it shows all that the input does.
	Event uint64    `json:"event"`
	At    time.Time `json:"at"`
}

// RunCell is the body of PUT /v1/sessions/{session}/cells/{client id}, for sessions of kind py.
type RunCell struct {
	Code      string `json:"code"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // default and most: one hour
	// BackgroundMS is after how long it goes on in the background; default: never.
	BackgroundMS int64 `json:"background_ms,omitempty"`
}

// Cell is one piece of code and its outcome.
type Cell struct {
	ID         string     `json:"id"`
	Session    string     `json:"session"`
	PID        uint64     `json:"pid,omitempty"`
	Kernel     string     `json:"kernel"`
	Code       string     `json:"code"`
	State      string     `json:"state"`            // started, backgrounded (it runs on, and nobody waits for it), ended
	Status     string     `json:"status,omitempty"` // ok, error, interrupted, timed_out, unknown, not_started
	Value      *string    `json:"value,omitempty"`
	Error      *CellFault `json:"error,omitempty"`
	Note       string     `json:"note,omitempty"`
	OutputSize int64      `json:"output_size"`
	DurationMS int64      `json:"duration_ms"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Calls      []string   `json:"calls,omitempty"` // bindings that the code names, of a model's cell
	Shown
}

// Shown is what a cell has for people beside its output.
type Shown struct {
	Images      []CellImage `json:"images,omitempty"`
	ImageErrors []string    `json:"image_errors,omitempty"`
	// Repair says how to run the cell again after an edit, where it failed and is long.
	Repair string `json:"repair,omitempty"`
}

// CellImage is one image that a cell has shown; GET /v1/cells/{cell}/images/{n} has its bytes.
type CellImage struct {
	N     int    `json:"n"` // from 1
	Media string `json:"media"`
	Name  string `json:"name,omitempty"` // the file that it came from
	Size  int64  `json:"size"`           // bytes
}

// CellFault is the exception that ended a cell.
type CellFault struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// OutputPage is a part of a cell's output, cut on characters. Next is the offset to go on from; EOF says that nothing more
// will come.
type OutputPage struct {
	Cell   string `json:"cell"`
	Offset int64  `json:"offset"`
	Next   int64  `json:"next"`
	Size   int64  `json:"size"` // bytes written in all
	// Kept is false where the page lies in a part that was not kept (past the head, before the tail).
	Kept bool   `json:"kept"`
	EOF  bool   `json:"eof"`
	Text string `json:"text"`
}
