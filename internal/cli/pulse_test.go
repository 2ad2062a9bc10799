package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"soma/wire"
)

// I-12: progress on long work: a line that tells of silence, gone when there is news or something is said beside it.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newPulse(newTranscript(newScreen(&out, false)))
		after := func(d time.Duration) string {
			t.Helper()
			p.mu.Lock()
			out.Reset()
			p.mu.Unlock()
			<-time.After(d)
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			return out.String()
		}
		if got := after(time.Minute); got != "" {
			t.Errorf("before anything ran: %q", got)
		}
		show := func(q *play) {
			t.Helper()
			for _, f := range q.frames {
				if err := p.frame(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		show(new(play).event(wire.CellStarted, wire.CellEvent{Cell: wire.Cell{ID: "c", Code: "f()"}}))
		if got := after(2900 * time.Millisecond); got != "" {
			t.Errorf("too early: %q", got)
		}
		if got, want := after(1200*time.Millisecond), ansiErase+"  … the cell runs; no news for 3 s"+ansiErase+"  … the cell runs; no news for 4 s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		show(new(play).output("c", 0, "half a line"))
		if got := out.String(); !strings.HasSuffix(got, ansiErase+outputIndent+"half a line") {
			t.Errorf("news: %q", got)
		}
		if got := after(time.Minute); got != "" {
			t.Errorf("in the middle of a line: %q", got)
		}
		show(new(play).output("c", 11, "\n"))
		if got := after(time.Minute); !strings.HasSuffix(got, "no news for 59 s") {
			t.Errorf("after the line: %q", got)
		}
		out.Reset()
		if err := p.endLine(); err != nil || out.String() != ansiErase {
			t.Errorf("something is said: %v, %q", err, out.String())
		}
		if got := after(time.Minute); got != "" {
			t.Errorf("after something was said: %q", got)
		}
		show(new(play).event(wire.CellEnded, wire.CellEvent{Cell: wire.Cell{ID: "c", Status: "ok"}}))
		// P-053: work in the background is named once it has lasted for three seconds.
		blocked := wire.State{State: wire.Blocked, Reason: "background work", Since: noon}
		show(new(play).event(wire.ProcessState, wire.StateEvent{State: blocked}))
		if got := after(2900 * time.Millisecond); strings.Contains(got, "background") {
			t.Errorf("background work that is young: %q", got)
		}
		if got := after(1200 * time.Millisecond); !strings.Contains(got, "work goes on in the background; no news for 3 s") {
			t.Errorf("background work that lasts: %q", got)
		}
		if err := p.finish(); err != nil {
			t.Error(err)
		}
	})
}
