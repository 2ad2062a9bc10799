package cli

import (
	"fmt"
	"strings"
	"time"

	"soma/internal/cli/plain"
	"soma/wire"
)

// Bounds of what a transcript shows of one cell; all of it is in `soma logs --cell`.
const (
	maxCodeLines   = 24
	maxOutputLines = 30
	maxOutputBytes = 8 << 10
	maxPending     = 64 << 10 // bytes of output, and one frame more, kept for a cell whose turn to be shown has not come
)

const (
	codeIndent   = "  | "
	outputIndent = "    "
)

// cellView is a call as the transcript shows it: code, output, outcome. Calls of one answer are shown one after the other;
// what comes early for a later one waits.
type cellView struct {
	call, cell, tool string
	code             string
	begun, done      bool
	taken            int64  // bytes of output that were taken up, from the first on
	pending          string // taken and not printed yet
	printed          int64  // bytes
	lines            int
	cleaner          plain.Cleaner
	result           *outcome
	whole            bool // show all lines of the code
}

// outcome is how a call or cell ended.
type outcome struct {
	status, value, fault, note string
	head, tail                 string
	size                       int64
	took                       time.Duration
	shown                      wire.Shown
}

func (t *transcript) cellStarted(b wire.CellEvent) {
	for _, v := range t.calls {
		if v.cell == b.Cell.ID {
			return
		}
	}
	t.calls = append(t.calls, &cellView{cell: b.Cell.ID, tool: "python", code: b.Cell.Code, whole: t.whole})
	t.showCalls()
}

func (t *transcript) output(o wire.OutputEvent) {
	for _, v := range t.calls {
		if v.cell == o.Cell && !v.done && v.result == nil {
			v.take(o)
			t.showCalls()
			return
		}
	}
}

func (v *cellView) take(o wire.OutputEvent) {
	if text, ok := beyond(o.Text, o.Offset, v.taken); ok && len(v.pending) < maxPending {
		v.taken += int64(len(text))
		v.pending += text
	}
}

func (t *transcript) toolResult(b wire.ToolResultEvent) {
	for _, v := range t.calls {
		// Ids of calls are the provider's and may repeat; those of cells do not.
		if !v.done && v.result == nil && v.cell == b.Cell && v.call == b.CallID {
			v.result = &outcome{
				status: b.Status, fault: b.Error, note: b.Note, head: b.Output, tail: b.Tail, size: b.OutputSize,
				took: time.Duration(b.DurationMS) * time.Millisecond, shown: b.Shown,
			}
			if b.Value != nil {
				v.result.value = *b.Value
			}
			break
		}
	}
	t.showCalls()
	t.move(b.State)
}

func (t *transcript) cellEnded(b wire.CellEvent) {
	t.cellStarted(b) // a cell may be followed from its end on
	for _, v := range t.calls {
		if v.cell == b.Cell.ID && !v.done {
			v.result = outcomeOf(b)
		}
	}
	t.showCalls()
	t.calls = nil
}

func outcomeOf(b wire.CellEvent) *outcome {
	o := &outcome{
		status: b.Cell.Status, note: b.Cell.Note, head: b.Output, tail: b.Tail, size: b.Cell.OutputSize,
		took: time.Duration(b.Cell.DurationMS) * time.Millisecond, shown: b.Cell.Shown,
	}
	if b.Cell.Value != nil {
		o.value = *b.Cell.Value
	}
	if f := b.Cell.Error; f != nil {
		if o.fault = f.Traceback; o.fault == "" {
			o.fault = f.Type + ": " + f.Message
		}
	}
	return o
}

// showCalls shows as much as call order allows.
func (t *transcript) showCalls() {
	for _, v := range t.calls {
		if v.done {
			continue
		}
		if !v.begun {
			v.begun = true
			v.showCode(t.s)
		}
		v.print(t.s, v.pending)
		v.pending = ""
		if v.result == nil {
			return
		}
		v.showResult(t.s, t.picture)
		v.done = true
	}
}

