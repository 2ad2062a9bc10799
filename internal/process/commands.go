package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
	"soma/wire"
)

// Bounds of what a client chooses.
const (
	maxClientID = 64 // bytes
	maxName     = 128
	maxPath     = 4096
	maxCode     = 1 << 20
	maxTimeout  = time.Hour
)

// Open begins a session, or returns the one that was begun by the same request.
func (h *Host) Open(ctx context.Context, id string, req wire.OpenSession) (wire.Session, error) {
	if req.Kind == "" {
		req.Kind = wire.SessionRun
	}
	if req.Kind != wire.SessionRun && req.Kind != wire.SessionPy {
		return wire.Session{}, wire.Errorf(wire.BadRequest, "a session's kind is run or py, not %q", req.Kind)
	}
	if !filepath.IsAbs(req.Workspace) || len(req.Workspace) > maxPath || !utf8.ValidString(req.Workspace) {
		return wire.Session{}, wire.Errorf(wire.BadRequest, "workspace %.200q is not an absolute path of at most %d bytes", req.Workspace, maxPath)
	}
	if len(req.Model) > maxPath || len(req.Python) > maxPath || len(req.Agent) > maxName {
		return wire.Session{}, wire.Errorf(wire.BadRequest, "model and python have at most %d bytes, an agent's name %d", maxPath, maxName)
	}
	req.Workspace = filepath.Clean(req.Workspace)
	m := open{Session: id, Branch: ident.New(h.o.Now()), Open: req}
	if old, _, err := h.session(ctx, id); err != nil {
		return wire.Session{}, err
	} else if old != nil && old.State == stateRemoving {
		return wire.Session{}, removed(id)
	} else if old == nil {
		if gone, err := wasRemoved(h.rows(ctx), id); err != nil || gone {
			return wire.Session{}, cmp.Or(err, removed(id))
		}
		if err := checkFolder(req.Workspace); err != nil {
			return wire.Session{}, err
		}
		if req.Kind == wire.SessionRun {
			if _, err := h.o.Models.Find(ctx, req.Model); err != nil {
				return wire.Session{}, err
			}
			if m.PID, err = h.spare(ctx, id); err != nil {
				return wire.Session{}, err
			}
		}
		if err := h.checkPython(req.Python); err != nil {
			return wire.Session{}, err
		}
	}
	if err := h.deliver(ctx, sessionID(h.o.Owner, id), openType.Alias(), m); err != nil {
		return wire.Session{}, err
	}
	s, keep, err := h.session(ctx, id)
	if err != nil {
		return wire.Session{}, err
	}
	if s == nil {
		return wire.Session{}, wire.Errorf(wire.Internal, "session %s was not kept", id)
	}
	// Past the dedupe window and for a repeat under the same id the row says whether the request is the same.
	if s.Kind != req.Kind || s.Workspace != req.Workspace || s.Model != req.Model || s.Agent != req.Agent || s.Python != req.Python || keep != req.Keep {
		return wire.Session{}, wire.Errorf(wire.Conflict, "session %s exists with another workspace, model or kind", id).Do("choose another id")
	}
	return *s, nil
}

// Close refuses further inputs and ends the session's process and python kernel; its history stays.
func (h *Host) Close(ctx context.Context, id string) (wire.Session, error) {
	if s, err := h.Session(ctx, id); err != nil {
		return s, err
	}
	if err := h.deliver(ctx, sessionID(h.o.Owner, id), closeType.Alias(), closing{Session: id}); err != nil {
		return wire.Session{}, h.missing(ctx, id, err)
	}
	return h.Session(ctx, id)
}

// Admit stores an input durably under the client's id and lets the session's process have it; without a live process one is
// spawned. Repeated it answers the same.
func (h *Host) Admit(ctx context.Context, session, clientID string, in wire.Input) (wire.InputState, error) {
	if in.Mode == "" {
		in.Mode = wire.Steer
	}
	switch {
	case len(clientID) > maxClientID:
		return wire.InputState{}, wire.Errorf(wire.BadRequest, "an input's id has at most %d characters", maxClientID)
	case in.Mode != wire.Steer && in.Mode != wire.After:
		return wire.InputState{}, wire.Errorf(wire.BadRequest, "an input's mode is steer or after, not %q", in.Mode)
	case in.Text == "":
		return wire.InputState{}, wire.Errorf(wire.BadRequest, "the input is empty")
	}
	m := admit{Session: session, ClientID: clientID, Text: in.Text, Mode: in.Mode}
	before, pid, err := h.admittance(ctx, session)
	if err != nil {
		return wire.InputState{}, err
	}
	old, err := findInput(h.rows(ctx), session, clientID)
	if err != nil {
		return wire.InputState{}, err
	}
	if old == nil {
		err = h.admit(ctx, pid, m)
	} else if before, err = h.beforeInput(ctx, session, clientID, old); err != nil {
		return wire.InputState{}, err
	}
	// Of two requests at once under one id, one may fail over the other's row.
	row, rerr := findInput(h.rows(ctx), session, clientID)
	switch {
	case rerr != nil || row == nil && err != nil:
		return wire.InputState{}, cmp.Or(err, rerr)
	case row == nil:
		return wire.InputState{}, wire.Errorf(wire.Internal, "input %s was not kept", clientID)
	case row.text != in.Text || row.mode != in.Mode:
		return wire.InputState{}, wire.Errorf(wire.Conflict, "input %s was already sent with another text or mode", clientID).Do("choose another id")
	}
	st := row.wire(session, clientID)
	st.Event = before
	return st, nil
}

