package pykernel

import "soma/ident"

// CellEnded is the message that brings a cell's outcome to the neuron named by the kernel's owner column. Its delivery id
// is ident.Derive(cell id, "done").
type CellEnded struct {
	Kernel     string     `json:"kernel"`
	Cell       string     `json:"cell"`
	Status     CellStatus `json:"status"`
	DurationMS int64      `json:"duration_ms"`
	Value      *string    `json:"value,omitempty"`
	Error      *CellFault `json:"error,omitempty"`
	// Output is cut to PreviewBytes; Content holds all that was kept (head, then tail), zero when nothing was written.
	Output  Output   `json:"output"`
	Content ident.ID `json:"content,omitzero"`
	// Kept is how many bytes of Content are the head; what follows them is the tail.
	Kept int64 `json:"kept,omitempty"`
	// Note is for the reader of the result, such as why the outcome is unknown.
	Note string `json:"note,omitempty"`
	// Calls, ImageErrors, Repair and Background are those of Done.
	Calls       []string `json:"calls,omitempty"`
	Images      []Image  `json:"images,omitempty"`
	ImageErrors []string `json:"image_errors,omitempty"`
	Repair      string   `json:"repair,omitempty"`
	Background  bool     `json:"background,omitempty"`
	// Wake says that the owner was told of the cell as backgrounded, and that nobody has read or cancelled it since.
	Wake bool `json:"wake,omitempty"`
}

// Image is an image that a cell has shown; Content holds its bytes.
type Image struct {
	Media   string   `json:"media"`
	Name    string   `json:"name,omitempty"`
	Size    int64    `json:"size"`
	Content ident.ID `json:"content"`
}

// PreviewBytes bounds Head plus Tail of a CellEnded.
const PreviewBytes = 32 << 10

// CellBackgrounded tells the owner that a cell goes on without being waited for; its CellEnded comes later. Its delivery id is
// ident.Derive(cell id, "backgrounded").
type CellBackgrounded struct {
	Kernel     string `json:"kernel"`
	Cell       string `json:"cell"`
	DurationMS int64  `json:"duration_ms"`
	Output     Output `json:"output"` // so far, cut to PreviewBytes
}

// JobEnded tells the owner of the end of a job; with Wake, that nobody has read it. Its delivery id is ident.Named(kernel, "job:"+job).
type JobEnded struct {
	Kernel     string `json:"kernel"`
	Job        string `json:"job"`
	Cell       string `json:"cell,omitempty"`
	Command    string `json:"command"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Bytes      int64  `json:"bytes"`
	Service    bool   `json:"service,omitempty"`
	Wake       bool   `json:"wake,omitempty"`
	Tail       string `json:"tail,omitempty"`
}

// ResultsSeen tells the owner which ended cells and jobs have been read since. Its delivery id is
// ident.Named(kernel, "seen:"+number of the frame).
type ResultsSeen struct {
	Kernel string   `json:"kernel"`
	Cells  []string `json:"cells,omitempty"`
	Jobs   []string `json:"jobs,omitempty"`
}

// Gone is the message that tells a python kernel's owner that it has ended: its names are gone. Unfinished cells come as
// CellEnded before it. Its delivery id is ident.Derive(kernel id, "gone").
type Gone struct {
	Kernel string `json:"kernel"`
	Reason string `json:"reason"`
	// Jobs ran until then; at most MaxObserved of them.
	Jobs []Job `json:"jobs,omitempty"`
}

// Aliases of the messages.
const (
	CellEndedAlias        = "pykernel.cell_ended.v1"
	CellBackgroundedAlias = "pykernel.cell_backgrounded.v1"
	JobEndedAlias         = "pykernel.job_ended.v1"
	SeenAlias             = "pykernel.seen.v1"
	GoneAlias             = "pykernel.gone.v1"
)
