package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Caps of what a model sees of one result, in bytes of its text.
const (
	MaxResult     = 32 << 10
	maxValue      = 8 << 10
	maxMessage    = 2 << 10
	maxTraceback  = 8 << 10
	maxMarkerText = 100
	maxPath       = 1 << 10
	// maxImageErrors is a number: more than these are not told.
	maxImageErrors = 8
)

// Result is how a cell ended, as its python kernel reports it and as it is stored for clients.
type Result struct {
	// Note is said first; it is for news such as that the names of an earlier kernel are gone.
	Note       string `json:"note,omitempty"`
	CellID     string `json:"cell_id,omitempty"`
	Status     string `json:"status"`
	DurationMS int64  `json:"duration_ms"`
	// Value is the repr of a final expression, empty if there is none.
	Value  string       `json:"value,omitempty"`
	Error  *ResultError `json:"error,omitempty"`
	Output Output       `json:"output,omitzero"`
	// Repair says how a failed cell is run again without sending it whole.
	Repair string `json:"repair,omitempty"`
	// ImageErrors says which images are not with the result, and why.
	ImageErrors []string `json:"image_errors,omitempty"`
	// Calls names the bindings that the code calls, sorted.
	Calls []string `json:"calls,omitempty"`
	// Images are for clients; the model gets them with its message.
	Images []Image `json:"images,omitempty"`
}

// Image says where the bytes of an image that a cell has shown are had.
type Image struct {
	Media string `json:"media"`
	Size  int64  `json:"size"` // bytes
	Name  string `json:"name,omitempty"`
	Path  string `json:"path"` // of the API
}

// Backgrounded is the status of a cell that goes on while its caller does other things; it is no end.
const Backgrounded = "backgrounded"

// advice is what a model reads with the status Backgrounded.
const advice = "the cell goes on, and you are told when it ends: do other useful work, or report where things stand and end your turn; do not poll or sleep"

// ResultError is the exception that ended a cell, or why it could not run (then without a traceback).
type ResultError struct {
	Type      string `json:"type,omitempty"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
}

// Output is what a cell printed: its first bytes, and when those are not all its last bytes. Size is the true size.
type Output struct {
	Head  string `json:"head,omitempty"`
	Tail  string `json:"tail,omitempty"`
	Size  int64  `json:"size"`
	Spill *Spill `json:"spill,omitempty"`
}

// Spill is the file that holds the output of a cell from its first byte on.
type Spill struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"`  // in bytes
	Whole bool   `json:"whole"` // false: what came after Size bytes is not in the file
}

// line is what a model reads first of a result.
type line struct {
	Note        string   `json:"note,omitempty"`
	Status      string   `json:"status"`
	DurationMS  int64    `json:"duration_ms"`
	Value       string   `json:"value,omitempty"`
	ValueSize   int      `json:"value_size,omitempty"`
	Error       string   `json:"error,omitempty"`
	CellID      string   `json:"cell_id,omitempty"`
	Truncated   string   `json:"truncated,omitempty"`
	Repair      string   `json:"repair,omitempty"`
	ImageErrors []string `json:"image_errors,omitempty"`
	Advice      string   `json:"advice,omitempty"`
}

