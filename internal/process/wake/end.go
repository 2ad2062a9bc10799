package wake

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"soma/internal/pykernel"
)

// Bounds of one end, in bytes.
const (
	maxWhat  = 200
	maxTail  = 1 << 10
	maxValue = 500
	maxNote  = 300
)

// Kind says what has ended.
type Kind string

// The kinds.
const (
	Cell Kind = "cell"
	Job  Kind = "job"
)

// Lost is the status of a job whose python kernel has ended: it was stopped with it.
const Lost = "stopped with its python kernel"

// End is one cell or job that has ended in the background. It is a value, stored as JSON with the wake that tells of it.
type End struct {
	Kind   Kind   `json:"kind"`
	Kernel string `json:"kernel"` // ids of jobs are its own
	ID     string `json:"id"`
	// Status is a cell's status, or Lost; ExitCode is a job's, nil where nobody knows it.
	Status     string `json:"status,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	// What is the first line of a cell's code, or a job's command.
	What  string `json:"what"`
	Value string `json:"value,omitempty"` // the beginning of a cell's value, or of its error
	Note  string `json:"note,omitempty"`
	Size  int64  `json:"size"`           // of the output in bytes
	Tail  string `json:"tail,omitempty"` // the end of the output
	Read  bool   `json:"read,omitempty"` // since
}

// OfCell returns the end of a cell with this code.
func OfCell(m pykernel.CellEnded, code string) End {
	e := End{Kind: Cell, Kernel: m.Kernel, ID: m.Cell, Status: string(m.Status), DurationMS: m.DurationMS, What: FirstLine(code),
		Note: front(m.Note, maxNote), Size: m.Output.Size, Tail: back(m.Output.Head+m.Output.Tail, maxTail)}
	switch {
	case m.Error != nil:
		e.Value = front(m.Error.Type+": "+m.Error.Message, maxValue)
	case m.Value != nil:
		e.Value = front(*m.Value, maxValue)
	}
	return e
}

// OfJob returns the end of a job.
func OfJob(m pykernel.JobEnded) End {
	return End{Kind: Job, Kernel: m.Kernel, ID: m.Job, ExitCode: m.ExitCode, TimedOut: m.TimedOut, DurationMS: m.DurationMS,
		What: FirstLine(m.Command), Size: m.Bytes, Tail: back(m.Tail, maxTail)}
}

// OfLostJob returns the end of a job that was stopped with its python kernel.
func OfLostJob(kernel, job, command string) End {
	return End{Kind: Job, Kernel: kernel, ID: job, Status: Lost, What: FirstLine(command)}
}

// Line is the end in one line, for people.
func (e End) Line() string {
	var how []string
	switch {
	case e.Kind == Cell:
		how = append(how, "status="+e.Status)
	case e.Status == Lost:
		return fmt.Sprintf("job %s: %s", Lost, e.What)
	case e.ExitCode != nil:
		how = append(how, fmt.Sprintf("exit_code=%d", *e.ExitCode))
	default:
		how = append(how, "exit status unknown")
	}
	if e.TimedOut {
		how = append(how, "timed out")
	}
	if e.Status != string(pykernel.CellUnknown) { // nobody knows how long that ran
		how = append(how, fmt.Sprintf("ran %.1fs", (time.Duration(e.DurationMS)*time.Millisecond).Seconds()))
	}
	return fmt.Sprintf("%s finished (%s): %s", e.Kind, strings.Join(how, ", "), e.What)
}

// notice is the end as the model reads it.
func (e End) notice() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s id: %s", e.Line(), e.Kind, e.ID)
	if e.Kind == Job && e.Status != Lost {
		fmt.Fprintf(&b, ", handle: jobs[%q]", e.ID)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "\nnote: %s", e.Note)
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "\nresult: %s", e.Value)
	}
	switch {
	case e.Status == Lost:
	case e.Size == 0:
		b.WriteString("\nit printed nothing")
	case int64(len(e.Tail)) >= e.Size:
		fmt.Fprintf(&b, "\nall of its output:\n%s", strings.TrimRight(e.Tail, "\n"))
	default:
		fmt.Fprintf(&b, "\nread its output of %d bytes with output.read(%q)", e.Size, e.ID)
		if e.Tail != "" {
			fmt.Fprintf(&b, "; the end of it:\n%s", strings.TrimRight(e.Tail, "\n"))
		}
	}
	return b.String()
}

// FirstLine returns the first line of code or of a command that says something, shortened.
func FirstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return front(line, maxWhat)
		}
	}
	return ""
}

func front(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	for n -= len("…"); !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + "…"
}

func back(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	at := len(s) - n
	for !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}
