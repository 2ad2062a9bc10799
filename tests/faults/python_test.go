package faults

import (
	"time"

	"soma/client"
	"soma/ident"
	"soma/wire"
)

// python is a session for cells without an agent, in the workspace of a place.
type python struct {
	*place
	c       *client.Client
	session wire.Session
}

// python starts the daemon, and a python kernel in which x is 41.
func (p *place) python() *python {
	p.t.Helper()
	p.run("ps").ends(0)
	y := &python{place: p, c: p.client()}
	var err error
	open := wire.OpenSession{Kind: wire.SessionPy, Workspace: p.dir}
	if y.session, err = y.c.OpenSession(p.t.Context(), ident.New(time.Now()).String(), open); err != nil {
		p.t.Fatal(err)
	}
	if y.session, err = y.c.Session(p.t.Context(), y.session.ID); err != nil {
		p.t.Fatal(err)
	}
	y.ok("x = 41")
	return y
}

// begin gives code to the kernel under an id of its own and returns the cell's.
func (y *python) begin(code string) string {
	y.t.Helper()
	cell, err := y.c.RunCell(y.t.Context(), y.session.ID, ident.New(time.Now()).String(), wire.RunCell{Code: code})
	if err != nil {
		y.t.Fatal(err)
	}
	return cell.ID
}

// end waits for the end of a cell.
func (y *python) end(id string) (cell wire.Cell) {
	y.t.Helper()
	y.until("the end of a cell", func() bool {
		var err error
		if cell, err = y.c.Cell(y.t.Context(), id); err != nil {
			y.t.Fatal(err)
		}
		return cell.State == "ended"
	})
	return cell
}

// cell runs code to its end.
func (y *python) cell(code string) wire.Cell {
	y.t.Helper()
	return y.end(y.begin(code))
}

// ok runs code that must not fail and returns the value of its last expression.
func (y *python) ok(code string) string {
	y.t.Helper()
	cell := y.cell(code)
	if cell.Status != "ok" {
		y.t.Fatalf("%.200s: %s %+v %s", code, cell.Status, cell.Error, cell.Note)
	}
	if cell.Value == nil {
		return ""
	}
	return *cell.Value
}

// raises runs code that must end with an exception, and checks the line of it.
func (y *python) raises(code, line string) {
	y.t.Helper()
	cell := y.cell(code)
	if cell.Status != "error" || cell.Error == nil || cell.Error.Type+": "+cell.Error.Message != line {
		y.t.Errorf("%.200s: %s %+v %s, want %q", code, cell.Status, cell.Error, cell.Note, line)
	}
}

// output reads a cell's output whole, in pages of a size.
func (y *python) output(cell string, limit int64) string {
	y.t.Helper()
	var text []byte
	for at := int64(0); ; {
		page, err := y.c.Output(y.t.Context(), cell, at, limit)
		if err != nil || page.Offset != at || !page.Kept || page.Next <= at && !page.EOF {
			y.t.Fatalf("at %d: %+v (%v)", at, page, err)
		}
		text, at = append(text, page.Text...), page.Next
		if page.EOF {
			return string(text)
		}
	}
}

// prints runs code and checks the output.
func (y *python) prints(code, text string) string {
	y.t.Helper()
	cell := y.cell(code)
	if got := y.output(cell.ID, wire.MaxOutput); got != text || cell.Status != "ok" || cell.OutputSize != int64(len(text)) {
		y.t.Errorf("%.200s: %s, printed %d bytes (%d): %.300q, want %.300q %+v", code, cell.Status, len(got), cell.OutputSize, got, text, cell.Error)
	}
	return cell.ID
}

// lives checks that the kernel is the same, with its names.
func (y *python) lives() {
	y.t.Helper()
	if v := y.ok("x + 1"); v != "42" {
		y.t.Errorf("x + 1 is %s", v)
	}
}

// lost checks that the kernel's names are gone, which the next cell says once.
func (y *python) lost() {
	y.t.Helper()
	for _, note := range []bool{true, false} {
		cell := y.cell("'x' in dir()")
		if cell.Value == nil || *cell.Value != "False" || note != (cell.Note != "") {
			y.t.Errorf("the next cell is %+v", cell)
		}
	}
}
