package wire

import (
	"encoding/json"
	"time"

	"soma/message"
)

// Process is one row of the process table.
type Process struct {
	PID       uint64 `json:"pid"`
	Session   string `json:"session"`
	Branch    string `json:"branch,omitempty"` // absent in events
	Parent    uint64 `json:"parent,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Model     string `json:"model"`
	Workspace string `json:"workspace"`
	State
	ExitCode  *int       `json:"exit_code,omitempty"` // once it has ended
	Steps     int64      `json:"steps"`
	Cells     int64      `json:"cells"`
	Tokens    int64      `json:"tokens"`
	Cost      *int64     `json:"cost_nano"` // own cost in nano-dollars; null when any part is unknown
	Estimated bool       `json:"cost_estimated,omitempty"`
	Inputs    int        `json:"inputs_waiting"`
	Node      string     `json:"node,omitempty"` // that holds its session, where daemons share the store
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// Ended reports whether the process has ended for good; ExitCode and EndedAt are set then.
func (p *Process) Ended() bool { return p.State.State == Terminated }

// States of a process.
const (
	Created    = "created"
	Ready      = "ready"
	Running    = "running"
	Blocked    = "blocked"
	Terminated = "terminated"
)

// State is where a process stands.
type State struct {
	State  string    `json:"state"`            // created, ready, running, blocked, terminated
	Reason string    `json:"reason,omitempty"` // why it is blocked, or how it ended
	Detail string    `json:"detail,omitempty"` // a provider's own words, a wake time
	Since  time.Time `json:"since"`
}

// Signals of PUT /v1/processes/{pid}/signals/{client id}.
const (
	Interrupt = "interrupt"
	Pause     = "pause"
	Resume    = "resume"
	Terminate = "terminate"
)

// Signal is the body of a signal request.
type Signal struct {
	Signal string `json:"signal"`
}

// Message is one entry of a transcript.
type Message struct {
	Seq     uint64          `json:"seq"`
	ID      string          `json:"id"`
	Attempt int             `json:"attempt,omitempty"`
	At      time.Time       `json:"at"`
	Message message.Message `json:"message"`
	// Cut says that an event shows the beginning of it only: GET /v1/processes/{pid}/messages has all of it.
	Cut bool `json:"cut,omitempty"`
	// Line is the message for people, where it was written for the model: what a wake is about.
	Line string `json:"line,omitempty"`
}

// LedgerRow is one provider attempt.
type LedgerRow struct {
	ID        string        `json:"id"` // sorts in order of the attempts; goes into ?after=
	PID       uint64        `json:"pid"`
	Provider  string        `json:"provider"`
	Model     string        `json:"model"`
	Step      int64         `json:"step"`
	Attempt   int           `json:"attempt"`
	Outcome   string        `json:"outcome"`
	Usage     message.Usage `json:"usage"`
	Cost      *int64        `json:"cost_nano"`
	StartedAt time.Time     `json:"started_at"`
	EndedAt   time.Time     `json:"ended_at"`
}

// List is the envelope of every list. Next, where set, goes into ?after= for the next page.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`
}

