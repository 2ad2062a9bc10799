package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"soma/client"
	"soma/ident"
	"soma/message"
	"soma/wire"
)

// steps is how many cells one session's script has; sessionTime bounds a session with all that happens to it.
const (
	steps       = 12
	sessionTime = 5 * time.Minute
)

// Some cells start a job that outlives the turn, and one goes on in the background: their ends wake the process, once each.
var (
	starting   = []int{2, 6, 10}
	background = 8
)

// backgroundAfter makes the cell that sleeps for longer one in the background.
const backgroundAfter = "SOMA_CELL_BACKGROUND_SECONDS=1"

// writeScript makes a script whose cells each add one line to a file and take a moment.
func writeScript(dir string) (string, error) {
	var b strings.Builder
	b.WriteString("name: chaos\npace: 2ms\nsteps:\n")
	for i := 1; i <= steps; i += 2 {
		fmt.Fprintf(&b, "  - say: step %d now follows with some words that stream for a while\n    calls:\n", i)
		for n := i; n < i+2; n++ {
			fmt.Fprintf(&b, "      - python: |\n          import asyncio, os # cell%d\n          with open('lines', 'a') as f: f.write('%d\\n')\n", n, n)
			if slices.Contains(starting, n) {
				fmt.Fprintf(&b, "          job = run(f'echo job%d >> {os.getcwd()}/lines; sleep 1.5; exit 3')\n", n)
			}
			rest := 0.05
			if n == background {
				rest = 1.6
			}
			fmt.Fprintf(&b, "          await asyncio.sleep(%v)\n          print('did', %d)\n", rest, n)
		}
	}
	b.WriteString("  - say: all done\n")
	path := filepath.Join(dir, "chaos.yaml")
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

// worker runs sessions through one daemon after the other.
type worker struct {
	daemons []*Daemon
	t       *tally
	script  string
	at      int // daemon that is asked
}

// ask makes a request until a daemon has answered it, each time of the next daemon.
func (w *worker) ask(ctx context.Context, atMost time.Duration, fn func(ctx context.Context, c *client.Client) error) error {
	return Again(ctx, atMost, func(ctx context.Context) error {
		err := fn(ctx, w.daemons[w.at].Client)
		if absent(err) {
			w.at = (w.at + 1) % len(w.daemons)
		}
		return err
	})
}

// work runs one session to its end and judges it.
func (w *worker) work(ctx context.Context, dir string) {
	name := filepath.Base(dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.t.lose("%s: %v", name, err)
		return
	}
	session := ident.New(time.Now()).String()
	var pid uint64
	err := w.ask(ctx, sessionTime, func(ctx context.Context, c *client.Client) error {
		_, err := c.OpenSession(ctx, session, wire.OpenSession{Workspace: dir, Model: "script:" + w.script})
		return err
	})
	if err == nil {
		w.t.begun.Add(1)
		err = w.ask(ctx, sessionTime, func(ctx context.Context, c *client.Client) error {
			st, err := c.Admit(ctx, session, "in", wire.Input{Text: "work"})
			pid = st.PID
			return err
		})
	}
	if err == nil {
		err = w.waitFor(ctx, pid)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.t.lose("%s: session %s: %v", name, session, err)
		return
	}
	if err := w.judge(ctx, name, dir, pid); err != nil && ctx.Err() == nil {
		w.t.lose("%s: cannot judge: %v", name, err)
	}
	if ctx.Err() == nil {
		w.t.finished.Add(1)
	}
}

// waitFor follows a process to its end. One that crashed three times without progress is blocked on purpose, and resumed.
func (w *worker) waitFor(ctx context.Context, pid uint64) error {
	ctx, cancel := context.WithTimeout(ctx, sessionTime)
	defer cancel()
	for n := 0; ; n++ {
		var p wire.Process
		err := w.ask(ctx, sessionTime, func(ctx context.Context, c *client.Client) (err error) {
			p, err = c.Wait(ctx, pid, 2*time.Second)
			return err
		})
		if err != nil {
			return fmt.Errorf("process %d is %s (%s): %w", pid, p.State.State, p.Reason, err)
		}
		if p.EndedAt != nil {
			if *p.ExitCode != 0 {
				return fmt.Errorf("process %d ended with code %d (%s)", pid, *p.ExitCode, p.Reason)
			}
			return nil
		}
		if p.Reason == "crash loop" {
			err := w.ask(ctx, sessionTime, func(ctx context.Context, c *client.Client) error {
				_, err := c.Signal(ctx, pid, fmt.Sprintf("resume-%d", n), wire.Resume)
				return err
			})
			if err != nil {
				return err
			}
			w.t.resumed.Add(1)
		}
	}
}

// judge compares the transcript with the file that the cells wrote.
func (w *worker) judge(ctx context.Context, name, dir string, pid uint64) error {
	history, woken, err := w.transcript(ctx, pid)
	if err != nil {
		return err
	}
	if err := message.CheckPaired(history); err != nil {
		w.t.lose("%s: %v", name, err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "lines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	count := map[string]int{}
	for line := range strings.Lines(string(written)) {
		count[strings.TrimSpace(line)]++
	}
	w.t.judge(name, history, count)
	w.t.judgeWakes(name, history, woken, count)
	return nil
}

// judge tells what is wrong with a transcript; count says how often each cell has really run.
func (t *tally) judge(name string, history []message.Message, count map[string]int) {
	results, inputs := 0, 0
	for _, m := range history {
		if m.Role == message.User {
			inputs++
		}
		if m.Role != message.Tool {
			continue
		}
		results++
		t.cells.Add(1)
		n := fmt.Sprint(results) // the script's cells come in this order
		switch {
		case count[n] > 1:
			t.double("%s: cell %s ran %d times", name, n, count[n])
		case m.Status == message.OK && count[n] == 0:
			t.lose("%s: cell %s is said to have run and did not", name, n)
		case m.Status == message.Unknown:
			t.unknown.Add(1)
		case m.Status != message.OK && count[n] == 1 && strings.Contains(m.Text, "not_started"):
			t.double("%s: cell %s is said not to have run and did", name, n)
		}
	}
	if inputs != 1 || results != steps {
		t.lose("%s: the transcript has %d inputs and %d results, want 1 and %d", name, inputs, results, steps)
	}
}

// judgeWakes tells which ends of jobs and of cells in the background were not told, or twice; woken has a line for each that was.
// On a busy machine any cell may go on in the background, not only the one that is meant to.
func (t *tally) judgeWakes(name string, history []message.Message, woken []string, count map[string]int) {
	var results []message.Message
	for _, m := range history {
		if m.Role == message.Tool {
			results = append(results, m)
		}
	}
	all := 0
	told := func(n int, due bool, is func(line string) bool) (lines []string) {
		for _, line := range woken {
			if is(line) {
				lines = append(lines, line)
			}
		}
		t.wakes.Add(int64(len(lines)))
		switch all += len(lines); {
		case due && len(lines) == 0:
			t.lose("%s: nothing was told of the end of what cell %d has in the background", name, n)
		case len(lines) > 1:
			t.double("%s: the end of what cell %d has in the background was told %d times: %s", name, n, len(lines), lines)
		}
		return lines
	}
	for n := 1; n <= len(results); n++ {
		r := results[n-1]
		behind := strings.Contains(r.Text, `"status":"backgrounded"`)
		cell := told(n, behind, func(line string) bool { return strings.HasSuffix(line, fmt.Sprintf(" # cell%d", n)) })
		if !behind && len(cell) > 0 {
			t.double("%s: cell %d was told in its turn, and again: %s", name, n, cell)
		}
		if !slices.Contains(starting, n) {
			continue
		}
		job := fmt.Sprintf("job%d", n)
		lines := told(n, r.Status == message.OK, func(line string) bool { return strings.Contains(line, ": echo "+job+" >> ") })
		if count[job] > 1 {
			t.double("%s: %s ran %d times", name, job, count[job])
		}
		if len(lines) == 1 && strings.Contains(lines[0], "(exit_code=3,") && count[job] != 1 {
			t.lose("%s: %s is said to have ended and ran %d times", name, job, count[job])
		}
	}
	if all != len(woken) {
		t.double("%s: %d ends were told that nobody knows: %s", name, len(woken)-all, woken)
	}
}

// transcript returns the messages of a process without its wakes, and the lines that these tell people.
func (w *worker) transcript(ctx context.Context, pid uint64) (all []message.Message, woken []string, err error) {
	var after uint64
	for {
		var page wire.List[wire.Message]
		err := w.ask(ctx, time.Minute, func(ctx context.Context, c *client.Client) (err error) {
			page, err = c.Messages(ctx, pid, after, wire.MaxLimit)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, m := range page.Items {
			if after = m.Seq; m.Line != "" {
				woken = append(woken, strings.Split(m.Line, "\n")...)
			} else {
				all = append(all, m.Message)
			}
		}
		if page.Next == "" {
			return all, woken, nil
		}
	}
}
