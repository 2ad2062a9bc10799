package process

import (
	"encoding/json"
	"time"

	"soma/ident"
	"soma/internal/pykernel"
)

type insertCell struct {
	id, owner, session string
	branch             ident.ID
	pid                ident.PID
	kernel, code       string
	timeoutMS          int64
	at                 time.Time
}

func (*insertCell) SQL() string {
	return `insert into cell (id, owner, session, branch, pid, kernel, code, timeout_ms, state, status, output_size, started_at)
values (?, ?, ?, ?, ?, ?, ?, ?, 'started', '', 0, ?)`
}

func (o *insertCell) Args() []any {
	return []any{o.id, o.owner, o.session, o.branch[:], int64(o.pid), o.kernel, o.code, o.timeoutMS, o.at.UnixMicro()}
}

type endCell struct {
	ended pykernel.CellEnded
	at    time.Time
	cause pykernel.Cause // of the cell
}

// cellBody is the JSON of a cell row's body: the outcome without its output.
type cellBody struct {
	DurationMS int64               `json:"duration_ms"`
	Value      *string             `json:"value,omitempty"`
	Error      *pykernel.CellFault `json:"error,omitempty"`
	Note       string              `json:"note,omitempty"`
	Head       int64               `json:"head"` // bytes of the output's kept head; the rest of its content is the tail
}

func (*endCell) SQL() string {
	return `update cell set state = 'ended', status = ?, body = ?, content = ?, output_size = ?, ended_at = ? where id = ? and state = 'started'`
}

func (o *endCell) Args() []any {
	e := o.ended
	body, err := json.Marshal(cellBody{DurationMS: e.DurationMS, Value: e.Value, Error: e.Error, Note: e.Note, Head: e.Kept})
	if err != nil { // plain strings and numbers
		panic(err)
	}
	return []any{string(e.Status), body, ref(e.Content), e.Output.Size, o.at.UnixMicro(), e.Cell}
}
