//go:build crash

package system_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/crash"
	"soma/message"
	"soma/wire"
)

// tally is the table of the suite: for each crash point the deaths at it, the hits of all daemons, and the time.
type tally struct {
	mu     sync.Mutex
	deaths map[crash.Name]int
	hits   map[string]int
	took   map[crash.Name]time.Duration
}

func newTally() *tally {
	return &tally{deaths: map[crash.Name]int{}, hits: map[string]int{}, took: map[crash.Name]time.Duration{}}
}

func (a *tally) add(point crash.Name, res result, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaths[point] += res.deaths
	a.took[point] += took
	for name, n := range res.passed {
		a.hits[name] += n
	}
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %7s %7s %9s\n", "crash point", "deaths", "hits", "seconds")
	for _, name := range crash.OfInput() {
		fmt.Fprintf(&b, "%-22s %7d %7d %9.1f\n", name, a.deaths[name], a.hits[string(name)], a.took[name].Seconds())
	}
	return b.String()
}

// The daemon dies by SIGKILL at each crash point, and the work goes on to the end that it has without a death.
// N-33, K-09, P-001, P-018, P-022, M-14
func TestCrashPoints(t *testing.T) {
	bin := build(t)
	began := time.Now()
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	table := newTally()
	table.add("", calm, time.Since(began))
	t.Run("points", func(t *testing.T) {
		for _, point := range crash.OfInput() {
			for at := 1; at <= calm.passed[string(point)]; at++ {
				trialOf(t, bin, trial{point: point, at: at, waits: point == crash.CellMid, extra: extraAt(point, at)}, calm, table)
			}
		}
		for _, at := range []int{12, 30} { // groups of several records
			trialOf(t, bin, trial{point: crash.GroupMid, at: at, works: 6}, calm, table)
		}
	})
	t.Run("twice", func(t *testing.T) {
		names := crash.OfInput()
		for i := range 3 * len(names) {
			point := names[i%len(names)]
			then := point
			if i >= len(names) {
				then = names[rand.IntN(len(names))]
			}
			trialOf(t, bin, trial{point: point, at: 1, then: then, waits: point == crash.CellMid}, calm, table)
		}
	})
	t.Logf("hits per point:\n%v", table)
	for _, point := range crash.OfInput() {
		if table.deaths[point] == 0 {
			t.Errorf("the daemon never died at %s", point)
		}
	}
}

// extraAt says which attempts a death at a point costs. It is nil at points that other work of the daemon runs beside: there
// an attempt may be on its way or not.
func extraAt(point crash.Name, at int) map[int]attempts {
	switch point {
	case crash.DispatchCommitted: // started and not sent
		return map[int]attempts{at: {made: 1}}
	case crash.StreamMid: // sent and not answered: at the steps with words
		step := 0
		for i, r := range script {
			if len(r.words) > 0 {
				at--
			}
			if at == 0 {
				step = i + 1
				break
			}
		}
		return map[int]attempts{step: {made: 1, sent: 1}}
	case crash.FrameWritten, crash.DoneCommitted, crash.GroupMid:
		return nil
	}
	return map[int]attempts{}
}

// trialOf runs a trial beside others and compares it with an undisturbed run.
func trialOf(t *testing.T, bin string, tr trial, calm result, table *tally) {
	t.Run(tr.name(), func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		res, err := tr.run(t, bin)
		switch {
		case err != nil:
			t.Fatal(err)
		case res.deaths == 0 && tr.point == crash.GroupMid && res.passed[string(tr.point)] < tr.at:
			return // commits fall together now and then: this one was not there
		case res.deaths != 1 && !(tr.then != "" && res.deaths == 2):
			t.Fatalf("the daemon died %d times", res.deaths)
		case res.first.hash != calm.first.hash:
			t.Fatalf("the transcript is another one than without a death:\n%s", firstDifference(calm.first.entries, res.first.entries))
		}
		table.add(tr.point, res, time.Since(began))
	})
}

func firstDifference(want, got []entry) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			return fmt.Sprintf("entry %d is too many: %+v", i, got[i])
		case i >= len(got):
			return fmt.Sprintf("entry %d is missing: %+v", i, want[i])
		case !equal(got[i], want[i]):
			return fmt.Sprintf("entry %d is %s, want %s", i, got[i], want[i])
		}
	}
	return "none"
}

// killPykernel kills the python kernel in whose cell c a work is, and waits until it is gone.
func (k *work) killPykernel() error {
	text, err := os.ReadFile(filepath.Join(k.dir, "c.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); err != nil {
		return err
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Minute/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return errors.New("the python kernel does not die")
		default:
			return nil
		}
	}
}

// The python kernel dies by SIGKILL while its cell runs, with the daemon alive and with the daemon dead: the transcript is
// the same up to the unknown result, and from there it is paired and comes to an end.
// K-09, P-021
func TestPythonKernelDies(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	for name, tr := range map[string]trial{
		"daemon alive": {waits: true, output: func(k *work, o wire.OutputEvent) error {
			if !strings.Contains(o.Text, "working") {
				return nil
			}
			return k.killPykernel()
		}},
		"daemon dead": {point: crash.CellMid, at: 1, waits: true, died: (*work).killPykernel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := tr.run(t, bin)
			if err != nil {
				t.Fatal(err)
			}
			want, got := calm.first.entries, res.first.entries
			unknown := slices.IndexFunc(want, func(e entry) bool { return strings.HasSuffix(e.Text, "\nworking") })
			if !slices.EqualFunc(want[:unknown], got[:unknown], equal) {
				t.Errorf("before the unknown result: %s", firstDifference(want[:unknown], got[:unknown]))
			}
			if e := got[unknown]; e.Role != message.Tool || !strings.Contains(e.Text, "result unknown") {
				t.Errorf("the result of the killed cell is %+v", e)
			}
			if e := got[unknown+3]; !strings.Contains(e.Text, "names of the earlier kernel are gone") || !strings.Contains(e.Text, "NameError") {
				t.Errorf("the result after that is %+v", e)
			}
			if len(got) != len(want) || got[len(got)-1].Text != want[len(want)-1].Text {
				t.Errorf("the end is %+v", got[unknown:])
			}
		})
	}
}

func equal(a, b entry) bool { return fmt.Sprintf("%s", a) == fmt.Sprintf("%s", b) }