// Render puts a result into words for a model: one JSON line with the fields that say something, then the output and the
// traceback as they are, for escaped text costs more tokens (P-036). What could not run has neither, and reads as it is stored.
// It is valid UTF-8 of at most MaxResult bytes; what is left out is named with the true size (K-15).
func Render(r Result) string {
	if r.couldNotRun() {
		return string(encode(r.clipped()))
	}
	l := line{Note: clipEncoded(r.Note, maxMessage), Status: clipEncoded(r.Status, 100), DurationMS: r.DurationMS,
		Value: clipEncoded(r.Value, maxValue), Repair: clipEncoded(r.Repair, maxMessage)}
	if len(l.Value) < len(r.Value) {
		l.ValueSize = len(r.Value)
		l.CellID = clipEncoded(r.CellID, 200)
	}
	for _, text := range r.ImageErrors[:min(len(r.ImageErrors), maxImageErrors)] {
		l.ImageErrors = append(l.ImageErrors, clipEncoded(text, 500))
	}
	if r.Status == Backgrounded {
		l.Advice = advice
	}
	var trace string
	if e := r.Error; e != nil {
		trace = cut(e.Traceback, "", int64(len(e.Traceback)), maxTraceback)
		if trace == "" {
			l.Error = clipEncoded(strings.TrimPrefix(e.Type+": "+e.Message, ": "), maxMessage)
		} else {
			l.Error = clipEncoded(e.Type, 200)
		}
	}
	if (r.Error != nil || r.Status == Backgrounded) && r.Repair == "" {
		l.CellID = clipEncoded(r.CellID, 200)
	}
	// The room for the output is what is left once the widest line is written.
	short := l
	l.truncate(r)
	room := MaxResult - len(encode(l)) - len(trace) - 3
	out := cut(r.Output.Head, r.Output.Tail, r.Output.Size, room)
	if int64(len(out)) == r.Output.Size {
		l = short
	}
	var b strings.Builder
	b.Write(encode(l))
	for _, part := range []string{out, trace} {
		if part = strings.TrimRight(part, "\n"); part != "" {
			b.WriteString("\n" + part)
		}
	}
	return b.String()
}

// couldNotRun says that there is nothing but the reason to tell.
func (r Result) couldNotRun() bool {
	return r.Error != nil && r.Error.Traceback == "" && r.Output.Size == 0 && r.Output.Head == "" && r.Value == "" && r.DurationMS == 0
}

// clipped is r as it is stored, within the bounds of what a model reads.
func (r Result) clipped() Result {
	return Result{
		Note: clipEncoded(r.Note, maxMessage), CellID: clipEncoded(r.CellID, 200), Status: clipEncoded(r.Status, 100),
		Error: &ResultError{Type: clipEncoded(r.Error.Type, 200), Message: clipEncoded(r.Error.Message, maxMessage)},
	}
}

// truncate says that the output is more than what follows, and where the rest is to be had.
func (l *line) truncate(r Result) {
	l.Truncated, l.CellID = fmt.Sprintf("the output has %d bytes", r.Output.Size), clipEncoded(r.CellID, 200)
	switch s := r.Output.Spill; {
	case s == nil:
	case s.Whole:
		l.Truncated += ", all in " + clipEncoded(s.Path, maxPath)
	default:
		l.Truncated += fmt.Sprintf(", the first %d in %s", s.Size, clipEncoded(s.Path, maxPath))
	}
}

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and numbers only
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// cut returns head and tail within room bytes; where something is missing a line says which bytes.
func cut(head, tail string, size int64, room int) string {
	if have := int64(len(head) + len(tail)); have >= size {
		head, tail, size = head+tail, "", have
		if valid := strings.ToValidUTF8(head, "?"); len(valid) <= room {
			return valid
		}
		tail = head
	} else if len(head)+len(tail)+maxMarkerText <= room {
		return join(head, tail, size)
	}
	room -= maxMarkerText
	back := min(len(tail), room/4)
	front := min(len(head), room-back)
	return join(head[:whole(head, front)], tail[after(tail, len(tail)-back):], size)
}

func join(front, back string, size int64) string {
	return fmt.Sprintf("%s\n[bytes %d to %d of %d are not shown]\n%s",
		strings.ToValidUTF8(front, "?"), len(front), size-int64(len(back)), size, strings.ToValidUTF8(back, "?"))
}

// whole and after move a cut to the nearest character border, down and up.
func whole(s string, n int) int {
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

func after(s string, n int) int {
	for n < len(s) && !utf8.RuneStart(s[n]) {
		n++
	}
	return n
}

// clipEncoded returns the longest beginning of s whose JSON form has at most room bytes.
func clipEncoded(s string, room int) string {
	s = strings.ToValidUTF8(s, "?")
	for i, c := range s {
		switch {
		case c == '"', c == '\\':
			room -= 2
		case c < 0x20, c == 0x7f, c == '\u2028', c == '\u2029':
			room -= 6
		default:
			room -= utf8.RuneLen(c)
		}
		if room < 0 {
			return s[:i]
		}
	}
	return s
}
