package pykernel

import (
	"encoding/json"
	"errors"
	"strconv"
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

// NoNode is the node of a python kernel that was live in the store of which this one is a copy or backup: its process is not
// ours to touch, and what its cells did since is unknown.
const NoNode = ""

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

// ErrKernelBusy is the guard of EvictKernel: a cell or job has come in the meantime.
var ErrKernelBusy = errors.New("python kernel has open cells or jobs")

// EvictKernel is EndKernel for a python kernel that has no open cell and no job: the execute frame of an open cell, running or
// in the background, is kept until its outcome is committed. It fails with ErrKernelBusy where a frame of a cell is left, a job
// runs, or the kernel is ending.
type EvictKernel struct {
	ID     string
	Reason string
}

// SQL returns the statement.
func (*EvictKernel) SQL() string {
	return `update kernel set state = 'ending', reason = ? where id = ? and state in ('booting', 'running')
and not exists (select 1 from kernel_frame f where f.kernel = kernel.id and f.cell <> '')
and not exists (select 1 from job j where j.kernel = kernel.id and j.state = 'running')`
}

// Args returns the column values.
func (k *EvictKernel) Args() []any { return []any{k.Reason, k.ID} }

// Guard is the error where the kernel is busy.
func (*EvictKernel) Guard() error { return ErrKernelBusy }

// RunKernel records the OS process of a python kernel at each attach. The first one is committed before any frame is
// written: a row that is still booting has run no cell and may be booted again.
type RunKernel struct {
	ID     string
	OSPID  int
	PGID   int
	Leader string // start time of the OS process: pid and leader name one process
	Bundle string // what it runs
	// Modules are those that it was started with, joined by commas; empty leaves the row's as they are.
	Modules string
	Epoch   int64
	At      time.Time
}

// SQL returns the statement.
func (*RunKernel) SQL() string {
	return `update kernel set state = 'running', os_pid = ?, pgid = ?, leader = ?, bundle = ?,
modules = case when ? = '' then modules else ? end, epoch = ?, used_at = ? where id = ? and state in ('booting', 'running')`
}

// Args returns the column values.
func (k *RunKernel) Args() []any {
	return []any{int64(k.OSPID), int64(k.PGID), k.Leader, k.Bundle, k.Modules, k.Modules, k.Epoch, k.At.UnixMicro(), k.ID}
}

// EndedKernel records that nothing of a python kernel is left. A reason that EndKernel gave is kept.
type EndedKernel struct {
	ID     string
	Reason string
	At     time.Time
}

// SQL returns the statement.
func (*EndedKernel) SQL() string {
	return `update kernel set state = 'ended', reason = case when reason = '' then ? else reason end, ended_at = ?
where id = ? and state <> 'ended'`
}

// Args returns the column values.
func (k *EndedKernel) Args() []any { return []any{k.Reason, k.At.UnixMicro(), k.ID} }

// DropFrame deletes one frame that the python kernel has acknowledged; an execute frame goes with its cell's outcome.
type DropFrame struct {
	Kernel string
	Seq    uint64
}

// SQL returns the statement.
func (*DropFrame) SQL() string { return `delete from kernel_frame where kernel = ? and seq = ?` }

// Args returns the column values.
func (f *DropFrame) Args() []any { return []any{f.Kernel, int64(f.Seq)} }

// InboxItem records that what follows from a frame of the python kernel is committed. Repeats change nothing.
type InboxItem struct {
	Kernel string
	Item   string // DoneItem, CallItem, BackgroundItem, SeenItem or EndItem
	At     time.Time
}

// DoneItem names the outcome of a cell in the inbox.
func DoneItem(cell string) string { return "done:" + cell }

// CallItem names a host call in the inbox.
func CallItem(call string) string { return "call:" + call }

// BackgroundItem names the news in the inbox that a cell was backgrounded.
func BackgroundItem(cell string) string { return "backgrounded:" + cell }

// SeenItem names a frame in the inbox that told what has been read.
func SeenItem(seq uint64) string { return "seen:" + strconv.FormatUint(seq, 10) }

// EndItem names the end of a job in the inbox.
func EndItem(job string) string { return "job:" + job }

// SQL returns the statement.
func (*InboxItem) SQL() string {
	return `insert into kernel_inbox (kernel, item, at) values (?, ?, ?) on conflict do nothing`
}

// Args returns the column values.
func (i *InboxItem) Args() []any { return []any{i.Kernel, i.Item, i.At.UnixMicro()} }

// DropInbox deletes one inbox row once the python kernel is known to send its frame no more.
type DropInbox struct{ Kernel, Item string }

// SQL returns the statement.
func (*DropInbox) SQL() string { return `delete from kernel_inbox where kernel = ? and item = ?` }

// Args returns the column values.
func (i *DropInbox) Args() []any { return []any{i.Kernel, i.Item} }

// StartCall records a host call before it runs.
type StartCall struct {
	Kernel string
	ID     string
	Method string
	At     time.Time
}

// SQL returns the statement.
func (*StartCall) SQL() string {
	return `insert into kernel_call (kernel, id, method, state, body, seq, at) values (?, ?, ?, 'started', ?, 0, ?) on conflict do nothing`
}

// Args returns the column values.
func (c *StartCall) Args() []any { return []any{c.Kernel, c.ID, c.Method, []byte{}, c.At.UnixMicro()} }

// AnswerCall records the reply of a host call; the frame that carries it precedes it in the same commit.
type AnswerCall struct {
	Kernel string
	ID     string
	Reply  *AppendFrame
}

// SQL returns the statement.
func (*AnswerCall) SQL() string {
	return `update kernel_call set state = 'answered', body = ?, seq = ? where kernel = ? and id = ?`
}

// Args returns the column values.
func (c *AnswerCall) Args() []any {
	return []any{[]byte(c.Reply.Body), int64(c.Reply.Seq), c.Kernel, c.ID}
}

// DropCall deletes the row of a host call whose reply the python kernel has acknowledged.
type DropCall struct{ Kernel, ID string }

// SQL returns the statement.
func (*DropCall) SQL() string { return `delete from kernel_call where kernel = ? and id = ?` }

// Args returns the column values.
func (c *DropCall) Args() []any { return []any{c.Kernel, c.ID} }

// KeepOutput stores what was kept of a cell's output, head then tail. Its id is ident.Derive(cell id, "output").
type KeepOutput struct {
	ID    ident.ID
	Bytes []byte
}

// SQL returns the statement.
func (*KeepOutput) SQL() string {
	return `insert into content (id, size, bytes) values (?, ?, ?) on conflict do nothing`
}

// Args returns the column values.
func (o *KeepOutput) Args() []any { return []any{o.ID[:], int64(len(o.Bytes)), o.Bytes} }

// Clear is one statement that deletes rows of an ended python kernel.
type Clear struct{ kernel, sql string }

// ClearKernel returns the operations that delete the frames, inbox items and host calls of a python kernel.
func ClearKernel(kernel string) []*Clear {
	return []*Clear{
		{kernel, `delete from kernel_frame where kernel = ?`},
		{kernel, `delete from kernel_inbox where kernel = ?`},
		{kernel, `delete from kernel_call where kernel = ?`},
	}
}

// SQL returns the statement.
func (c *Clear) SQL() string { return c.sql }

// Args returns the column values.
func (c *Clear) Args() []any { return []any{c.kernel} }
