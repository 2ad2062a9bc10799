package session

import (
	"slices"
	"time"
)

// LogSize is the number of entries that the log of a branch keeps, the newest ones.
const LogSize = 1_000

// LogEntry is one line of a branch's log.
type LogEntry struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
}

// log keeps up to twice its size, so that cutting costs little.
type log []LogEntry

func (l *log) add(e LogEntry) {
	if len(*l) >= 2*LogSize {
		*l = slices.Clone((*l)[len(*l)-LogSize+1:])
	}
	*l = append(*l, e)
}

// AddLog writes a line into the branch's log. Calls of tools and models write theirs by themselves, under the kinds "tool"
// and "model".
func (b *Branch) AddLog(kind, text string) {
	e := LogEntry{b.now(), kind, text}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log.add(e)
}

// Log returns a copy of the last entries, oldest first. It is neither saved nor copied to clones.
func (b *Branch) Log() []LogEntry {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Clone(b.log[max(0, len(b.log)-LogSize):])
}
