package wire

import "time"

// Bounds of what is told of python kernels and their jobs. Sizes are in bytes, but for MaxCommand, which is in characters.
const (
	MaxPyKernels  = 1000      // kernels of one list
	MaxRunning    = 100       // running jobs of one observation
	MaxRecentJobs = 100       // rows of the book of jobs
	MaxCommand    = 4096      // of a job's command line
	DefaultJob    = 16 << 10  // of a page of a job's output
	MinJob        = 4         // the longest character
	MaxJob        = 64 << 10  //
	MaxNames      = 200       // of one completion
	MaxImage      = 5 << 20   // of one image of a cell
	MaxShellRead  = 64 << 10  // of a page of a shell command's output
	DefaultShell  = 16 << 10  // the same
	MaxShellKept  = 16 << 20  // of a shell command's output
	MaxShellBody  = 130 << 10 // of the body that has a shell command
	MaxShellLine  = 64 << 10  // of a shell command
	MaxShellTime  = time.Hour // of a shell command
)

// PyKernel is one python kernel. What only its node could tell is null where that did not answer or the kernel has ended.
type PyKernel struct {
	ID        string     `json:"id"`
	Branch    string     `json:"branch"`
	Session   string     `json:"session"`
	PID       uint64     `json:"pid,omitempty"` // of the process whose code runs in it; none for a session of kind py
	Workspace string     `json:"workspace"`
	State     string     `json:"state"`            // booting, attached, detached, ending, ended
	Reason    string     `json:"reason,omitempty"` // why it has ended
	OSPID     int        `json:"os_pid,omitempty"`
	Python    string     `json:"python"`
	Jobs      *int       `json:"live_jobs"`
	Cells     *int       `json:"live_cells"`
	Memory    *int64     `json:"memory_bytes"` // resident, of its own process without its jobs
	StartedAt time.Time  `json:"started_at"`
	UsedAt    time.Time  `json:"used_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Node      string     `json:"node,omitempty"`
}

// KernelView answers GET /v1/branches/{branch}/kernel: what is known of the branch's python kernel at this moment. Asking
// starts nothing. Without a kernel Kernel is absent and no job runs; what is not known is null.
type KernelView struct {
	Branch   string        `json:"branch"`
	Kernel   *PyKernel     `json:"kernel,omitempty"`
	LiveJobs *int          `json:"live_job_count"`
	Running  *[]RunningJob `json:"running_jobs"` // sorted by id, at most MaxRunning
}

// RunningJob is a job as the owner of its python kernel sees it.
type RunningJob struct {
	ID      string `json:"id"`
	PID     *int   `json:"pid"`     // null for one that is no OS process of this machine
	Command string `json:"command"` // at most MaxCommand characters
	Service bool   `json:"service,omitempty"`
	Started int64  `json:"started_at"` // Unix milliseconds, 0 where it is not known
}

// Job is a row of the book of jobs that a python kernel, or after its end the store, keeps.
type Job struct {
	ID       string `json:"id"`
	Command  string `json:"command"`
	State    string `json:"state"` // running, exited, lost: its python kernel ended first
	ExitCode *int   `json:"exit_code,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Service  bool   `json:"service,omitempty"`
	Cell     string `json:"cell,omitempty"` // that started it
	Started  int64  `json:"started_at"`     // Unix milliseconds, 0 where it is not known
	Ended    int64  `json:"ended_at,omitempty"`
	Bytes    int64  `json:"bytes"` // written
}

// States of a job.
const (
	JobRunning = "running"
	JobExited  = "exited"
	JobLost    = "lost"
)

// JobPage is a part of a job's output, cut on characters; Next is the offset to go on from. A character of which a running
// job has written only a part waits for a later page.
type JobPage struct {
	Job     string `json:"job"`
	Offset  int64  `json:"offset"`
	Next    int64  `json:"next_offset"`
	Size    int64  `json:"size"` // bytes written in all
	Running bool   `json:"running"`
	Text    string `json:"text"`
}

// StoppedJob answers PUT /v1/branches/{branch}/jobs/{job}/stop: nothing of the job runs any more.
type StoppedJob struct {
	Job string `json:"job"`
}

// RestartedKernel answers PUT /v1/branches/{branch}/kernel/restart: the next cell begins in a fresh python kernel.
type RestartedKernel struct {
	Old   string   `json:"old_kernel_id,omitempty"` // empty where there was none
	Jobs  []string `json:"stopped_jobs"`
	Cells []string `json:"ended_cells"`
}

// Complete is the body of PUT /v1/branches/{branch}/complete. Cursor counts characters of Text.
type Complete struct {
	Text   string `json:"text"`
	Cursor int    `json:"cursor"`
}

// Completion answers it: each of the names may take the place of the text from Start, in characters, to the cursor.
type Completion struct {
	Start int      `json:"start"`
	Names []string `json:"names"`
}

// Kinds of the events that tell of python kernels and jobs. Their data are a KernelView, a JobPage and a JobGap.
const (
	KernelObserved = "kernel"
	JobOutput      = "output"
	JobLostOutput  = "gap" // the output from Offset to Next was not kept
)

// JobGap says that a part of a job's output was not kept.
type JobGap struct {
	Job    string `json:"job"`
	Offset int64  `json:"offset"`
	Next   int64  `json:"next_offset"`
}

// CellTrace is what a cell has changed in the files of its workspace.
type CellTrace struct {
	Cell    string        `json:"cell"`
	Changes []TraceChange `json:"changes"`
}

// TraceChange is one changed file.
type TraceChange struct {
	Path      string `json:"path"`
	Kind      string `json:"kind"` // created, changed, deleted
	Diff      string `json:"diff"` // unified
	Truncated bool   `json:"truncated,omitempty"`
}

// RunShell is the body of PUT /v1/sessions/{session}/shell/{client}: a command of a person, run by the daemon in the workspace.
type RunShell struct {
	Command   string `json:"command"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // default and most: one hour
}

// ShellCommand is such a command and how it ended.
type ShellCommand struct {
	Session   string     `json:"session"`
	ClientID  string     `json:"client_id"`
	Command   string     `json:"command"`
	State     string     `json:"state"`               // started, ended
	Status    string     `json:"status,omitempty"`    // exited, timed_out, stopped, failed, unknown
	ExitCode  *int       `json:"exit_code,omitempty"` // negative: ended by that signal
	Note      string     `json:"note,omitempty"`
	Bytes     int64      `json:"bytes"` // printed, without what would speak to a terminal
	Kept      int64      `json:"kept"`  // of them, from the start
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// ShellPage is a part of the output of a shell command, cut on characters. Next is null at the end.
type ShellPage struct {
	Offset  int64  `json:"offset"`
	Next    *int64 `json:"next_offset"`
	Size    int64  `json:"size"`
	Running bool   `json:"running"`
	Text    string `json:"text"`
}
