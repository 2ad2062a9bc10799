package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"soma/internal/neuron"
	"soma/wire"
)

// run asks for a command, stop for its end.
type (
	run struct {
		ID string `json:"id"`
		wire.RunShell
	}
	stop struct {
		ID string `json:"id"`
	}
)

var (
	runType   = neuron.NewType[run]("shell.run.v1")
	stopType  = neuron.NewType[stop]("shell.stop.v1")
	endedType = neuron.NewType[neuron.Ended]("shell.ended.v1")
)

// States of a command.
const (
	started = "started"
	ended   = "ended"
)

// Codes of refusals, and what clients are told.
const (
	codeMissing  neuron.Code = "missing"
	codeGone     neuron.Code = "gone"
	codeClosed   neuron.Code = "closed"
	codeConflict neuron.Code = "conflict"
	codeFull     neuron.Code = "full"
)

var codes = map[neuron.Code]wire.Code{
	codeMissing: wire.NotFound, codeGone: wire.Gone, codeClosed: wire.SessionClosed, codeConflict: wire.Conflict, codeFull: wire.Busy,
}

// job is the input of the execution.
type job struct {
	Session   string `json:"session"`
	ID        string `json:"id"`
	Command   string `json:"command"`
	Workspace string `json:"workspace"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// outcome is how a command has ended.
type outcome struct {
	Status   string `json:"status"` // as in wire.ShellCommand
	ExitCode *int   `json:"exit_code,omitempty"`
	Bytes    int64  `json:"bytes"` // printed, after cleaning
	Kept     int64  `json:"kept"`
	Note     string `json:"note,omitempty"`
}

// Statuses of a command that has ended.
const (
	exited   = "exited"
	timedOut = "timed_out"
	stopped  = "stopped"
	unknown  = "unknown" // the daemon was killed while it ran; it was not run again
	failed   = "failed"  // it could not be started
)

// Neuron returns the kind of neurons that a command belongs to.
func (h *Host) Neuron() *neuron.Kind {
	k := neuron.NewKind(Kind)
	k.Place = func(id neuron.ID) neuron.Place { return neuron.PlaceOf(id.Key) }
	neuron.Handle(k, runType, h.run)
	neuron.Handle(k, stopType, h.stop)
	neuron.Handle(k, endedType, h.ended)
	return k
}

// Aliases returns every alias that these neurons send or handle.
func (h *Host) Aliases() []string {
	return []string{runType.Alias(), stopType.Alias(), endedType.Alias()}
}

func (h *Host) run(t *neuron.Turn, m run) error {
	session := t.Self().Key
	old := ""
	err := t.Query(`select command from shell_command where session = ? and id = ?`, []any{session, m.ID}, func(scan func(...any) error) error { return scan(&old) })
	switch {
	case err != nil:
		return err
	case old == m.Command:
		return nil
	case old != "":
		return neuron.SettleAs(codeConflict, errors.New(m.ID+" was already sent with another command"))
	}
	state, workspace := "", ""
	var branch []byte
	err = t.Query(`select state, workspace, branch from session where id = ?`, []any{session}, func(scan func(...any) error) error {
		return scan(&state, &workspace, &branch)
	})
	live := 0
	if err == nil {
		err = t.Query(`select count(*) from shell_command where session = ? and state = 'started'`, []any{session}, func(scan func(...any) error) error { return scan(&live) })
	}
	switch {
	case err != nil:
		return err
	case state == "":
		return neuron.SettleAs(codeMissing, errors.New("there is no session "+session))
	case state == "removing":
		return neuron.SettleAs(codeGone, errors.New("session "+session+" was removed"))
	case state != "open":
		return neuron.SettleAs(codeClosed, errors.New("session "+session+" is closed"))
	case live >= maxLive:
		return neuron.SettleAs(codeFull, fmt.Errorf("%d shell commands of the session run", live))
	}
	input, err := json.Marshal(job{Session: session, ID: m.ID, Command: m.Command, Workspace: workspace, TimeoutMS: m.TimeoutMS})
	if err != nil {
		return err
	}
	t.Write(&insertCommand{session: session, id: m.ID, branch: branch, command: m.Command, at: t.Now()})
	t.Start(neuron.Execution{ID: execution(session, m.ID), Kind: Kind, Policy: neuron.Attach, Input: input, Then: endedType.Alias()})
	return nil
}

func (h *Host) stop(t *neuron.Turn, m stop) error {
	live := false
	err := t.Query(`select 1 from shell_command where session = ? and id = ? and state = 'started'`, []any{t.Self().Key, m.ID},
		func(func(...any) error) error { live = true; return nil })
	if err == nil && live {
		t.CancelExecution(execution(t.Self().Key, m.ID))
	}
	return err
}

func (h *Host) ended(t *neuron.Turn, m neuron.Ended) error {
	var end struct {
		ID string `json:"command"`
		outcome
	}
	if m.Status == neuron.Done {
		if err := json.Unmarshal(m.Payload, &end); err != nil {
			return neuron.Settle(fmt.Errorf("cannot read the end of a shell command: %w", err))
		}
	} else { // not by what the adapter returns
		end.outcome = outcome{Status: unknown, Note: m.Error}
		err := t.Query(`select id from shell_command where session = ? and state = 'started'`, []any{t.Self().Key}, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			if execution(t.Self().Key, id) == m.ID.WithAttempt(0) {
				end.ID = id
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	t.Write(&endCommand{session: t.Self().Key, id: end.ID, outcome: end.outcome, at: t.Now()}, &trimCommands{session: t.Self().Key})
	return nil
}

// find reads a command, nil where there is none.
func find(ctx context.Context, r neuron.Reader, session, id string) (*wire.ShellCommand, error) {
	var found *wire.ShellCommand
	err := r.Query(ctx, `select command, state, status, exit_code, note, bytes, kept, started_at, ended_at from shell_command where session = ? and id = ?`,
		[]any{session, id}, func(scan func(...any) error) error {
			c := wire.ShellCommand{Session: session, ClientID: id}
			var begun int64
			var over *int64
			err := scan(&c.Command, &c.State, &c.Status, &c.ExitCode, &c.Note, &c.Bytes, &c.Kept, &begun, &over)
			c.StartedAt = time.UnixMicro(begun).UTC()
			if over != nil {
				at := time.UnixMicro(*over).UTC()
				c.EndedAt = &at
			}
			found = &c
			return err
		})
	return found, err
}
