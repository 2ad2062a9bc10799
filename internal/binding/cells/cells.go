package cells

import (
	"context"
	_ "embed"
	"fmt"

	"soma/ident"
	"soma/internal/binding"
	"soma/internal/neuron"
	"soma/wire"
)

var (
	//go:embed soma_recall.py
	source []byte
	//go:embed rules.md
	rules string
)

// Bounds of one answer.
const (
	maxList = 100
	maxPage = 64 << 10 // bytes
)

// Rows reads committed cells. Its methods are safe for concurrent use.
type Rows interface {
	// Cell returns a cell of the branch, nil where the branch has none of that id.
	Cell(ctx context.Context, branch ident.ID, cell string) (*wire.Cell, error)
	// Cells returns the newest cells of the branch, newest first, at most limit.
	Cells(ctx context.Context, branch ident.ID, limit int) ([]wire.Cell, error)
	// Output returns a page of a cell's output, at most limit bytes.
	Output(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error)
	// Trace returns what a cell has changed; no changes are no error.
	Trace(ctx context.Context, cell string) (wire.CellTrace, error)
}

// Binding returns `cells`.
func Binding(rows Rows) binding.Binding {
	r := routes{rows}
	return binding.Binding{
		Name: "cells", Module: "soma_recall", Source: source, Rules: rules,
		Routes: []binding.Route{
			binding.Handle("cells.info", neuron.Idempotent, r.info),
			binding.Handle("cells.list", neuron.Idempotent, r.list),
			binding.Handle("cells.read", neuron.Idempotent, r.read),
			binding.Handle("cells.trace", neuron.Idempotent, r.trace),
		},
	}
}

type routes struct{ rows Rows }

// facts are what code learns of a cell, in the shape that the kernel has for its own.
type facts struct {
	ID         string `json:"id"`
	State      string `json:"state"` // running, finished
	Status     string `json:"status,omitempty"`
	StartedAt  int64  `json:"started_at"` // milliseconds since 1970
	DurationMS int64  `json:"duration_ms"`
	Source     string `json:"source"`
	Background bool   `json:"background,omitempty"` // of a running one
	Error      string `json:"error,omitempty"`      // one line
	Size       int64  `json:"size"`                 // of the output, in bytes
}

func factsOf(c wire.Cell) facts {
	f := facts{ID: c.ID, State: "running", StartedAt: c.StartedAt.UnixMilli(), DurationMS: c.DurationMS, Source: c.Code, Size: c.OutputSize}
	if c.EndedAt != nil {
		f.State, f.Status = "finished", c.Status
	}
	f.Background = c.State == "backgrounded"
	if c.Error != nil {
		f.Error = c.Error.Type + ": " + c.Error.Message
	}
	return f
}

type cellArgs struct {
	Cell string `json:"cell"`
}

// find is where a foreign cell is told from one of the caller's branch.
func (r routes) find(ctx context.Context, c binding.Caller, cell string) (wire.Cell, error) {
	if cell == "" {
		return wire.Cell{}, &binding.Refusal{Code: "invalid", Text: "no cell is named"}
	}
	found, err := r.rows.Cell(ctx, c.Branch, cell)
	if err != nil {
		return wire.Cell{}, fmt.Errorf("cannot read cell %s: %w", cell, err)
	}
	if found == nil {
		return wire.Cell{}, &binding.Refusal{Code: "cell_not_found", Text: fmt.Sprintf("there is no cell %s in this branch", cell)}
	}
	return *found, nil
}

func (r routes) info(ctx context.Context, c binding.Caller, a cellArgs) (any, error) {
	cell, err := r.find(ctx, c, a.Cell)
	if err != nil {
		return nil, err
	}
	return factsOf(cell), nil
}

func (r routes) list(ctx context.Context, c binding.Caller, a struct {
	Limit int `json:"limit"`
}) (any, error) {
	if a.Limit < 1 || a.Limit > maxList {
		return nil, &binding.Refusal{Code: "invalid", Text: fmt.Sprintf("limit is 1 to %d", maxList)}
	}
	cells, err := r.rows.Cells(ctx, c.Branch, a.Limit)
	if err != nil {
		return nil, fmt.Errorf("cannot list cells: %w", err)
	}
	all := make([]facts, len(cells))
	for i, cell := range cells {
		all[i] = factsOf(cell)
		all[i].Source = firstLine(cell.Code)
	}
	return all, nil
}

func firstLine(code string) string {
	runes := 0
	for i, c := range code {
		if runes++; c == '\n' || runes > 200 {
			return code[:i]
		}
	}
	return code
}

// page has the shape of the kernel's own pages.
type page struct {
	Offset  int64  `json:"offset"`
	Next    int64  `json:"next_offset"`
	Size    int64  `json:"size"`
	Running bool   `json:"running"`
	Text    string `json:"text"`
}

func (r routes) read(ctx context.Context, c binding.Caller, a struct {
	Cell   string `json:"cell"`
	Offset *int64 `json:"offset,omitempty"` // nil: the end
	Limit  int64  `json:"limit"`
}) (any, error) {
	if a.Limit < 4 || a.Limit > maxPage {
		return nil, &binding.Refusal{Code: "invalid", Text: fmt.Sprintf("a page has 4 to %d bytes", maxPage)}
	}
	cell, err := r.find(ctx, c, a.Cell)
	if err != nil {
		return nil, err
	}
	offset := max(0, cell.OutputSize-a.Limit)
	if a.Offset != nil {
		offset = *a.Offset
	}
	if offset < 0 || offset > cell.OutputSize {
		return nil, &binding.Refusal{Code: "invalid", Text: fmt.Sprintf("offset %d is not within the output's %d bytes", offset, cell.OutputSize)}
	}
	p, err := r.rows.Output(ctx, cell.ID, offset, a.Limit)
	if err != nil {
		return nil, fmt.Errorf("cannot read the output of cell %s: %w", cell.ID, err)
	}
	if !p.Kept {
		return nil, &binding.Refusal{Code: "output_lost",
			Text: fmt.Sprintf("byte %d of this output is not kept; it goes on at offset=%d", offset, p.Next)}
	}
	return page{Offset: p.Offset, Next: p.Next, Size: p.Size, Running: cell.EndedAt == nil, Text: p.Text}, nil
}

func (r routes) trace(ctx context.Context, c binding.Caller, a cellArgs) (any, error) {
	cell, err := r.find(ctx, c, a.Cell)
	if err != nil {
		return nil, err
	}
	t, err := r.rows.Trace(ctx, cell.ID)
	if err != nil {
		return nil, fmt.Errorf("cannot read what cell %s has changed: %w", cell.ID, err)
	}
	if t.Changes == nil {
		t.Changes = []wire.TraceChange{}
	}
	return t.Changes, nil
}
