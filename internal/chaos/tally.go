package chaos

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxFound bounds the findings of one kind that are kept; the first ones tell the most.
const maxFound = 1000

// tally is what is counted while it goes on. It is safe for concurrent use.
type tally struct {
	daemonKills, kernelKills, pauses, cuts   atomic.Int64
	finished, cells, unknown, resumed, begun atomic.Int64
	wakes                                    atomic.Int64

	mu            sync.Mutex
	lost, doubled []string
	slowest       time.Duration
}

func (t *tally) lose(format string, args ...any) { t.find(&t.lost, format, args...) }

func (t *tally) double(format string, args ...any) { t.find(&t.doubled, format, args...) }

func (t *tally) find(list *[]string, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(*list) < maxFound {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

// recovered notes the time from a kill to the next answer.
func (t *tally) recovered(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slowest = max(t.slowest, d)
}

func (t *tally) kills() int64 { return t.daemonKills.Load() + t.kernelKills.Load() }

func (t *tally) progress(elapsed time.Duration, ending bool) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Progress{
		Elapsed: elapsed, Kills: t.kills(), Pauses: t.pauses.Load(), Cuts: t.cuts.Load(), Sessions: t.finished.Load(), Cells: t.cells.Load(),
		Wrong: len(t.lost) + len(t.doubled), Ending: ending,
	}
}

func (t *tally) verdict() Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Verdict{
		DaemonKills: t.daemonKills.Load(), KernelKills: t.kernelKills.Load(), Pauses: t.pauses.Load(), Cuts: t.cuts.Load(),
		Sessions: t.finished.Load(), Cells: t.cells.Load(), Unknown: t.unknown.Load(), Resumed: t.resumed.Load(), Wakes: t.wakes.Load(),
		Lost: slices.Clone(t.lost), Doubled: slices.Clone(t.doubled), SlowestMS: t.slowest.Milliseconds(),
	}
}
