package window

import "soma/internal/neuron"

// Mark is the size of a feed as it was after a turn: what came later is the difference to now.
type Mark struct {
	Turn    uint64 `json:"t"` // incoming sequence of the turn
	Entries uint64 `json:"n"`
	Bytes   uint64 `json:"b"`
}

// Marks tell which rows no window reaches any more, without a look at the rows.
type Marks struct {
	In  []Mark `json:"in,omitempty"`
	Out []Mark `json:"out,omitempty"`
	// InBytes and OutBytes count what each feed has ever held.
	InBytes  uint64 `json:"in_bytes,omitempty"`
	OutBytes uint64 `json:"out_bytes,omitempty"`
}

// markStep bounds a list of marks: one is set once a markStep-th of the window has passed, by entries or by bytes, and
// those before the last useful one are dropped.
const markStep = 8

// Set records the size of a feed. It returns the list and the newest turn in it that lies before the window, 0 if there is
// none.
func Set(list []Mark, now Mark, l neuron.Limits) ([]Mark, uint64) {
	entries, bytes := uint64(l.JournalEntries), uint64(l.JournalBytes)
	passed := func(m Mark, part uint64) bool {
		return now.Entries-m.Entries >= entries/part || now.Bytes-m.Bytes >= bytes/part
	}
	if n := len(list); n == 0 || passed(list[n-1], markStep) {
		list = append(list, now)
	}
	cut := -1
	for i, m := range list {
		if passed(m, 1) {
			cut = i
		}
	}
	if cut < 0 {
		return list, 0
	}
	return list[cut:], list[cut].Turn
}
