package pykernel

// MaxCommand bounds the command of a job in what is kept and shown of it, in characters (P-046).
const MaxCommand = 4096

// JobStart says that a job runs, as one process group of this machine.
type JobStart struct {
	Type      FrameType `json:"type"`
	Job       string    `json:"job"`
	PID       int       `json:"pid"`
	PGID      int       `json:"pgid"`
	Leader    string    `json:"leader"` // start time of the process that leads the group
	Command   string    `json:"command"`
	Service   bool      `json:"service"`
	Cell      string    `json:"cell,omitempty"`
	StartedAt int64     `json:"started_at"` // milliseconds since 1970
}

// JobEnd says that the process of a job has exited.
type JobEnd struct {
	Type     FrameType `json:"type"`
	Job      string    `json:"job"`
	Cell     string    `json:"cell,omitempty"`
	State    string    `json:"state"`
	ExitCode *int      `json:"exit_code,omitempty"` // negative: ended by that signal
	TimedOut bool      `json:"timed_out"`
	EndedAt  int64     `json:"ended_at"` // milliseconds since 1970
	Bytes    int64     `json:"bytes"`    // of its output
	Service  bool      `json:"service"`
	Command  string    `json:"command"`
	Wake     bool      `json:"wake"` // its result is unread and it is no service
	Tail     string    `json:"tail"` // the end of its output, at most MaxJobTail bytes
}

// MaxJobTail bounds the end of the output that comes with a job's end, in bytes.
const MaxJobTail = 2048

// Jobs are the jobs that are no processes of this machine, as of now. A newer one replaces it.
type Jobs struct {
	Type    FrameType `json:"type"`
	Live    int       `json:"live"`
	Awaited int       `json:"awaited"` // those that are no services
	Items   []JobItem `json:"items"`
}

// JobItem is one job of Jobs.
type JobItem struct {
	ID      string `json:"id"`
	Command string `json:"command"`
	Service bool   `json:"service"`
	Started int64  `json:"started"` // milliseconds since 1970 when it was first seen, 0: unknown
}

// Ask asks the python kernel for something that only it knows; it is answered once by an Answer of its type and id. The fields
// of its type are set: of job_list none but ID, of job_read Job and Limit, of job_stop Job, of cell_read Cell and Limit, of
// complete Text and Cursor.
type Ask struct {
	Type FrameType `json:"type"`
	ID   string    `json:"id"`
	Job  string    `json:"job,omitempty"`
	Cell string    `json:"cell,omitempty"`
	// Offset is the first byte of the wanted page; nil means the page at the end.
	Offset *int64  `json:"offset,omitempty"`
	Limit  int     `json:"limit,omitempty"` // bytes, MinPage to MaxPage
	Text   *string `json:"text,omitempty"`
	Cursor *int    `json:"cursor,omitempty"` // in characters of Text
}

// Bounds of a page of output, in bytes (P-050).
const (
	MinPage = 4
	MaxPage = 64 << 10
)

// Answer is the reply to an ask. Exactly the field of its type is set where OK is true; else Code and Error say why not.
type Answer struct {
	Type  FrameType `json:"type"`
	ID    string    `json:"id"`
	OK    bool      `json:"ok"`
	Code  string    `json:"code,omitempty"`
	Error string    `json:"error,omitempty"`
	Jobs  []JobRow  `json:"jobs,omitempty"`  // of job_list
	Page  *Page     `json:"page,omitempty"`  // of job_read and cell_read
	Names []string  `json:"names,omitempty"` // of complete
	Start int       `json:"start,omitempty"` // of complete: where in the text the names begin, in characters
}

// Codes of a refused ask.
const (
	CodeJobNotFound  = "job_not_found"
	CodeCellNotFound = "cell_not_found"
	CodeOutputLost   = "output_lost"
	CodeInvalid      = "invalid"
	CodeBusy         = "busy"
)

// JobRow is one job of the python kernel's own book, which knows finished ones, too.
type JobRow struct {
	ID        string `json:"id"`
	Command   string `json:"command"`
	State     string `json:"state"` // running, exited
	ExitCode  *int   `json:"exit_code,omitempty"`
	TimedOut  bool   `json:"timed_out"`
	Service   bool   `json:"service"`
	StartedAt int64  `json:"started_at"` // milliseconds since 1970
	EndedAt   *int64 `json:"ended_at,omitempty"`
	Bytes     int64  `json:"bytes"`
	Cell      string `json:"cell,omitempty"`
}

// Page is a piece of an output; all of its numbers are bytes.
type Page struct {
	Offset     int64  `json:"offset"`
	NextOffset int64  `json:"next_offset"`
	Size       int64  `json:"size"` // of all that was written so far
	Running    bool   `json:"running"`
	Text       string `json:"text"`
}
