package cells

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/binding"
	"soma/internal/pykernel/pykerneltest"
	"soma/wire"
)

// rows are the cells of two branches, newest last.
type rows map[ident.ID][]wire.Cell

func (r rows) Cell(_ context.Context, branch ident.ID, cell string) (*wire.Cell, error) {
	for _, c := range r[branch] {
		if c.ID == cell {
			return &c, nil
		}
	}
	return nil, nil
}

func (r rows) Cells(_ context.Context, branch ident.ID, limit int) (found []wire.Cell, err error) {
	for i := len(r[branch]) - 1; i >= 0 && len(found) < limit; i-- {
		found = append(found, r[branch][i])
	}
	return found, nil
}

func (r rows) Output(_ context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	if offset >= 500 && offset < 900 {
		return wire.OutputPage{Cell: cell, Offset: offset, Next: 900, Size: 1000}, nil
	}
	end := min(offset+limit, 1000)
	return wire.OutputPage{Cell: cell, Offset: offset, Next: end, Size: 1000, Kept: true, Text: strings.Repeat("x", int(end-offset))}, nil
}

func (r rows) Trace(_ context.Context, cell string) (wire.CellTrace, error) {
	if cell == "one" {
		return wire.CellTrace{Cell: cell, Changes: []wire.TraceChange{{Path: "a", Kind: "created", Diff: "+x\n"}}}, nil
	}
	return wire.CellTrace{Cell: cell}, nil
}

var at = time.UnixMilli(1_700_000_000_000)

func world(t *testing.T) (*binding.Router, ident.ID) {
	t.Helper()
	mine, other := ident.New(at), ident.New(at)
	end := at.Add(time.Second)
	one := wire.Cell{ID: "one", Code: "a\nb", State: "ended", Status: "error", OutputSize: 1000, DurationMS: 1000, StartedAt: at,
		EndedAt: &end, Error: &wire.CellFault{Type: "ValueError", Message: "no"}}
	two := wire.Cell{ID: "two", Code: strings.Repeat("é", 300), State: "backgrounded", StartedAt: at}
	r, err := binding.NewRouter([]binding.Binding{Binding(rows{
		mine: {one, two}, other: {{ID: "foreign", StartedAt: at}},
	})})
	if err != nil {
		t.Fatal(err)
	}
	return r, mine
}

// P-043: older cells are read from their rows, those of the caller's own branch only.
func TestCommittedCells(t *testing.T) {
	r, branch := world(t)
	for _, c := range []struct{ method, args, want string }{
		{"cells.info", `{"cell":"one"}`,
			`{"id":"one","state":"finished","status":"error","started_at":1700000000000,"duration_ms":1000,"source":"a\nb","error":"ValueError: no","size":1000}`},
		{"cells.list", `{"limit":1}`,
			`[{"id":"two","state":"running","started_at":1700000000000,"duration_ms":0,"source":"` + strings.Repeat("é", 200) + `","background":true,"size":0}]`},
		{"cells.read", `{"cell":"one","offset":0,"limit":4}`, `{"offset":0,"next_offset":4,"size":1000,"running":false,"text":"xxxx"}`},
		{"cells.read", `{"cell":"one","limit":5}`, `{"offset":995,"next_offset":1000,"size":1000,"running":false,"text":"xxxxx"}`},
		{"cells.read", `{"cell":"one","offset":600,"limit":4}`, `output_lost: byte 600 of this output is not kept; it goes on at offset=900`},
		{"cells.read", `{"cell":"one","offset":1001,"limit":4}`, `invalid: offset 1001 is not within the output's 1000 bytes`},
		{"cells.read", `{"cell":"one","limit":3}`, `invalid: a page has 4 to 65536 bytes`},
		{"cells.read", `{"cell":"one","limit":65537}`, `invalid: a page has 4 to 65536 bytes`},
		{"cells.trace", `{"cell":"one"}`, `[{"path":"a","kind":"created","diff":"+x\n"}]`},
		{"cells.trace", `{"cell":"two"}`, `[]`},
		{"cells.list", `{"limit":101}`, `invalid: limit is 1 to 100`},
		{"cells.info", `{"cell":""}`, `invalid: no cell is named`},
		{"cells.info", `{"cell":"none"}`, `cell_not_found: there is no cell none in this branch`},
		{"cells.info", `{"cell":"foreign"}`, `cell_not_found: there is no cell foreign in this branch`},
		{"cells.read", `{"cell":"foreign","limit":100}`, `cell_not_found: there is no cell foreign in this branch`},
		{"cells.trace", `{"cell":"foreign"}`, `cell_not_found: there is no cell foreign in this branch`},
	} {
		value, failure := r.Call(t.Context(), binding.Caller{Branch: branch}, c.method, json.RawMessage(c.args))
		got := string(value)
		if failure != nil {
			got = failure.Code + ": " + failure.Message
		}
		if got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.method, c.args, got, c.want)
		}
	}
}

// The tests in Python, on real files and against a real kernel.
func TestPython(t *testing.T) { pykerneltest.Unittest(t, "test_cells") }
