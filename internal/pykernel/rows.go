package pykernel

import (
	"encoding/json"
	"errors"
	"time"

	"soma/ident"
)

// KernelState says where a python kernel is in its life.
type KernelState string

// The states. Ending ones get no more frames; ended ones have no OS process left.
const (
	Booting KernelState = "booting"
	Running KernelState = "running"
	Ending  KernelState = "ending"
	Ended   KernelState = "ended"
)

// ErrKernelEnded is the guard of AppendFrame: the python kernel takes no more frames.
var ErrKernelEnded = errors.New("python kernel has ended")

// InsertKernel is the row of a new python kernel, committed with its first frame.
type InsertKernel struct {
	ID        string // text form of an ident.ID
	Owner     string // neuron id
	Session   string
	Branch    ident.ID
	Node      string
	Workspace string
	Python    string
	Token     string // 64 hex digits; never leaves the home
	At        time.Time
}

// SQL returns the statement.
func (*InsertKernel) SQL() string {
	return `insert into kernel (id, owner, session, branch, node, workspace, python, state, reason, token, bundle, os_pid, pgid, leader, epoch, last_seq, used_at, created_at)
values (?, ?, ?, ?, ?, ?, ?, 'booting', '', ?, '', 0, 0, '', 0, 0, ?, ?)`
}

// Args returns the column values.
func (k *InsertKernel) Args() []any {
	at := k.At.UnixMicro()
	return []any{k.ID, k.Owner, k.Session, k.Branch[:], k.Node, k.Workspace, k.Python, k.Token, at, at}
}

// FrameSequence names the counter of frames; its key is the kernel id.
const FrameSequence = "kernel_frame"

// The statements of the counter of frames, for neuron.Sequence.
const (
	FrameSequenceLast = `select last_seq from kernel where id = ?`
	FrameSequenceSave = `update kernel set last_seq = ? where id = ?`
)

// AppendFrame puts one frame into the outbox of a python kernel. It fails with ErrKernelEnded where the kernel row is
// missing, ending or ended; the row must precede it in the same commit or an earlier one.
type AppendFrame struct {
	Kernel string
	Cell   string // the cell it concerns, empty for none
	Body   json.RawMessage
	At     time.Time
	Seq    uint64 // given by the committer
}

// NewFrame returns the operation that appends frame, one of the daemon's frame structs.
func NewFrame(kernel, cell string, frame any, at time.Time) (*AppendFrame, error) {
	b, err := json.Marshal(frame)
	if err != nil {
		return nil, err
	}
	return &AppendFrame{Kernel: kernel, Cell: cell, Body: b, At: at}, nil
}

// SQL returns the statement.
func (*AppendFrame) SQL() string {
	return `insert into kernel_frame (kernel, seq, cell, body, at)
select id, ?, ?, ?, ? from kernel where id = ? and state in ('booting', 'running')`
}

// Args returns the column values.
func (f *AppendFrame) Args() []any {
	return []any{int64(f.Seq), f.Cell, []byte(f.Body), f.At.UnixMicro(), f.Kernel}
}

// Guard is the error where the kernel takes no more frames.
func (*AppendFrame) Guard() error { return ErrKernelEnded }

// Sequence names the counter of this kernel's frames.
func (f *AppendFrame) Sequence() (name, key string) { return FrameSequence, f.Kernel }

// SetNumber takes the number that the committer gives.
func (f *AppendFrame) SetNumber(n uint64) { f.Seq = n }

// EndKernel asks for a python kernel to be ended with its cells: the row becomes ending; supervise does it after the commit.
type EndKernel struct {
	ID     string
	Reason string
}

// SQL returns the statement.
func (*EndKernel) SQL() string {
	return `update kernel set state = 'ending', reason = ? where id = ? and state in ('booting', 'running')`
}

// Args returns the column values.
func (k *EndKernel) Args() []any { return []any{k.Reason, k.ID} }