// Status answers GET /v1/status.
type Status struct {
	PID        int            `json:"pid"`
	Socket     string         `json:"socket"`
	Home       string         `json:"home"`
	Version    string         `json:"version"`
	Wire       int            `json:"wire"`
	Generation string         `json:"generation"`
	StartedAt  time.Time      `json:"started_at"`
	Store      StoreStatus    `json:"store"`
	Kernels    []Kernel       `json:"kernels"`
	Processes  map[string]int `json:"processes"` // per state, without ended ones
	Models     []string       `json:"models"`
	// ProviderEnv names the provider variables that the daemon found when it started.
	ProviderEnv []string `json:"provider_env"`
	// URL is where the daemon listens on TCP, empty for nowhere; Node, with Nodes, is set where daemons share the store.
	URL   string `json:"url,omitempty"`
	Node  string `json:"node,omitempty"`
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is one of the daemons that share a store.
type Node struct {
	ID     string `json:"id"`
	URL    string `json:"url,omitempty"`
	Places int    `json:"places"` // of 256, that it holds
	// Alive says that its last beat is younger than the lease; BeatMS is how old that is, null for one that has left.
	Alive  bool   `json:"alive"`
	BeatMS *int64 `json:"beat_ms"`
}

// StoreStatus tells the size of the store.
type StoreStatus struct {
	Engine string `json:"engine"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	WAL    int64  `json:"wal_bytes"`
	Free   int64  `json:"free_bytes"` // of bytes, that later rows use before the file grows
	// Groups say what takes how much, the largest first, as of SizedAt; both are missing until that was looked at.
	Groups  []SizeGroup `json:"groups,omitempty"`
	SizedAt *time.Time  `json:"sized_at,omitempty"`
	// Files are the bytes of the other files of the home: run, spool, logs.
	Files map[string]int64 `json:"files,omitempty"`
}

// Kernel is one python kernel.
type Kernel struct {
	ID        string    `json:"id"`
	Session   string    `json:"session"`
	Workspace string    `json:"workspace"`
	PID       int       `json:"pid,omitempty"`
	State     string    `json:"state"` // booting, attached, detached, ending
	Cells     int       `json:"cells"`
	Python    string    `json:"python"`
	UsedAt    time.Time `json:"used_at"`
	Node      string    `json:"node,omitempty"`
}

// Stop is the body of POST /v1/daemon/stop.
type Stop struct {
	Kernels bool `json:"kernels"` // end the python kernels too
}

// Stopped answers it: the daemon goes on to stop after the answer.
type Stopped struct {
	PID     int `json:"pid"`
	Kernels int `json:"kernels"` // ended with it
}

// MaxEvent bounds the body of an event in bytes: what does not fit is cut, and says so by Message.Cut, InputEvent.Cut or its
// true size.
const MaxEvent = 64 << 10

// Event is one row written by a turn, in the order of its session's commits.
type Event struct {
	Session string          `json:"session"`
	Seq     uint64          `json:"seq"`
	PID     uint64          `json:"pid,omitempty"`
	Kind    string          `json:"kind"`
	At      time.Time       `json:"at"`
	Body    json.RawMessage `json:"body"`
}

// Kinds of durable events; the struct named beside is the body.
const (
	SessionOpened  = "session.opened"  // Session
	SessionEnded   = "session.closed"  // Session
	ProcessSpawned = "process.spawned" // Process
	InputAdmitted  = "input.admitted"  // InputEvent
	InputEnded     = "input.ended"     // InputEvent
	StepStarted    = "step.started"    // StepStartedEvent
	StepEnded      = "step.ended"      // StepEndedEvent
	ToolResult     = "tool.result"     // ToolResultEvent
	CellStarted    = "cell.started"    // CellEvent, for cells without an agent
	CellBackground = "cell.background" // CellEvent, the same: it runs on in the background
	CellEnded      = "cell.ended"      // CellEvent, the same
	TurnEnded      = "turn.ended"      // TurnEndedEvent
	ProcessState   = "process.state"   // StateEvent
	ProcessExited  = "process.ended"   // StateEvent with the exit code
	NoteAdded      = "note"            // NoteEvent
	StepFailed     = "step.failed"     // StepFailedEvent
)

// Kinds of live events: no id, shown and never truth.
const (
	Delta          = "delta"        // DeltaEvent
	CellOutput     = "output"       // OutputEvent
	Reset          = "reset"        // ResetEvent
	DaemonStopping = "stopping"     // StoppingEvent
	StreamRefused  = "unauthorized" // Error: the last of a stream whose token is not valid any more
	StreamFailed   = "error"        // Error: the last of a stream that cannot go on
)

// InputEvent tells of an input.
type InputEvent struct {
	ClientID string `json:"client_id"`
	Mode     string `json:"mode"`
	State    string `json:"state"`
	Text     string `json:"text,omitempty"`
	Cut      bool   `json:"cut,omitempty"` // Text is the beginning only
	// Kind is wake for an input that work in the background has made, with Line as in Message; empty for what somebody said.
	Kind string `json:"kind,omitempty"`
	Line string `json:"line,omitempty"`
}

// InputWake is the kind of an input that a cell or job has made by its end.
const InputWake = "wake"

// StepStartedEvent: an inference begins. Messages are those that joined the branch at this boundary.
type StepStartedEvent struct {
	Step     int64     `json:"step"`
	Attempt  int       `json:"attempt"`
	Turn     bool      `json:"turn,omitempty"` // an agent turn begins with it
	Model    string    `json:"model"`
	Messages []Message `json:"messages,omitempty"`
	State    *State    `json:"state,omitempty"`
}

// StepEndedEvent: the answer is committed.
type StepEndedEvent struct {
	Step    int64         `json:"step"`
	Attempt int           `json:"attempt"`
	Message Message       `json:"message"`
	Usage   message.Usage `json:"usage"`
	Cost    *int64        `json:"cost_nano"`
	// Cells are the ids of the cells that the message's calls became, in call order, "" for a call that was refused.
	Cells []string `json:"cells,omitempty"`
	State *State   `json:"state,omitempty"`
}

// StepFailedEvent: an attempt failed or was superseded; what it showed is not part of the transcript.
type StepFailedEvent struct {
	Step    int64  `json:"step"`
	Attempt int    `json:"attempt"`
	Class   string `json:"class"`
	Error   string `json:"error"`
	Again   bool   `json:"again"` // another attempt follows
	State   *State `json:"state,omitempty"`
}

// ToolResultEvent: a tool call has ended.
type ToolResultEvent struct {
	Step       int64   `json:"step"`
	Position   int     `json:"position"`
	CallID     string  `json:"call_id"`
	Tool       string  `json:"tool"`
	Cell       string  `json:"cell,omitempty"`
	Status     string  `json:"status"`
	DurationMS int64   `json:"duration_ms"`
	Value      *string `json:"value,omitempty"`
	// Output is what the call wrote, head and tail; all of it is read by GET /v1/cells/{id}/output.
	Output     string `json:"output,omitempty"`
	Tail       string `json:"tail,omitempty"`
	OutputSize int64  `json:"output_size"`
	Error      string `json:"error,omitempty"`
	Note       string `json:"note,omitempty"`
	Shown
	State *State `json:"state,omitempty"`
}

// CellEvent tells of a cell without an agent.
type CellEvent struct {
	Cell Cell `json:"cell"`
	// Output and Tail are as in ToolResultEvent.
	Output string `json:"output,omitempty"`
	Tail   string `json:"tail,omitempty"`
}

// TurnEndedEvent closes an agent turn.
type TurnEndedEvent struct {
	Why    string `json:"why"`             // done, failed, inference limit, interrupted, terminated
	Words  string `json:"words,omitempty"` // the provider's own, where it failed
	Steps  int64  `json:"steps"`
	Cells  int64  `json:"cells"`
	Tokens int64  `json:"tokens"`
	Cost   *int64 `json:"cost_nano"`
	// Estimated says that Cost comes from counts that no provider has reported.
	Estimated bool   `json:"cost_estimated,omitempty"`
	State     *State `json:"state,omitempty"`
}

// StateEvent tells of a change of state that comes with nothing else.
type StateEvent struct {
	State    State `json:"state"`
	ExitCode *int  `json:"exit_code,omitempty"`
}

// NoteEvent is a line for the person.
type NoteEvent struct {
	Message Message `json:"message"`
	State   *State  `json:"state,omitempty"`
}

// DeltaEvent is live text of an attempt.
type DeltaEvent struct {
	PID       uint64 `json:"pid"`
	Step      int64  `json:"step"`
	Attempt   int    `json:"attempt"`
	Offset    int64  `json:"offset"` // bytes of the attempt's text before it
	Text      string `json:"text"`
	Reasoning bool   `json:"reasoning,omitempty"`
}

// OutputEvent is live output of a cell.
type OutputEvent struct {
	Cell   string `json:"cell"`
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
}

// ResetEvent says that the cursor cannot be followed: go on from Last; Session is a snapshot.
type ResetEvent struct {
	Generation string  `json:"generation"`
	First      uint64  `json:"first"`
	Last       uint64  `json:"last"`
	Session    Session `json:"session"`
}

// StoppingEvent is the last of a stream whose daemon was asked to stop; a stream that ends without it has lost its daemon.
type StoppingEvent struct{}

// Hint is what the daemon-wide stream tells: a session is at a sequence.
type Hint struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"`
}
