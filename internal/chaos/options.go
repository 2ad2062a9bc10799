package chaos

import (
	"time"
)

// Options say what is done.
type Options struct {
	// Program is the binary whose daemons are tried.
	Program string
	// Dir is a folder of the caller's making, empty, on the disk that is tried. It is left as it is: the caller removes it.
	Dir string
	// Seed makes the disturbances the same again; what they meet is a matter of time.
	Seed uint64
	// For and Kills end the disturbances, whichever comes first; zero is no end. The sessions that were begun are followed to theirs.
	For   time.Duration
	Kills int
	// Agents work at once, in sessions one after the other.
	Agents int
	// Daemons share a store; more than one need Store.
	Daemons int
	// Store is how a PostgreSQL database is reached that nobody else uses; empty: each daemon has the SQLite file of its home.
	Store string
	// Lease is how long a daemon keeps its places without a beat, where several share a store; zero: the program's default.
	Lease time.Duration
	// Python is the interpreter of cells, empty for the one that a daemon finds.
	Python string
	// Environ is the environment of the daemons, as of os.Environ; what would lead them elsewhere is left out.
	Environ []string
	// Gentle leaves out pauses and cuts: kills only.
	Gentle bool
	// Progress is called about once a second; nil for nobody.
	Progress func(Progress)
}

// Progress tells how far it is.
type Progress struct {
	Elapsed      time.Duration
	Kills        int64 // of daemons and python kernels
	Pauses, Cuts int64
	Sessions     int64 // worked to their end
	Cells        int64
	Wrong        int // things found that must not be
	// Ending says that nothing is disturbed any more: the sessions that were begun come to their ends.
	Ending bool
}

// Verdict is what was done and found.
type Verdict struct {
	Passed      bool   `json:"passed"`
	Interrupted bool   `json:"interrupted,omitempty"` // it was ended before its time
	Seconds     int64  `json:"seconds"`
	Seed        uint64 `json:"seed"`
	Daemons     int    `json:"daemons"`

	DaemonKills int64 `json:"daemon_kills"`
	KernelKills int64 `json:"kernel_kills"`
	Pauses      int64 `json:"pauses"`
	Cuts        int64 `json:"cuts"` // connections cut

	Sessions int64 `json:"sessions"` // worked to their end
	Cells    int64 `json:"cells"`
	Unknown  int64 `json:"unknown"` // results that were told to be unknown, as they were
	Resumed  int64 `json:"resumed"` // processes that had died three times without progress
	Wakes    int64 `json:"wakes"`   // ends of jobs and of cells in the background that a process was told

	Lost    []string `json:"lost"`
	Doubled []string `json:"doubled"`
	Left    []string `json:"left"` // OS processes
	// SlowestMS is the longest time in milliseconds from a kill to the next answer of that daemon.
	SlowestMS int64 `json:"slowest_ms"`
}
