package process_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/agent/tool"
	"soma/internal/process"
	"soma/internal/pykernel/supervise"
	"soma/message"
	"soma/wire"
)

// K-10, P-022: the calls of one message enter the python kernel in call order and run side by side; their results join in
// call order, whichever ends first. The cell row is committed with its execute frame.
func TestParallelCalls(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls:
      - python: |
          import asyncio
          order = ["a"]
          while len(order) < 4: await asyncio.sleep(0.005)
          order
      - python: "order.append('b'); await asyncio.sleep(0.2); order.append('d'); 'second'"
      - {tool: none, arguments: {}}
      - python: "order.append('c'); 'fourth'"
  - say: '{{range .Results}}{{.Value}};{{end}}'
`}, withPython)
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	if h := w.history(pid); h[len(h)-1].Text != `['a', 'b', 'c', 'd'];'second';;'fourth';` {
		t.Errorf("answer %s", h[len(h)-1].Text)
	}
	var ends []int
	for _, r := range bodies[wire.ToolResultEvent](w, "s", wire.ToolResult) {
		ends = append(ends, r.Position)
	}
	if fmt.Sprint(ends) != "[2 3 1 0]" {
		t.Errorf("results came in order %v", ends)
	}
	if n := w.one(`select count(*) from cell where state = 'ended' and pid = ?`, int64(pid)); n != 3 {
		t.Errorf("%d cells ended", n)
	}
	w.await("the kernel's end", func() bool { return w.one(`select count(*) from kernel where state = 'ended'`) == 1 })
	if w.host.SessionOfCell(bodies[wire.StepEndedEvent](w, "s", wire.StepEnded)[0].Cells[0]) != "" {
		t.Error("a cell that has ended is taken for a live one")
	}
}

// P-016, P-122: a python kernel whose outbox is full gets no more cells: a caller hears that it is busy and may send the same
// again, an agent's calls get errors.
func TestFullOutbox(t *testing.T) {
	var full atomic.Bool
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls: [{python: "1"}]
  - calls: [{python: "2"}, {tool: none, arguments: {}}]
  - say: '{{range .Results}}{{.Status}};{{end}}'
`}, withPython, withHost(func(o *process.Options) {
		o.Room = func(string) error {
			if full.Load() {
				return supervise.ErrOutboxFull
			}
			return nil
		}
	}))
	w.py("s")
	w.run("s", "a", "1")
	full.Store(true)
	_, err := w.host.RunCell(t.Context(), "s", "b", wire.RunCell{Code: "2"})
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.Busy || !strings.Contains(e.Title, "too many frames wait") {
		t.Errorf("a full outbox: %v", err)
	}
	if c, err := w.host.RunCell(t.Context(), "s", "a", wire.RunCell{Code: "1"}); err != nil || c.State != "ended" {
		t.Errorf("a repeat of what was taken: %+v, %v", c, err)
	}
	full.Store(false)
	if c := w.run("s", "b", "2"); c.Status != "ok" {
		t.Errorf("sent again: %+v", c)
	}

	cells := w.one(`select count(*) from cell`)
	full.Store(true)
	pid := w.open("p", "m", false) // its first call makes the python kernel
	w.admit("p", "a", "x")
	w.ended(pid)
	if n := w.one(`select count(*) from cell`); n != cells+1 {
		t.Errorf("%d cells, then %d", cells, n)
	}
	h := w.history(pid)
	if text := h[len(h)-1].Text; text != "ok;error;error;" {
		t.Errorf("answer %s", text)
	}
	if text := h[len(h)-3].Text; text != "not started: too many frames wait for the python kernel" {
		t.Errorf("result %s", text)
	}
}