func (v *cellView) showCode(s *screen) {
	s.block()
	if v.tool != "python" {
		s.line(ansiDim, codeIndent, v.tool)
	}
	lines := strings.Split(strings.TrimRight(plain.Clean(v.code), "\n"), "\n")
	for i, line := range lines {
		if i == maxCodeLines && len(lines) > maxCodeLines+1 && !v.whole {
			s.line(ansiDim, codeIndent, fmt.Sprintf("… %d more lines", len(lines)-i))
			return
		}
		s.line(ansiDim, codeIndent, line)
	}
}

// print writes output until the bounds are reached.
func (v *cellView) print(s *screen, text string) {
	for text != "" && v.lines < maxOutputLines && v.printed < maxOutputBytes {
		line, rest, ended := strings.Cut(text, "\n")
		if room := maxOutputBytes - v.printed; int64(len(line)) > room {
			line, rest, ended = strings.ToValidUTF8(line[:room], ""), "", false
			v.printed = maxOutputBytes
		} else {
			v.printed += int64(len(line))
		}
		if ended {
			line += "\n"
			v.printed++
			v.lines++
		}
		s.write("", outputIndent, v.cleaner.Clean(line))
		text = rest
	}
}

func (v *cellView) showResult(s *screen, show picture) {
	r := v.result
	if text, ok := beyond(r.head, 0, v.taken); ok {
		v.print(s, text)
	}
	if more := r.size - v.printed; more > 0 {
		text := fmt.Sprintf("… %s more of output", plain.Size(more))
		if v.cell != "" {
			text += ": soma logs --cell " + v.cell
		}
		s.line(ansiDim, outputIndent, text)
	}
	if r.fault != "" {
		s.endLine()
		s.write(ansiRed, outputIndent, clip(plain.Clean(r.fault))+"\n")
	}
	if r.value != "" {
		s.endLine()
		s.write("", outputIndent, "= "+clip(plain.Clean(r.value))+"\n")
	}
	s.showImages(show, v.cell, r.shown)
	for _, text := range []string{r.note, r.shown.Repair} {
		if text != "" {
			s.line(ansiDim, outputIndent, plain.Clean(text))
		}
	}
	style := ansiDim
	if r.status != "ok" && r.status != background {
		style = ansiRed
	}
	s.line(style, "  ", fmt.Sprintf("[%s, %s]", status(r.status), seconds(r.took)))
}

// clip bounds a text like output, keeping its end, where an error says what it is.
func clip(text string) string {
	text = strings.TrimRight(text, "\n")
	if over := len(text) - maxOutputBytes; over > 0 {
		text = "… " + strings.ToValidUTF8(text[over:], "")
	}
	lines := strings.Split(text, "\n")
	if over := len(lines) - maxOutputLines; over > 0 {
		lines = append([]string{"…"}, lines[over:]...)
	}
	return strings.Join(lines, "\n")
}

// rest gives what of the kept output lies past the first n bytes to text, and the length of a part that was not kept with
// the result, between its head and its tail, to gap.
func (r *outcome) rest(n int64, text func(string) error, gap func(int64) error) error {
	if t, ok := beyond(r.head, 0, n); ok {
		if err := text(t); err != nil {
			return err
		}
		n = int64(len(r.head))
	}
	start := r.size - int64(len(r.tail))
	if start > n {
		if err := gap(start - n); err != nil {
			return err
		}
		n = start
	}
	if t, ok := beyond(r.tail, start, n); ok {
		return text(t)
	}
	return nil
}

// background is the status of a cell that goes on after its call has ended.
const background = "backgrounded"

func status(s string) string {
	switch s {
	case background:
		return "runs on in the background"
	case "unknown":
		return "result unknown: it may have happened, and was not repeated"
	case "timed_out":
		return "timed out"
	case "not_started":
		return "not started"
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
