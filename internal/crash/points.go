package crash

// Name is the name of a crash point.
type Name string

// The crash points, in the order in which one input meets them.
const (
	AdmitBeforeCommit  Name = "admit.before_commit"
	AdmitCommitted     Name = "admit.committed"
	DispatchCommitted  Name = "dispatch.committed"
	StreamMid          Name = "stream.mid" // after the third of at least ten tokens
	AnswerBeforeCommit Name = "answer.before_commit"
	AnswerCommitted    Name = "answer.committed" // before the frame is written
	KernelSpawned      Name = "kernel.spawned"   // before its socket exists
	FrameWritten       Name = "frame.written"    // before its ack
	CellMid            Name = "cell.mid"
	DoneRead           Name = "done.read"      // before the inbox commit
	DoneCommitted      Name = "done.committed" // before the ack
	ResultCommitted    Name = "result.committed"
	EndCommitted       Name = "end.committed" // before the event goes out
	GroupMid           Name = "group.mid"     // inside a commit group's transaction
	MigrateMid         Name = "migrate.mid"   // inside a migration's transaction
)

// Names lists all crash points in the order of their constants. The caller owns the slice.
func Names() []Name {
	return []Name{
		AdmitBeforeCommit, AdmitCommitted, DispatchCommitted, StreamMid, AnswerBeforeCommit, AnswerCommitted, KernelSpawned,
		FrameWritten, CellMid, DoneRead, DoneCommitted, ResultCommitted, EndCommitted, GroupMid, MigrateMid,
	}
}

// Fault is a safeguard that a negative control takes away, to prove that the suite notices.
type Fault string

// The faults.
const (
	DedupeOff   Fault = "dedupe_off"   // delivery ids are not remembered
	StartedOff  Fault = "started_off"  // the `started` mark of an execution is not committed
	EarlyAnswer Fault = "early_answer" // an answer is shown before its commit
	EarlyEvent  Fault = "early_event"  // an event is shown before its commit
	EarlyFrame  Fault = "early_frame"  // a frame is sent before its commit
)

// Faults lists all faults. The caller owns the slice.
func Faults() []Fault {
	return []Fault{DedupeOff, StartedOff, EarlyAnswer, EarlyEvent, EarlyFrame}
}