// admit brings an input to a process, 0 for none, or to whichever the session finds for it.
func (h *Host) admit(ctx context.Context, pid ident.PID, m admit) error {
	if pid != 0 {
		err := h.deliver(ctx, processID(h.o.Owner, pid), admitType.Alias(), m)
		var refused *wire.Error
		if !errors.As(err, &refused) || refused.Code != wire.ProcessEnded {
			return err
		}
	}
	var err error
	if m.Spare, err = h.spare(ctx, m.Session); err != nil {
		return err
	}
	return h.deliver(ctx, sessionID(h.o.Owner, m.Session), forwardType.Alias(), m)
}

// spare takes a pid for a process that a turn of the session may spawn.
func (h *Host) spare(ctx context.Context, session string) (ident.PID, error) {
	pid, err := h.pids.Take(ctx, neuron.PlaceOf(session))
	if err == nil {
		h.places.put(pid, neuron.PlaceOf(session))
	}
	return pid, problem(err)
}

// admittance returns the session's last event and its live process, 0 for none.
func (h *Host) admittance(ctx context.Context, session string) (lastEvent uint64, pid ident.PID, err error) {
	state := ""
	err = h.rows(ctx).Query(`select `+newestEvent+`, coalesce((select max(pid) from process p where p.session = s.id and p.ended_at is null), 0), s.state
from session s where s.id = ?`, []any{session}, func(scan func(...any) error) error { return scan(&lastEvent, &pid, &state) })
	switch {
	case err != nil:
	case state == stateRemoving:
		err = removed(session)
	case state == "":
		err = h.absent(ctx, session)
	}
	return lastEvent, pid, err
}

// beforeInput returns the sequence just before an input was admitted, for a client that asks again.
func (h *Host) beforeInput(ctx context.Context, session, clientID string, row *inputRow) (before uint64, err error) {
	err = h.rows(ctx).Query(`select seq, body from event where session = ? and kind = ? and at = ? order by seq desc`,
		[]any{session, wire.InputAdmitted, row.at.UnixMicro()}, func(scan func(...any) error) error {
			var seq uint64
			var body []byte
			if err := scan(&seq, &body); err != nil {
				return err
			}
			var e wire.InputEvent
			if err := json.Unmarshal(body, &e); err != nil {
				return err
			}
			if e.ClientID == clientID {
				before = seq - 1
			}
			return nil
		})
	return before, err
}

// Input returns the state of an input.
func (h *Host) Input(ctx context.Context, session, clientID string) (wire.InputState, error) {
	row, err := findInput(h.rows(ctx), session, clientID)
	if err == nil && row == nil {
		err = wire.Errorf(wire.NotFound, "session %s has no input %s", session, clientID)
	}
	if err != nil {
		return wire.InputState{}, err
	}
	return row.wire(session, clientID), nil
}

// RunCell runs code in the python kernel of a session of kind py. Repeated it answers the same.
func (h *Host) RunCell(ctx context.Context, session, clientID string, in wire.RunCell) (wire.Cell, error) {
	switch {
	case len(in.Code) > maxCode:
		return wire.Cell{}, wire.Errorf(wire.TooLarge, "a cell has at most %d bytes", maxCode)
	case in.TimeoutMS < 0 || in.TimeoutMS > maxTimeout.Milliseconds():
		return wire.Cell{}, wire.Errorf(wire.BadRequest, "timeout_ms is at most %d", maxTimeout.Milliseconds())
	case in.BackgroundMS < 0 || in.BackgroundMS > maxTimeout.Milliseconds():
		return wire.Cell{}, wire.Errorf(wire.BadRequest, "background_ms is at most %d", maxTimeout.Milliseconds())
	case in.TimeoutMS == 0:
		in.TimeoutMS = maxTimeout.Milliseconds()
	}
	id := ident.Named("cell", session+"/"+clientID)
	m := runCell{Cell: id.String(), Code: in.Code, TimeoutMS: in.TimeoutMS, BackgroundMS: in.BackgroundMS}
	if err := h.deliver(ctx, sessionID(h.o.Owner, session), runCellType.Alias(), m); err != nil {
		return wire.Cell{}, h.missing(ctx, session, err)
	}
	c, err := h.Cell(ctx, m.Cell)
	if err == nil && c.Code != in.Code {
		return c, wire.Errorf(wire.Conflict, "cell %s was already sent with other code", clientID).Do("choose another id")
	}
	return c, err
}

