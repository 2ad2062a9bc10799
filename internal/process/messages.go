package process

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// Kinds of neurons.
const (
	SessionKind = "session"
	ProcessKind = "process"
)

// InferenceKind is the kind of the execution that asks a provider.
const InferenceKind = "inference"

// Refusal codes of this room.
const (
	codeEnded    neuron.Code = "process_ended"
	codeClosed   neuron.Code = "session_closed"
	codeConflict neuron.Code = "conflict"
	codeMissing  neuron.Code = "not_found"
	codeFull     neuron.Code = "inputs_full"
	codeKind     neuron.Code = "wrong_session_kind"
	codeGone     neuron.Code = "session_gone"
	codeInUse    neuron.Code = "session_in_use"
	codeUsed     neuron.Code = "session_used_since"
)

// open begins a session with its branch and first process.
type open struct {
	Session string           `json:"session"`
	PID     ident.PID        `json:"pid,omitempty"` // of the first process; 0 for a session of kind py
	Branch  ident.ID         `json:"branch"`
	Open    wire.OpenSession `json:"open"`
}

// admit brings an input to a process, or to the session, which forwards it.
type admit struct {
	Session  string `json:"session"`
	ClientID string `json:"client_id"`
	Text     string `json:"text,omitempty"`
	Mode     string `json:"mode"`
	// Spare is a pid that the session may give to a new process for it.
	Spare ident.PID `json:"spare,omitempty"`
	// Stored says that the session has written the row, with the text.
	Stored bool `json:"stored,omitempty"`
}

type closing struct {
	Session string `json:"session"`
}

// removing marks a session for removal, unless it is in use or was used after Before.
type removing struct {
	Session string    `json:"session"`
	Before  time.Time `json:"before,omitzero"`
}

type runCell struct {
	Cell      string `json:"cell"`
	Code      string `json:"code"`
	TimeoutMS int64  `json:"timeout_ms"`
	// BackgroundMS is after how many milliseconds it goes on in the background; 0: never.
	BackgroundMS int64 `json:"background_ms,omitempty"`
}

type stopCell struct {
	Cell string `json:"cell"`
}

type dispatch struct{}

type woke struct{}

type signal struct {
	Signal string `json:"signal"`
	Code   int    `json:"code,omitempty"`
	Cause  string `json:"cause,omitempty"`
}

// answer is the payload of an inference's outcome.
type answer struct {
	Step    int64           `json:"step"`
	Message message.Message `json:"message"`
	Usage   message.Usage   `json:"usage"`
	// Failure is set when there is no answer; Message is then empty.
	Failure   *failure  `json:"failure,omitempty"`
	Vendor    string    `json:"vendor"`
	Model     string    `json:"model"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
}

// failure says why there is no answer: Class is one of package model, or one of those below.
type failure struct {
	Class      string        `json:"class"`
	Words      string        `json:"words"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// Classes of failures that are not the provider's.
const (
	cancelled = "cancelled" // closed by an interrupt
	lost      = "lost"      // the daemon ended meanwhile, and what the attempt has used is an estimate
)

// inferenceInput is the input of the execution InferenceKind: where to find the context, never the context itself.
type inferenceInput struct {
	PID       ident.PID `json:"pid"`
	Session   string    `json:"session"`
	Branch    ident.ID  `json:"branch"`
	Through   uint64    `json:"through"` // the last message of the context
	Model     string    `json:"model"`
	Inference int64     `json:"inference"`
	Attempt   int       `json:"attempt"`
}

// Aliases by which the deliveries that begin or end work are told apart from outside.
const (
	AdmitAlias   = "agent.admit.v1"
	ForwardAlias = "session.admit.v1"
	AnswerAlias  = "agent.answer.v1"
	RunCellAlias = "session.run_cell.v1"
)

// The permanent aliases.
var (
	openType         = neuron.NewType[open]("session.open.v1")
	closeType        = neuron.NewType[closing]("session.close.v1")
	removeType       = neuron.NewType[removing]("session.remove.v1")
	forwardType      = neuron.NewType[admit](ForwardAlias)
	runCellType      = neuron.NewType[runCell](RunCellAlias)
	stopCellType     = neuron.NewType[stopCell]("session.stop_cell.v1")
	admitType        = neuron.NewType[admit](AdmitAlias)
	dispatchType     = neuron.NewType[dispatch]("agent.dispatch.v1")
	answerType       = neuron.NewType[neuron.Ended](AnswerAlias)
	signalType       = neuron.NewType[signal]("agent.signal.v1")
	wokeType         = neuron.NewType[woke]("agent.woke.v1")
	cellEndedType    = neuron.NewType[pykernel.CellEnded](pykernel.CellEndedAlias)
	backgroundedType = neuron.NewType[pykernel.CellBackgrounded](pykernel.CellBackgroundedAlias)
	jobEndedType     = neuron.NewType[pykernel.JobEnded](pykernel.JobEndedAlias)
	seenType         = neuron.NewType[pykernel.ResultsSeen](pykernel.SeenAlias)
	goneType         = neuron.NewType[pykernel.Gone](pykernel.GoneAlias)
	sessionType      = neuron.NewType[sessionState]("session.state.v1")
	processType      = neuron.NewType[processState]("process.state.v1")

	aliases = []string{
		openType.Alias(), closeType.Alias(), removeType.Alias(), forwardType.Alias(), runCellType.Alias(), stopCellType.Alias(),
		admitType.Alias(), dispatchType.Alias(), answerType.Alias(), signalType.Alias(), wokeType.Alias(),
		cellEndedType.Alias(), backgroundedType.Alias(), jobEndedType.Alias(), seenType.Alias(), goneType.Alias(),
	}
)
