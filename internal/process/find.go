package process

import (
	"encoding/json"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/message"
	"soma/wire"
)

// querier reads committed rows; a turn and a reader with a context both are one.
type querier = cells.Querier

type inputRow struct {
	pid               ident.PID
	mode, state, text string
	at                time.Time
}

func (r *inputRow) wire(session, clientID string) wire.InputState {
	return wire.InputState{Session: session, ClientID: clientID, PID: uint64(r.pid), Mode: r.mode, State: r.state, At: r.at}
}

// findInput returns the row of an input, nil if there is none.
func findInput(q querier, session, clientID string) (*inputRow, error) {
	var found *inputRow
	err := q.Query(`select pid, mode, state, text, at from input where session = ? and client_id = ?`, []any{session, clientID},
		func(scan func(...any) error) error {
			var r inputRow
			var at int64
			err := scan(&r.pid, &r.mode, &r.state, &r.text, &at)
			r.at = fromMicro(at)
			found = &r
			return err
		})
	return found, err
}

// inputsOf returns the inputs of a session that wait for a process, in order of admission.
func inputsOf(q querier, session string, pid ident.PID) ([]turn.InputAdmitted, error) {
	var all []turn.InputAdmitted
	err := q.Query(`select client_id, mode from input where session = ? and pid = ? and state = 'admitted' order by id`, []any{session, int64(pid)},
		func(scan func(...any) error) error {
			var id, mode string
			err := scan(&id, &mode)
			all = append(all, admitted(id, mode))
			return err
		})
	return all, err
}

func admitted(clientID, mode string) turn.InputAdmitted {
	return turn.InputAdmitted{ID: clientID, After: mode == wire.After, Wake: mode == wire.InputWake}
}

type processRow struct {
	session, model, python, workspace string
	branch                            ident.ID
	keep                              bool
	createdAt                         time.Time
}

// findProcess returns what a process's neuron starts from, nil if there is no such process.
func findProcess(q querier, pid ident.PID) (*processRow, error) {
	var found *processRow
	err := q.Query(`select p.session, p.model, s.python, p.workspace, p.branch, s.keep, p.created_at from process p
join session s on s.id = p.session where p.pid = ?`, []any{int64(pid)}, func(scan func(...any) error) error {
		var r processRow
		var at int64
		var branch []byte
		if err := scan(&r.session, &r.model, &r.python, &r.workspace, &branch, &r.keep, &at); err != nil {
			return err
		}
		r.createdAt = fromMicro(at)
		found = &r
		var err error
		r.branch, err = ident.FromBytes(branch)
		return err
	})
	return found, err
}

func processAlive(q querier, pid ident.PID) (bool, error) {
	n := 0
	err := q.Query(`select count(*) from process where pid = ? and ended_at is null`, []any{int64(pid)},
		func(scan func(...any) error) error { return scan(&n) })
	return n == 1, err
}

func lastMessage(q querier, branch ident.ID) (uint64, error) {
	var last int64
	err := q.Query(`select coalesce(max(seq), 0) from message where branch = ?`, []any{branch[:]},
		func(scan func(...any) error) error { return scan(&last) })
	return uint64(last), err
}

// heldResult returns the tool message that waits in its call's row.
func heldResult(q querier, row ident.ID) (message.Message, error) {
	var m message.Message
	found := false
	err := q.Query(`select result from tool_call where id = ?`, []any{row[:]}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil || b == nil {
			return err
		}
		found = true
		return json.Unmarshal(b, &m)
	})
	if err == nil && !found {
		err = neuron.Settle(fmt.Errorf("tool call %s holds no result", row))
	}
	return m, err
}

// stored is the body of a message's row.
type stored struct {
	message.Message
	Line string `json:"line,omitempty"` // for people
}

const messageColumns = `m.seq, m.id, coalesce(m.body, c.bytes), m.attempt, m.at from message m left join content c on c.id = m.content`

func scanMessage(scan func(...any) error) (wire.Message, error) {
	var m wire.Message
	var id, body []byte
	var at int64
	if err := scan(&m.Seq, &id, &body, &m.Attempt, &at); err != nil {
		return m, err
	}
	key, err := ident.FromBytes(id)
	if err != nil {
		return m, err
	}
	m.ID, m.At = key.String(), fromMicro(at)
	var s stored
	if err := json.Unmarshal(body, &s); err != nil {
		return m, fmt.Errorf("cannot read message %d: %w", m.Seq, err)
	}
	m.Message, m.Line = s.Message, s.Line
	return m, nil
}

func fromMicro(n int64) time.Time { return time.UnixMicro(n).UTC() }

func fromMicroPtr(n *int64) *time.Time {
	if n == nil {
		return nil
	}
	t := fromMicro(*n)
	return &t
}
