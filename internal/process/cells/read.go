package cells

import (
	"encoding/json"
	"fmt"
	"time"

	"soma/internal/pykernel"
	"soma/wire"
)

// Querier reads committed rows.
type Querier interface {
	Query(sql string, args []any, row func(scan func(...any) error) error) error
}

// Body is the JSON of a row's body: the outcome without its output.
type Body struct {
	DurationMS int64               `json:"duration_ms"`
	Value      *string             `json:"value,omitempty"`
	Error      *pykernel.CellFault `json:"error,omitempty"`
	Note       string              `json:"note,omitempty"`
	Head       int64               `json:"head"` // bytes of the output's kept head; the rest of its content is the tail
	// BackgroundedAt is when it went into the background, in microseconds since 1970; 0: it did not.
	BackgroundedAt int64            `json:"backgrounded_at,omitempty"`
	Calls          []string         `json:"calls,omitempty"`
	Images         []pykernel.Image `json:"images,omitempty"`
	ImageErrors    []string         `json:"image_errors,omitempty"`
	Repair         string           `json:"repair,omitempty"`
	Spill          *pykernel.Spill  `json:"spill,omitempty"` // the file with its output
}

// States of a cell as clients see it.
const (
	Started      = "started"
	Backgrounded = "backgrounded"
	Ended        = "ended"
)

// Columns are what Scan reads.
const Columns = `id, session, pid, kernel, code, state, status, body, output_size, started_at, ended_at`

// What is asked of a branch, for Scan: one cell, by its id and the branch; and the newest, by the branch and how many.
const (
	InBranch = `select ` + Columns + ` from cell where id = ? and branch = ?`
	Newest   = `select ` + Columns + ` from cell where branch = ? order by started_at desc, id desc limit ?`
)

// Find returns a cell and its body, nil if there is none.
func Find(q Querier, id string) (found *wire.Cell, body Body, err error) {
	err = q.Query(`select `+Columns+` from cell where id = ?`, []any{id}, func(scan func(...any) error) error {
		c, b, err := Scan(scan)
		found, body = &c, b
		return err
	})
	return found, body, err
}

// Scan reads one row.
func Scan(scan func(...any) error) (wire.Cell, Body, error) {
	var c wire.Cell
	var body []byte
	var started int64
	var ended *int64
	var b Body
	if err := scan(&c.ID, &c.Session, &c.PID, &c.Kernel, &c.Code, &c.State, &c.Status, &body, &c.OutputSize, &started, &ended); err != nil {
		return c, b, err
	}
	c.StartedAt = stamp(started)
	if ended != nil {
		at := stamp(*ended)
		c.EndedAt = &at
	}
	if body == nil {
		return c, b, nil
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return c, b, fmt.Errorf("cannot read the outcome of cell %s: %w", c.ID, err)
	}
	b.show(&c)
	return c, b, nil
}

// Ending shows a cell as it is once it has ended so.
func Ending(c wire.Cell, e *End) wire.Cell {
	at := e.At
	c.State, c.Status, c.OutputSize, c.EndedAt = Ended, string(e.Ended.Status), e.Ended.Output.Size, &at
	e.body().show(&c)
	return c
}

func (b Body) show(c *wire.Cell) {
	if b.BackgroundedAt != 0 && c.State == Started {
		c.State = Backgrounded
	}
	c.Value, c.Error, c.Note, c.DurationMS, c.Calls = b.Value, Fault(b.Error), b.Note, b.DurationMS, b.Calls
	c.Shown = Shown(b.Images, b.ImageErrors, b.Repair)
}

// Since returns when the cell went into the background, nil where it did not.
func (b Body) Since() *time.Time {
	if b.BackgroundedAt == 0 {
		return nil
	}
	at := stamp(b.BackgroundedAt)
	return &at
}

// Shown is what a cell has for people beside its output.
func Shown(images []pykernel.Image, errors []string, repair string) wire.Shown {
	s := wire.Shown{ImageErrors: errors, Repair: repair}
	for i, img := range images {
		s.Images = append(s.Images, wire.CellImage{N: i + 1, Media: img.Media, Name: img.Name, Size: img.Size})
	}
	return s
}

// Fault is the exception that ended a cell, as clients see it.
func Fault(f *pykernel.CellFault) *wire.CellFault {
	if f == nil {
		return nil
	}
	return &wire.CellFault{Type: f.Type, Message: f.Message, Traceback: f.Traceback}
}

func stamp(micro int64) time.Time { return time.UnixMicro(micro).UTC() }
