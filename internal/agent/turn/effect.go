package turn

// Effect is something that the host does, in the order given, together with storing the state. The types below are all
// there are.
type Effect interface{ effect() }

// WantSlot: the process is runnable, queue it. DropSlot: give its slot back, or take it out of the queue.
type (
	WantSlot struct{}
	DropSlot struct{}
)

// StartTurn and EndTurn frame an agent turn; each comes once a turn.
type (
	StartTurn struct{ Turn int64 }
	EndTurn   struct {
		Turn       int64
		Why        Why
		Words      string // the provider's own, for WhyFailed
		Inferences int
	}
)

// Why says how an agent turn ended.
type Why string

// The ends of an agent turn.
const (
	WhyDone        Why = "done"
	WhyFailed      Why = "failed"
	WhyLimit       Why = "inference limit"
	WhyInterrupted Why = "interrupted"
	WhyTerminated  Why = "terminated"
)

// Deliver: the input's message joins the branch now. CancelInput: it never will. Retire: neither will this wake's, because
// all that it tells was read before.
type (
	Deliver     struct{ Input string }
	CancelInput struct{ Input string }
	Retire      struct{ Input string }
)

// StartInference: record and begin this attempt with the branch as it now stands. CancelInference: close its stream.
// Supersede: mark what the attempt has put out as superseded; its tokens count.
type (
	StartInference struct {
		Inference int64
		Attempt   int
	}
	CancelInference struct {
		Inference int64
		Attempt   int
	}
	Supersede struct {
		Inference int64
		Attempt   int
	}
)

// AppendAnswer: the message of the Answered event joins the branch.
type AppendAnswer struct{ Inference int64 }

// StartCalls: begin these calls in order. CancelCalls: stop them.
type (
	StartCalls struct {
		Inference int64
		Calls     []string
	}
	CancelCalls struct {
		Inference int64
		Calls     []string
	}
)

// AppendResult: the tool message of this call joins the branch, with its stored result, or as cancelled.
type AppendResult struct {
	Inference int64
	Call      string
	Cancelled bool
}

// WaitUntil: send Woke at this time (Unix milliseconds).
type WaitUntil struct{ Time int64 }

// Note: a note for the person joins the branch.
type Note struct{ Text string }

// Ended: the process is Terminated; wake whoever waits for it.
type Ended struct{ Exit Exit }

// Dropped: the event changed nothing, because it came late or says nothing new. A late answer still costs its tokens.
type Dropped struct{ Why string }

func (WantSlot) effect()        {}
func (DropSlot) effect()        {}
func (StartTurn) effect()       {}
func (EndTurn) effect()         {}
func (Deliver) effect()         {}
func (CancelInput) effect()     {}
func (Retire) effect()          {}
func (StartInference) effect()  {}
func (CancelInference) effect() {}
func (Supersede) effect()       {}
func (AppendAnswer) effect()    {}
func (StartCalls) effect()      {}
func (CancelCalls) effect()     {}
func (AppendResult) effect()    {}
func (WaitUntil) effect()       {}
func (Note) effect()            {}
func (Ended) effect()           {}
func (Dropped) effect()         {}
