package pykernel

// CellStatus says how a cell ended.
type CellStatus string

// The ends of a cell. The python kernel reports the first four; the daemon makes the others.
const (
	CellOK          CellStatus = "ok"
	CellError       CellStatus = "error"
	CellInterrupted CellStatus = "interrupted"
	CellTimedOut    CellStatus = "timed_out"
	CellUnknown     CellStatus = "unknown"     // the python kernel ended while the cell may have run
	CellNotStarted  CellStatus = "not_started" // the frame was never written to the python kernel
)

// Done is the end of a cell as the python kernel reports it.
type Done struct {
	Type       FrameType  `json:"type"`
	Cell       string     `json:"cell"`
	Status     CellStatus `json:"status"`
	DurationMS int64      `json:"duration_ms"`
	Value      *string    `json:"value,omitempty"`
	Error      *CellFault `json:"error,omitempty"`
	Output     Output     `json:"output"`
	// Calls are the bindings that the cell's source names, dotted and sorted; of a model's cell only.
	Calls       []string     `json:"calls,omitempty"`
	Images      []FrameImage `json:"images,omitempty"`
	ImageErrors []string     `json:"image_errors,omitempty"`
	Repair      string       `json:"repair,omitempty"`
	Background  bool         `json:"background,omitempty"` // it had been backgrounded
	Wake        *bool        `json:"wake,omitempty"`       // false: nobody waits for the result any more
}

// FrameImage is an image that a cell has shown, as its frame carries it.
type FrameImage struct {
	Media string `json:"media"`
	Data  []byte `json:"data"` // base64 in the frame
	Name  string `json:"name,omitempty"`
}

// Bounds of the images of one cell (P-064).
const (
	MaxImages     = 4
	MaxImageBytes = 5 << 20 // of all together
)

// Backgrounded says that a cell goes on behind the caller who waited for it. It comes at most once for a cell.
type Backgrounded struct {
	Type       FrameType `json:"type"`
	Cell       string    `json:"cell"`
	DurationMS int64     `json:"duration_ms"`
	Output     Output    `json:"output"`
}

// Cells counts the cells that are queued or running.
type Cells struct {
	Type     FrameType `json:"type"`
	Live     int64     `json:"live"`
	Bloated  bool      `json:"bloated"`
	Eligible bool      `json:"eligible"` // nothing but names would be lost with the python kernel
}

// CellFault is the exception that ended a cell, its traceback cut to the person's code.
type CellFault struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

// Output is what a cell wrote: the first MaxHead bytes, the last MaxTail where there was more, and the true size.
type Output struct {
	Head  string `json:"head"`
	Tail  string `json:"tail,omitempty"`
	Size  int64  `json:"size"`
	Spill *Spill `json:"spill,omitempty"`
}

// Spill is the file that keeps an output, or the beginning of one.
type Spill struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"` // of the file, in bytes
	Whole bool   `json:"whole"`
}

// Trace lists the files that a cell has changed. A newer one of the same cell replaces it.
type Trace struct {
	Type    FrameType `json:"type"`
	Cell    string    `json:"cell"`
	Changes []Change  `json:"changes"`
}

// Change is one changed file: a unified diff, cut where Truncated says so.
type Change struct {
	Path      string `json:"path"`
	Kind      string `json:"kind"` // created, changed, deleted
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated"`
}

// Seen names finished cells and jobs whose results were read after their end: nobody has to be told of them any more.
type Seen struct {
	Type  FrameType `json:"type"`
	Cells []string  `json:"cells"`
	Jobs  []string  `json:"jobs"`
}

// Cleanup is what the plugins of a python kernel said when it ended.
type Cleanup struct {
	Type   FrameType `json:"type"`
	Errors []string  `json:"errors"`
}
