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

// The crash points of the durable runtime that one input does not meet, or not for sure.
const (
	RelayCarried   Name = "relay.carried"   // a connection was asked, the turn that it guards is not committed
	CallRequested  Name = "call.requested"  // the request is committed, its caller begins to wait
	CallAnswered   Name = "call.answered"   // the answer is committed, its caller has not heard of it
	DrainCommitted Name = "drain.committed" // rows to others are committed, nothing of them is in memory
	DrainDelivered Name = "drain.delivered" // a row was handled, and is not deleted
	CheckpointMid  Name = "checkpoint.mid"  // inside the transaction that writes a neuron's row
	TrimMid        Name = "trim.mid"        // inside the transaction that deletes turns past the windows
	WALCopied      Name = "wal.copied"      // the WAL was copied into the database beside running commits
	GroupSent      Name = "group.sent"      // a group is on its way to PostgreSQL, its answer is not read
	LeaseTaken     Name = "lease.taken"     // places of another node were taken, nothing of them is in memory
	LeaseCounted   Name = "lease.counted"   // what was found there is counted, nothing of it runs
)

// The crash points of work in the background.
const (
	WakeCommitted Name = "wake.committed" // the end of a cell or job is stored with its wake, nobody has heard of it
)

// The crash points of what a python kernel does beside the outcomes of its cells.
const (
	BackgroundCommitted Name = "background.committed" // its owner is told that a cell goes on, before the ack
	JobBeforeCommit     Name = "job.before_commit"    // a job runs, nothing of it is recorded
	JobCommitted        Name = "job.committed"        // before the ack
	JobEndCommitted     Name = "job_end.committed"    // before the ack
)

// The crash points of the removal of a session.
const (
	RemoveMarked Name = "remove.marked" // the session is marked, nothing of it is deleted
	RemoveMid    Name = "remove.mid"    // some of its rows are deleted
)

// The crash points of work on whole stores.
const (
	CopyMid       Name = "copy.mid"       // the rows of one more table are in the store that is filled
	BackupMid     Name = "backup.mid"     // the same in a backup
	BackupWritten Name = "backup.written" // a whole backup is on the disk, not yet under its name
	RestoreMid    Name = "restore.mid"    // the new store is whole, and not in its place
	RestorePlaced Name = "restore.placed" // the new store is in its place, what belonged to the old one is still there
)

// Names lists all crash points. The caller owns the slice.
func Names() []Name {
	return append(append(append(OfInput(), OfRuntime()...), append(OfBackground(), OfRemoval()...)...), OfStores()...)
}

// OfStores lists those of work on whole stores. The caller owns the slice.
func OfStores() []Name {
	return []Name{CopyMid, BackupMid, BackupWritten, RestoreMid, RestorePlaced}
}

// OfBackground lists those of work in the background. The caller owns the slice.
func OfBackground() []Name {
	return []Name{BackgroundCommitted, JobBeforeCommit, JobCommitted, JobEndCommitted, WakeCommitted}
}

// OfRemoval lists those of the removal of a session. The caller owns the slice.
func OfRemoval() []Name { return []Name{RemoveMarked, RemoveMid} }

// OfRuntime lists those of the durable runtime that tests/durable dies at. The caller owns the slice.
func OfRuntime() []Name {
	return []Name{
		RelayCarried, CallRequested, CallAnswered, DrainCommitted, DrainDelivered, CheckpointMid, TrimMid, WALCopied, GroupSent,
		LeaseTaken, LeaseCounted,
	}
}

// OfInput lists those that one input meets, in the order of their constants. The caller owns the slice.
func OfInput() []Name {
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
	FenceOff    Fault = "fence_off"    // PostgreSQL does not check who commits
	BeliefOff   Fault = "belief_off"   // a node trusts its lease for ever
	FsyncOff    Fault = "fsync_off"    // SQLite does not wait for the disk
)

// Faults lists all faults. The caller owns the slice.
func Faults() []Fault {
	return []Fault{DedupeOff, StartedOff, EarlyAnswer, EarlyEvent, EarlyFrame, FenceOff, BeliefOff, FsyncOff}
}
