package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/osproc"
)

// Mark is the variable in the environment of a command, and so of what it starts, that holds the id of its execution.
const Mark = "SOMA_SHELL"

func marker(execution ident.ID) string { return Mark + "=" + execution.String() }

// drainTime is how long output is still taken once the command itself has ended and its group was killed.
const drainTime = time.Second

// adapter is the host as it performs the executions Kind.
type adapter Host

// Adapter returns the adapter of the executions Kind.
func (h *Host) Adapter() neuron.Adapter { return (*adapter)(h) }

// end is the payload of an outcome.
type end struct {
	Command string `json:"command"` // its id
	outcome
}

// Run runs a command to its end. When the context ends before, the command is stopped with all that it has started.
func (a *adapter) Run(ctx context.Context, x neuron.Execution) (json.RawMessage, error) {
	h := (*Host)(a)
	var j job
	if err := json.Unmarshal(x.Input, &j); err != nil {
		return nil, fmt.Errorf("cannot read the shell command: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.begun(j.Session, x.ID, cancel)
	defer h.over(j.Session, x.ID)
	o, err := h.execute(ctx, j, x.ID.WithAttempt(0))
	if err != nil {
		o.Status, o.Note = failed, err.Error()
	}
	payload, err := json.Marshal(end{j.ID, o})
	if err == nil {
		// A daemon that stops, or is killed before the commit, delivers nothing: the next one finds it here.
		if err := os.WriteFile(h.file(j.Session, j.ID)+ending, payload, 0o600); err != nil {
			h.o.Log.Warn("cannot keep the end of a shell command", "session", j.Session, "error", err)
		}
	}
	return payload, err
}

// ending is what the name of the file has at its end that keeps how a command has ended.
const ending = ".end"

// Recover says how a command ended of whose end no daemon has told: as was kept, else it is unknown. What is left of it is
// killed; it is not run again.
func (a *adapter) Recover(_ context.Context, x neuron.Execution) (json.RawMessage, bool, error) {
	h := (*Host)(a)
	var j job
	if err := json.Unmarshal(x.Input, &j); err != nil {
		return nil, false, fmt.Errorf("cannot read the shell command: %w", err)
	}
	osproc.KillMarked(marker(x.ID.WithAttempt(0)))
	kept, err := os.ReadFile(h.file(j.Session, j.ID) + ending)
	if err == nil && json.Valid(kept) {
		return kept, true, nil
	}
	o := outcome{Status: unknown, Note: "the daemon ended while it ran; it was not run again"}
	if info, err := os.Stat(h.file(j.Session, j.ID)); err == nil {
		o.Bytes, o.Kept = info.Size(), info.Size()
	}
	payload, err := json.Marshal(end{j.ID, o})
	return payload, err == nil, err
}

func (h *Host) begun(session string, id ident.ID, cancel context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[session] == nil {
		h.live[session] = map[ident.ID]context.CancelFunc{}
	}
	h.live[session][id] = cancel
}

func (h *Host) over(session string, id ident.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.live[session], id); len(h.live[session]) == 0 {
		delete(h.live, session)
	}
}

// EndSession stops the commands of a session that is being removed. It does not block.
func (h *Host) EndSession(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.live[session] {
		cancel()
	}
}

// execute runs the command. The error says why it could not be started.
func (h *Host) execute(ctx context.Context, j job, id ident.ID) (o outcome, err error) {
	r, err := newRecorder(h.file(j.Session, j.ID))
	if err != nil {
		return o, err
	}
	defer r.close()
	read, write, err := os.Pipe()
	if err != nil {
		return o, fmt.Errorf("cannot make a pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", j.Command)
	cmd.Dir, cmd.Env = j.Workspace, append(h.o.Env(), marker(id))
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return o, fmt.Errorf("cannot start the command: %w", err)
	}
	copied := make(chan struct{})
	go func() { defer close(copied); r.take(read) }()
	exit := make(chan struct{})
	go func() { defer close(exit); awaitExit(cmd.Process.Pid) }()

	timer := time.NewTimer(time.Duration(j.TimeoutMS) * time.Millisecond)
	defer timer.Stop()
	o.Status = exited
	select {
	case <-exit:
	case <-ctx.Done():
		o.Status = stopped
	case <-timer.C:
		o.Status = timedOut
	}
	group := -cmd.Process.Pid // its leader is not reaped yet: the group is still the command's
	if o.Status != exited {
		_ = syscall.Kill(group, syscall.SIGTERM)
		select {
		case <-exit:
		case <-time.After(h.grace):
		}
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-exit
	if o.Status != exited {
		osproc.KillMarked(marker(id)) // what has left the group
	}
	_ = read.SetReadDeadline(time.Now().Add(drainTime))
	<-copied
	err = cmd.Wait()
	if state := cmd.ProcessState; state != nil && o.Status == exited {
		code := state.ExitCode()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = -int(status.Signal())
		}
		o.ExitCode = &code
	} else if o.Status == exited {
		o.Note = fmt.Sprint(err)
	}
	o.Bytes, o.Kept = r.sizes()
	return o, nil
}

// awaitExit returns when a child has exited; it stays to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