// InterruptCell stops a cell of a session of kind py, or one that an agent has in the background; one that has ended stays as it is.
func (h *Host) InterruptCell(ctx context.Context, id string) (wire.Cell, error) {
	c, err := h.Cell(ctx, id)
	if err != nil {
		return c, err
	}
	if c.PID != 0 && c.State != cells.Backgrounded {
		return c, wire.Errorf(wire.Unprocessable, "cell %s belongs to process %d", id, c.PID).Do("interrupt the process")
	}
	if err := h.deliver(ctx, sessionID(h.o.Owner, c.Session), stopCellType.Alias(), stopCell{Cell: id}); err != nil {
		return c, err
	}
	return h.Cell(ctx, id)
}

// Signal pauses, resumes, interrupts or terminates a process. Repeated under the same id it has no further effect.
func (h *Host) Signal(ctx context.Context, pid uint64, clientID string, s wire.Signal) (wire.Process, error) {
	switch s.Signal {
	case wire.Pause, wire.Resume, wire.Interrupt, wire.Terminate:
	default:
		return wire.Process{}, wire.Errorf(wire.BadRequest, "a signal is interrupt, pause, resume or terminate, not %q", s.Signal)
	}
	p, err := h.look(ctx, pid)
	if err != nil {
		return wire.Process{}, err
	}
	if p.Ended() {
		if s.Signal != wire.Terminate {
			err = wire.Errorf(wire.ProcessEnded, "process %d has ended", pid)
		}
		return p, err
	}
	id := ident.Named("signal", ident.PID(pid).String()+"/"+clientID)
	d, err := signalType.New(processID(h.o.Owner, ident.PID(pid)), signal{Signal: s.Signal}, h.o.Now())
	if err != nil {
		return wire.Process{}, err
	}
	d.ID, d.Correlation, d.Lane = id, id, neuron.Signal
	if err := h.send(ctx, d); err != nil {
		return wire.Process{}, err
	}
	return h.look(ctx, pid)
}

// deliver sends under an id of its own: a repeat is told by the row that the first request left, and one that was refused is
// judged anew.
func (h *Host) deliver(ctx context.Context, to neuron.ID, alias string, msg any) error {
	d, err := neuron.NewType[any](alias).New(to, msg, h.o.Now())
	if err != nil {
		return err
	}
	return h.send(ctx, d)
}

// maxSends bounds how often a delivery is repeated whose turn met a python kernel just as that ended: the next turn sees it.
const maxSends = 5

// send delivers; the error is one of the wire, or the engine's own.
func (h *Host) send(ctx context.Context, d neuron.Delivery) error {
	for n := 1; ; n++ {
		err := h.neurons.Deliver(ctx, d)
		if n == maxSends || !errors.Is(err, pykernel.ErrKernelEnded) {
			return problem(err)
		}
	}
}

// problem turns what the engine returns into an error of the wire.
func problem(err error) error {
	var r *neuron.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return wire.Errorf(codeOf(r.Code), "%s", errorText(r))
	case errors.Is(err, neuron.ErrBusy):
		return wire.Errorf(wire.Busy, "too much waits for it").Do("try again")
	case moved(err):
		return wire.Errorf(wire.Unavailable, "ownership is moving between daemons").Do("try again")
	case errors.Is(err, neuron.ErrStopped):
		return wire.Errorf(wire.Stopping, "the daemon is stopping").Do("try again when it is back")
	}
	return err
}

func errorText(r *neuron.Refusal) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	return string(r.Code)
}

func codeOf(c neuron.Code) wire.Code {
	switch c {
	case codeEnded:
		return wire.ProcessEnded
	case codeClosed:
		return wire.SessionClosed
	case codeConflict:
		return wire.Conflict
	case codeMissing:
		return wire.NotFound
	case codeFull:
		return wire.Busy
	case codeGone:
		return wire.Gone
	case codeInUse, codeUsed:
		return wire.InUse
	}
	return wire.Unprocessable
}
