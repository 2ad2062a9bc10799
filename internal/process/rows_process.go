package process

import (
	"time"

	"soma/ident"
	"soma/internal/pykernel"
	"soma/message"
)

type insertProcess struct {
	pid                            ident.PID
	owner, session                 string
	branch                         ident.ID
	agent, model, workspace, state string
	at                             time.Time
}

func (*insertProcess) SQL() string {
	return `insert into process (pid, owner, session, branch, parent, agent, model, workspace, state, reason, detail, since,
exit_code, steps, cells, tokens, cost, estimated, created_at)
values (?, ?, ?, ?, 0, ?, ?, ?, ?, '', '', ?, 0, 0, 0, 0, 0, 0, ?)`
}

func (o *insertProcess) Args() []any {
	at := o.at.UnixMicro()
	return []any{int64(o.pid), o.owner, o.session, o.branch[:], o.agent, o.model, o.workspace, o.state, at, at}
}

// Update is the write of a process's row, and after the commit what the scheduler learns of it.
type Update struct {
	PID ident.PID
	// WantSlot and DropSlot are for the scheduler.
	WantSlot, DropSlot    bool
	cause                 pykernel.Cause // of the dispatch that a wanted slot leads to
	state, reason, detail string
	since                 time.Time
	exitCode              int
	sums                  sums
	endedAt               time.Time
	branch                ident.ID
}

// SQL returns the statement. While the process lives it leaves the index by end alone.
func (o *Update) SQL() string {
	if o.endedAt.IsZero() {
		return `update process set state = ?, reason = ?, detail = ?, since = ?, steps = ?, cells = ?, tokens = ?, cost = ?,
estimated = ? where pid = ?`
	}
	return `update process set state = ?, reason = ?, detail = ?, since = ?, steps = ?, cells = ?, tokens = ?, cost = ?,
estimated = ?, exit_code = ?, ended_at = ? where pid = ?`
}

// Args returns the column values.
func (o *Update) Args() []any {
	args := []any{o.state, o.reason, o.detail, o.since.UnixMicro(), o.sums.Steps, o.sums.Cells, o.sums.Tokens, money(o.sums.Cost),
		o.sums.Estimated}
	if !o.endedAt.IsZero() {
		args = append(args, int64(o.exitCode), o.endedAt.UnixMicro())
	}
	return append(args, int64(o.PID))
}

type insertMessage struct {
	branch  ident.ID
	seq     uint64
	id      ident.ID
	role    message.Role
	body    []byte // nil when in content
	content ident.ID
	attempt int
	at      time.Time
	// After the commit the branch's history takes it from here: size is the length of its JSON in bytes.
	said message.Message
	size int
}

func (*insertMessage) SQL() string {
	return `insert into message (branch, seq, id, role, body, content, attempt, at) values (?, ?, ?, ?, ?, ?, ?, ?)`
}

func (o *insertMessage) Args() []any {
	return []any{o.branch[:], int64(o.seq), o.id[:], string(o.role), blob(o.body), ref(o.content), int64(o.attempt), o.at.UnixMicro()}
}

type insertToolCall struct {
	id       ident.ID
	pid      ident.PID
	branch   ident.ID
	step     int64
	position int
	call     message.Call
	state    string
	status   message.CallStatus
	cell     string
	at       time.Time
	result   []byte // of a call that was refused
	endedAt  time.Time
}

func (*insertToolCall) SQL() string {
	return `insert into tool_call (id, pid, branch, step, position, call_id, tool, arguments, state, status, cell, result, cost, started_at, ended_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)`
}

func (o *insertToolCall) Args() []any {
	return []any{o.id[:], int64(o.pid), o.branch[:], o.step, int64(o.position), o.call.ID, o.call.Tool, []byte(o.call.Arguments),
		o.state, string(o.status), o.cell, blob(o.result), o.at.UnixMicro(), stamp(o.endedAt)}
}

type endToolCall struct {
	id     ident.ID
	status message.CallStatus
	result []byte // held for later; nil when it joined the branch in this turn
	at     time.Time
}

func (*endToolCall) SQL() string {
	return `update tool_call set state = 'ended', status = ?, result = ?, ended_at = ? where id = ? and state <> 'ended'`
}

func (o *endToolCall) Args() []any {
	return []any{string(o.status), blob(o.result), o.at.UnixMicro(), o.id[:]}
}

type insertLedger struct {
	id              ident.ID
	pid             ident.PID
	session         string
	provider, model string
	step            int64
	attempt         int
	outcome         string
	usage           message.Usage
	cost            *int64
	startedAt, at   time.Time
	cause           pykernel.Cause // of the inference
}

func (*insertLedger) SQL() string {
	return `insert into ledger (id, pid, session, kind, provider, model, step, attempt, outcome, input, cache_read, cache_write,
output, reasoning, cost, estimated, started_at, ended_at)
values (?, ?, ?, 'inference', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (pid, id) do nothing`
}

func (o *insertLedger) Args() []any {
	u := o.usage
	return []any{o.id[:], int64(o.pid), o.session, o.provider, o.model, o.step, int64(o.attempt), o.outcome, u.Input, u.CacheRead,
		u.CacheWrite, u.Output, u.Reasoning, money(o.cost), u.Estimated, o.startedAt.UnixMicro(), o.at.UnixMicro()}
}

func money(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func ref(id ident.ID) any {
	if id.IsZero() {
		return nil
	}
	return id[:]
}
