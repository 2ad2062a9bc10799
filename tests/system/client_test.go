//go:build crash

package system_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"soma/wire"
)

// program is a run of the command line whose lines are read as they come.
type program struct {
	cmd  *exec.Cmd
	more *sync.Cond
	text strings.Builder // standard output and error together
	ends bool
	err  error
}

// run starts the program in a folder, as somebody else if who is not nil.
func run(ctx context.Context, bin, dir string, env []string, who *syscall.Credential, args ...string) (*program, error) {
	p := &program{cmd: exec.CommandContext(ctx, bin, args...), more: sync.NewCond(new(sync.Mutex))}
	p.cmd.Dir, p.cmd.Env, p.cmd.SysProcAttr = dir, env, &syscall.SysProcAttr{Credential: who}
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		err := p.cmd.Wait()
		_ = w.Close()
		p.more.L.Lock()
		defer p.more.L.Unlock()
		p.err = err
	}()
	go func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			p.more.L.Lock()
			p.text.WriteString(line)
			p.ends = err != nil
			p.more.Broadcast()
			p.more.L.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return p, nil
}

// says waits until what the program has written matches, and returns the submatches.
func (p *program) says(pattern string) ([]string, error) {
	expect := regexp.MustCompile(pattern)
	p.more.L.Lock()
	defer p.more.L.Unlock()
	for {
		if found := expect.FindStringSubmatch(p.text.String()); found != nil {
			return found, nil
		}
		if p.ends {
			return nil, fmt.Errorf("the program does not say %q but:\n%s", pattern, p.text.String())
		}
		p.more.Wait()
	}
}

// end waits for the program and returns what it has written.
func (p *program) end() (string, error) {
	p.more.L.Lock()
	defer p.more.L.Unlock()
	for !p.ends {
		p.more.Wait()
	}
	return p.text.String(), p.err
}

// soma run outlives its daemon: killed in the middle of a cell, the daemon is started again by the waiting client, which
// says so in one line, and the transcript goes on to its end; each cell ran once.
// I-16
func TestClientStartsTheDaemonAgain(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w := newWorld(t, bin)
	k, err := w.newWork("w0", true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := run(ctx, bin, k.dir, w.env, nil, "run", "--model", "played", k.input)
	if err != nil {
		t.Fatal(err)
	}
	started, err := p.says(`soma: started the daemon \(pid (\d+), log `)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.says(`(?m)working$`); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(started[1], &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again, err := p.says(`soma: the daemon is gone[^\n]*; it is started again in 2s\nsoma: started the daemon \(pid (\d+), log `)
	if err != nil {
		t.Fatal(err)
	}
	if again[1] == started[1] {
		t.Errorf("pid %s is the dead daemon's", again[1])
	}
	if err := k.open(); err != nil {
		t.Fatal(err)
	}
	text, err := p.end()
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, once := range []string{"is started again", "total is 1111", "the work is done", "now comes the long one"} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q stands %d times in:\n%s", once, n, text)
		}
	}
	sessions, err := w.client.Sessions(ctx, wire.SessionFilter{})
	if err != nil || len(sessions.Items) != 1 {
		t.Fatalf("%d sessions (%v)", len(sessions.Items), err)
	}
	k.name, k.pids = sessions.Items[0].ID, []uint64{sessions.Items[0].PID}
	history, err := k.transcript(ctx)
	if err != nil {
		t.Fatal(err)
	}
	k.name = "w0"
	entries, err := k.normal(history)
	if err != nil {
		t.Fatal(err)
	}
	want := calm.first.entries
	want = want[:slices.IndexFunc(want, func(e entry) bool { return e.Text == "now more" })]
	if !slices.EqualFunc(entries, want, equal) {
		t.Errorf("the transcript differs: %s", firstDifference(want, entries))
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if n, err := k.runs(name); err != nil || n != 1 {
			t.Errorf("cell %s ran %d times (%v)", name, n, err)
		}
	}
	endAndLook(ctx, t, bin, w.dir, w.env, nil)
}

// A daemon that dies at each start is not started for ever: after three starts within a minute the client ends, with the last
// line of the log.
// I-16
func TestClientGivesUp(t *testing.T) {
	bin := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w := newWorld(t, bin)
	k, err := w.newWork("w0", false)
	if err != nil {
		t.Fatal(err)
	}
	p, err := run(ctx, bin, k.dir, append(w.env, "SOMA_CRASH=admit.before_commit:1"), nil, "run", "--model", "played", k.input)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.end()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 69 {
		t.Errorf("the client ended with %v, want exit code 69", err)
	}
	if n := strings.Count(text, "started the daemon"); n != 3 {
		t.Errorf("the daemon was started %d times", n)
	}
	last := text[strings.LastIndex(strings.TrimRight(text, "\n"), "\n")+1:]
	if !strings.Contains(last, "started 3 times within a minute") || !strings.Contains(last, "its log ends: ") || !strings.Contains(last, "level=") {
		t.Errorf("the last line is %q", last)
	}
	if left, err := processesOf(w.dir); err != nil || len(left) > 0 {
		t.Errorf("processes of the home are left: %v (%v)", left, err)
	}
}

// endAndLook stops the daemon with its python kernels and fails where a process of the folder is left.
func endAndLook(ctx context.Context, t *testing.T, bin, dir string, env []string, who *syscall.Credential) {
	t.Helper()
	p, err := run(ctx, bin, dir, env, who, "stop", "--kernels")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := p.end(); err != nil {
		t.Fatalf("cannot stop: %v:\n%s", err, text)
	}
	left, err := processesOf(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("after stop --kernels there are processes of the home: %v (%v)", left, err)
	}
}