// K-15, P-036: the model sees 32 KiB of a large result with its true size, events show its beginning and end, and the whole is
// read in pages, stored once.
func TestLargeOutput(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls:
      - python: 'for i in range(20000): print(f"line {i:06} €")'
  - say: '{{.Last.Status}}'
`}, withPython)
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	var all strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&all, "line %06d €\n", i)
	}
	text := w.history(pid)[2].Text
	if len(text) > tool.MaxResult || !strings.Contains(text, fmt.Sprintf("of %d are not shown", all.Len())) || !strings.Contains(text, "line 000000 €") || !strings.Contains(text, "line 019999 €") {
		t.Errorf("the model sees %d bytes", len(text))
	}
	ev := bodies[wire.ToolResultEvent](w, "s", wire.ToolResult)[0]
	if ev.OutputSize != int64(all.Len()) || !strings.HasPrefix(all.String(), ev.Output) || !strings.HasSuffix(all.String(), ev.Tail) || ev.Output == "" || ev.Tail == "" {
		t.Errorf("event with %d and %d of %d bytes", len(ev.Output), len(ev.Tail), ev.OutputSize)
	}
	var got strings.Builder
	for offset := int64(0); ; {
		p, err := w.host.Output(t.Context(), ev.Cell, offset, 9999)
		w.must(err)
		if !utf8.ValidString(p.Text) || len(p.Text) > 9999 || !p.Kept || p.Next != offset+int64(len(p.Text)) {
			t.Fatalf("page %d to %d", offset, p.Next)
		}
		got.WriteString(p.Text)
		if offset = p.Next; p.EOF {
			break
		}
	}
	if got.String() != all.String() {
		t.Errorf("paged %d of %d bytes", got.Len(), all.Len())
	}
	if n := w.one(`select count(*) from content`); n != 1 {
		t.Errorf("%d contents", n)
	}
}

// K-15: paging goes over what was kept of the beginning, says what was not kept, and goes on with the end; pages end on
// characters, however small they are and wherever they begin.
func TestOutputPages(t *testing.T) {
	w := newWorld(t, nil, withPython)
	w.py("s")
	c := w.run("s", "a", "import sys\nx = '€😀é.' * 100\nsys.stdout.write('a' + '😀' * 400000 + x)")
	size := int64(1 + 4*400000 + 100*(3+4+2+1))
	if c.OutputSize != size {
		t.Fatalf("size %d", c.OutputSize)
	}
	var kept strings.Builder
	gaps, from := 0, int64(0)
	for offset := int64(0); ; {
		limit := int64(1 << 20)
		if offset > 1000 && offset < 1200 || offset > size-500 {
			limit = 1 + offset%6
		}
		p, err := w.host.Output(t.Context(), c.ID, offset, limit)
		w.must(err)
		if !utf8.ValidString(p.Text) || p.Next <= offset && !p.EOF || p.Size != size {
			t.Fatalf("page from %d: %d bytes to %d", offset, len(p.Text), p.Next)
		}
		if offset == 0 {
			p, err = w.host.Output(t.Context(), c.ID, 0, 1001) // then small ones
			w.must(err)
		}
		if !p.Kept {
			gaps, from = gaps+1, p.Next
			if p.Text != "" {
				t.Errorf("a page of what was not kept has text")
			}
		}
		kept.WriteString(p.Text)
		if offset = p.Next; p.EOF {
			break
		}
	}
	if gaps != 1 || size-from > 64<<10 || !strings.HasPrefix(kept.String(), "a😀😀") || !strings.HasSuffix(kept.String(), "😀"+strings.Repeat("€😀é.", 100)) {
		t.Errorf("%d gaps, the end from %d of %d, %d bytes kept", gaps, from, size, kept.Len())
	}
	for _, offset := range []int64{2, 3, 4} { // within the first 😀
		p, err := w.host.Output(t.Context(), c.ID, offset, 4)
		w.must(err)
		if p.Text != "😀" || p.Next != 9 {
			t.Errorf("page from %d: %q to %d", offset, p.Text, p.Next)
		}
	}
	if p, err := w.host.Output(t.Context(), c.ID, size, 10); err != nil || !p.EOF || p.Text != "" {
		t.Errorf("at the end: %+v, %v", p, err)
	}
	for _, offset := range []int64{-1, size + 1} {
		if _, err := w.host.Output(t.Context(), c.ID, offset, 10); code(err) != wire.BadRequest {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if _, err := w.host.Output(t.Context(), "none", 0, 10); code(err) != wire.NotFound {
		t.Errorf("no cell: %v", err)
	}
	if p, err := w.host.Output(t.Context(), w.run("s", "b", "1").ID, 0, 10); err != nil || !p.EOF || p.Text != "" {
		t.Errorf("a cell that wrote nothing: %+v, %v", p, err)
	}
}

// py opens a session of kind py.
func (w *world) py(session string) {
	w.t.Helper()
	_, err := w.host.Open(w.t.Context(), session, wire.OpenSession{Kind: wire.SessionPy, Workspace: w.folder})
	w.must(err)
}

// run runs a cell of a session of kind py to its end.
func (w *world) run(session, id, source string) wire.Cell {
	w.t.Helper()
	c, err := w.host.RunCell(w.t.Context(), session, id, wire.RunCell{Code: source})
	w.must(err)
	w.await("the end of cell "+id, func() bool {
		c, err = w.host.Cell(w.t.Context(), c.ID)
		return err != nil || c.State == "ended"
	})
	w.must(err)
	return c
}

// I-21, P-022: a cell of a session of kind py is run once however often it is sent; the names live on in its python kernel
// until that ends, and the next one's first result says so.
func TestCellsWithoutAnAgent(t *testing.T) {
	w := newWorld(t, map[string]string{"m": greet}, withPython)
	w.py("s")
	w.run("s", "a", "x = 20; open('runs', 'a').write('x')")
	w.restart()
	if again := w.run("s", "a", "x = 20; open('runs', 'a').write('x')"); again.Status != "ok" || *again.Value != "1" {
		t.Errorf("sent again: %+v", again)
	}
	if c := w.run("s", "b", "x + 1, len(open('runs').read())"); *c.Value != "(21, 1)" || c.Note != "" {
		t.Errorf("cell %+v", c)
	}
	if _, err := w.host.RunCell(t.Context(), "s", "a", wire.RunCell{Code: "y"}); code(err) != wire.Conflict {
		t.Errorf("another cell under the id: %v", err)
	}
	if c := w.run("s", "c", "1 / 0"); c.Status != "error" || c.Error == nil || c.Error.Type != "ZeroDivisionError" {
		t.Errorf("cell %+v", c)
	}
	long, err := w.host.RunCell(t.Context(), "s", "d", wire.RunCell{Code: "import time\nwhile True: time.sleep(0.01)"})
	w.must(err)
	if w.host.SessionOfCell(long.ID) != "s" {
		t.Error("the cell's session is not known")
	}
	w.restart()
	if w.host.SessionOfCell(long.ID) != "s" {
		t.Error("the cell's session is not known to the next daemon")
	}
	_, err = w.host.InterruptCell(t.Context(), long.ID)
	w.must(err)
	if c := w.run("s", "d", long.Code); c.Status != "interrupted" {
		t.Errorf("cell %+v", c)
	}
	if c, err := w.host.InterruptCell(t.Context(), long.ID); err != nil || c.Status != "interrupted" {
		t.Errorf("interrupted again: %+v, %v", c, err)
	}
	if c := w.run("s", "e", "import os; os._exit(3)"); c.Status != "unknown" || !strings.Contains(c.Note, "unknown") {
		t.Errorf("cell %+v", c)
	}
	if c := w.run("s", "f", "x"); c.Status != "error" || !strings.HasPrefix(c.Note, "names of the earlier kernel are gone") {
		t.Errorf("cell %+v", c)
	}
	if c := w.run("s", "g", "1"); c.Note != "" {
		t.Errorf("told twice: %+v", c)
	}
	s, err := w.host.Close(t.Context(), "s")
	w.must(err)
	if s.State != "closed" {
		t.Errorf("session %+v", s)
	}
	w.await("the kernel's end", func() bool { return w.one(`select count(*) from kernel where state <> 'ended'`) == 0 })
	if _, err := w.host.RunCell(t.Context(), "s", "h", wire.RunCell{Code: "1"}); code(err) != wire.SessionClosed {
		t.Errorf("a cell of a closed session: %v", err)
	}
	w.open("agent", "m", true)
	if _, err := w.host.RunCell(t.Context(), "agent", "a", wire.RunCell{Code: "1"}); code(err) != wire.Unprocessable {
		t.Errorf("a cell of a session of agents: %v", err)
	}
	w.py("other")
	if _, err := w.host.Admit(t.Context(), "other", "a", wire.Input{Text: "x"}); code(err) != wire.Unprocessable {
		t.Errorf("an input to a session of cells: %v", err)
	}
	if n := len(bodies[wire.CellEvent](w, "s", wire.CellStarted)); n != 7 {
		t.Errorf("%d cells told of", n)
	}
}

// The kernel of a long-idle branch ends for one more than may live; its next result says that the names are gone, to the model
// too.
func TestOneKernelTooMany(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls: [{python: 'x = 1'}]
  - say: one
  - calls: [{python: 'x'}]
  - say: '{{.Last.Text}}'
`}, withPython, func(w *world) { w.kernel = func(o *supervise.Options) { o.MaxLive = 2 } })
	pid := w.open("a", "m", true)
	w.admit("a", "1", "x")
	w.awaitState(pid, wire.Blocked, "waiting for input")
	w.py("b")
	w.run("b", "1", "1")
	w.py("c")
	w.run("c", "1", "1")
	w.admit("a", "2", "y")
	w.awaitEvent("a", wire.TurnEnded, 2, nil)
	h := w.history(pid)
	if text := h[len(h)-1].Text; !strings.HasPrefix(text, `{"note":"names of the earlier kernel are gone`) || !strings.Contains(text, "NameError") {
		t.Errorf("the model reads %s", text)
	}
	if n := w.one(`select count(*) from kernel where state <> 'ended'`); n > 2 {
		t.Errorf("%d kernels live", n)
	}
}

