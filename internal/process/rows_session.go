package process

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

// Every type below is a neuron.Op: a write of one row, with the SQL that all engines share.

type insertSession struct {
	id, owner string
	place     neuron.Place
	open      wire.OpenSession
	branch    ident.ID
	at        time.Time
}

func (*insertSession) SQL() string {
	return `insert into session (id, owner, place, kind, workspace, model, agent, python, keep, branch, state, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', ?)`
}

func (o *insertSession) Args() []any {
	return []any{o.id, o.owner, int64(o.place), o.open.Kind, o.open.Workspace, o.open.Model, o.open.Agent, o.open.Python,
		o.open.Keep, o.branch[:], o.at.UnixMicro()}
}

type insertBranch struct {
	id      ident.ID
	session string
	name    string
	at      time.Time
}

func (*insertBranch) SQL() string {
	return `insert into branch (id, session, name, created_at) values (?, ?, ?, ?)`
}

func (o *insertBranch) Args() []any { return []any{o.id[:], o.session, o.name, o.at.UnixMicro()} }

type closeSession struct {
	id string
	at time.Time
}

func (*closeSession) SQL() string {
	return `update session set state = 'closed', closed_at = ? where id = ? and state = 'open'`
}

func (o *closeSession) Args() []any { return []any{o.at.UnixMicro(), o.id} }

type insertInput struct {
	session, clientID string
	id                ident.ID
	pid               ident.PID
	mode, text        string
	at                time.Time
}

func (*insertInput) SQL() string {
	return `insert into input (session, client_id, id, pid, mode, state, text, at) values (?, ?, ?, ?, ?, 'admitted', ?, ?)`
}

func (o *insertInput) Args() []any {
	return []any{o.session, o.clientID, o.id[:], int64(o.pid), o.mode, o.text, o.at.UnixMicro()}
}

// moveInput gives an input that waits to another process.
type moveInput struct {
	session, clientID string
	pid               ident.PID
}

func (*moveInput) SQL() string {
	return `update input set pid = ? where session = ? and client_id = ? and state = 'admitted'`
}

func (o *moveInput) Args() []any { return []any{int64(o.pid), o.session, o.clientID} }

type endInput struct {
	session, clientID string
	state             string // delivered, cancelled, retired
	at                time.Time
}

func (*endInput) SQL() string {
	return `update input set state = ?, ended_at = ? where session = ? and client_id = ? and state = 'admitted'`
}

func (o *endInput) Args() []any { return []any{o.state, o.at.UnixMicro(), o.session, o.clientID} }

// updateWake changes what a wake that waits will tell.
type updateWake struct{ session, clientID, text string }

func (*updateWake) SQL() string {
	return `update input set text = ? where session = ? and client_id = ? and state = 'admitted'`
}

func (o *updateWake) Args() []any { return []any{o.text, o.session, o.clientID} }

// EventSequence names the counter of a session's events; its key is the session id.
const EventSequence = "event"

// Sequences are the counters of this room's rows, for the engine of storage. Events stay, so that the rows tell the last.
func Sequences() []neuron.Sequence {
	return []neuron.Sequence{{
		Name: EventSequence,
		Last: `select coalesce(max(seq), 0) from event where session = ?`,
	}}
}

// newestEvent is the sequence of the newest event of session s, 0 for none.
const newestEvent = `(select coalesce(max(seq), 0) from event where session = s.id)`

// Event is the write of one event row, which the committer numbers. After the commit it is what followers see.
type Event struct{ wire.Event }

// SQL returns the statement.
func (*Event) SQL() string {
	return `insert into event (session, seq, pid, kind, body, at) values (?, ?, ?, ?, ?, ?)`
}

// Args returns the column values.
func (o *Event) Args() []any {
	return []any{o.Session, int64(o.Seq), int64(o.PID), o.Kind, []byte(o.Body), o.At.UnixMicro()}
}

// Sequence names the counter of the session's events.
func (o *Event) Sequence() (name, key string) { return EventSequence, o.Session }

// SetNumber takes the number that the committer gives.
func (o *Event) SetNumber(n uint64) { o.Seq = n }
