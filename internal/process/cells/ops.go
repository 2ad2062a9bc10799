package cells

import (
	"encoding/json"
	"time"

	"soma/ident"
	"soma/internal/pykernel"
)

// Insert is the row of a cell, committed with its execute frame.
type Insert struct {
	ID, Owner, Session string
	Branch             ident.ID
	PID                ident.PID // 0 without a process
	Kernel, Code       string
	TimeoutMS          int64
	At                 time.Time
}

// SQL returns the statement.
func (*Insert) SQL() string {
	return `insert into cell (id, owner, session, branch, pid, kernel, code, timeout_ms, state, status, output_size, started_at)
values (?, ?, ?, ?, ?, ?, ?, ?, 'started', '', 0, ?)`
}

// Args returns the column values.
func (o *Insert) Args() []any {
	return []any{o.ID, o.Owner, o.Session, o.Branch[:], int64(o.PID), o.Kernel, o.Code, o.TimeoutMS, o.At.UnixMicro()}
}

// Background records that a cell goes on behind whoever waited for it: it is started still (P-039).
type Background struct {
	ID string
	At time.Time
}

// SQL returns the statement.
func (*Background) SQL() string { return `update cell set body = ? where id = ? and state = 'started'` }

// Args returns the column values.
func (o *Background) Args() []any { return []any{encode(Body{BackgroundedAt: o.At.UnixMicro()}), o.ID} }

// End is the outcome of a cell.
type End struct {
	Ended pykernel.CellEnded
	// BackgroundedAt is when it went into the background, nil where it did not.
	BackgroundedAt *time.Time
	At             time.Time
	Cause          pykernel.Cause // of the cell
}

// SQL returns the statement.
func (*End) SQL() string {
	return `update cell set state = 'ended', status = ?, body = ?, content = ?, output_size = ?, ended_at = ? where id = ? and state = 'started'`
}

// Args returns the column values.
func (o *End) Args() []any {
	e := o.Ended
	var content any
	if !e.Content.IsZero() {
		content = e.Content[:]
	}
	return []any{string(e.Status), encode(o.body()), content, e.Output.Size, o.At.UnixMicro(), e.Cell}
}

func (o *End) body() Body {
	e := o.Ended
	b := Body{DurationMS: e.DurationMS, Value: e.Value, Error: e.Error, Note: e.Note, Head: e.Kept, Calls: e.Calls, Images: e.Images,
		ImageErrors: e.ImageErrors, Repair: e.Repair, Spill: e.Output.Spill}
	if o.BackgroundedAt != nil {
		b.BackgroundedAt = o.BackgroundedAt.UnixMicro()
	}
	return b
}

func encode(b Body) []byte {
	text, err := json.Marshal(b)
	if err != nil { // plain strings and numbers
		panic(err)
	}
	return text
}