// N-19: an agent turn of 200 cells goes through; no hop is too deep.
func TestLongTurn(t *testing.T) {
	var steps strings.Builder
	for range 200 {
		steps.WriteString("  - calls: [{python: 'n = globals().get(\"n\", 0) + 1; n'}]\n")
	}
	w := newWorld(t, map[string]string{"m": "name: m\nsteps:\n" + steps.String() + "  - say: '{{.Last.Value}}'\n"}, withPython)
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	h := w.history(pid)
	if h[len(h)-1].Text != "200" || len(h) != 402 {
		t.Errorf("%d messages, the last says %s", len(h), h[len(h)-1].Text)
	}
	if n := w.one(`select count(*) from dead_letter`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	p := w.process(pid)
	if p.Cells != 200 || p.Steps != 201 {
		t.Errorf("process %+v", p)
	}
}

// A tool call's stored result has the same fields as its cell.
// P-036, K-07
func TestStoredResult(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{calls: [{python: 'print(\"<out>\"); 6 * 7'}]}, {say: end}]\n"}, withPython)
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	m := w.history(pid)[2]
	var r tool.Result
	w.must(json.Unmarshal(m.Result, &r))
	c, err := w.host.Cell(t.Context(), r.CellID)
	w.must(err)
	if m.Role != message.Tool || m.Status != message.OK || r.Value != "42" || r.Output.Head != "<out>\n" || *c.Value != "42" || c.PID != pid || c.OutputSize != 6 {
		t.Errorf("message %+v, cell %+v", m, c)
	}
	if _, err := ident.Parse(c.ID); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(m.Text, "\n<out>") {
		t.Errorf("the model reads %q", m.Text)
	}
}
