package pykernel

import "soma/ident"

// MaxObserved bounds the jobs of an observation (P-046).
const MaxObserved = 100

// Observation is what is known of a live python kernel without asking it: as of the last thing that was heard of it.
type Observation struct {
	Kernel  string
	Session string
	Branch  ident.ID
	State   string // waiting, booting, attached, detached, ending
	OSPID   int    // 0 until it is known
	// Stale: it runs other sources than this daemon's, so it is asked nothing that they may not know.
	Stale bool
	// Cells are those that have not ended, in the order in which they were asked for.
	Cells []string
	// Live is the number of jobs that run, those of other machines included; nil: not known yet.
	Live *int
	// Awaited is how many of them are no services.
	Awaited int
	// Jobs are those that run, by id, at most MaxObserved.
	Jobs []Job
	// Eligible: nothing but names would be lost with the process.
	Eligible bool
}

// Job is one job that runs.
type Job struct {
	ID        string `json:"id"`
	PID       int    `json:"pid,omitempty"` // 0: it is no process of this machine
	Command   string `json:"command"`       // at most MaxCommand characters
	Service   bool   `json:"service,omitempty"`
	Cell      string `json:"cell,omitempty"` // in which it began, if that is known
	StartedAt int64  `json:"started_at"`     // milliseconds since 1970; 0: unknown
}

// Cut returns the first n characters of s. Only these are looked at, and the result holds on to nothing of s.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return string([]byte(s[:i]))
		}
		n--
	}
	return s
}
