package process

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
	"soma/wire"
)

// sessionState is what a session's neuron remembers.
type sessionState struct {
	Open      wire.OpenSession `json:"open"`
	Branch    ident.ID         `json:"branch"`
	PID       ident.PID        `json:"pid,omitempty"` // the newest process
	Closed    bool             `json:"closed,omitempty"`
	Removing  bool             `json:"removing,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	Kernel    pykernelSlot     `json:"kernel"` // of a session of kind py
}

func (s *sessionState) exists() bool { return !s.Branch.IsZero() }

func sessionID(owner, id string) neuron.ID {
	return neuron.ID{Owner: owner, Kind: SessionKind, Key: id}
}

func (h *Host) sessionKind() *neuron.Kind {
	k := neuron.NewKind(SessionKind)
	k.Place = func(id neuron.ID) neuron.Place { return neuron.PlaceOf(id.Key) }
	neuron.Handle(k, openType, h.openSession)
	neuron.Handle(k, forwardType, h.forwardInput)
	neuron.Handle(k, closeType, h.closeSession)
	neuron.Handle(k, removeType, h.removeSession)
	neuron.Handle(k, runCellType, h.runSessionCell)
	neuron.Handle(k, stopCellType, h.stopSessionCell)
	neuron.Handle(k, cellEndedType, h.sessionCellEnded)
	neuron.Handle(k, backgroundedType, h.sessionCellBackgrounded)
	// Nobody is woken by a job where no agent works.
	neuron.Handle(k, jobEndedType, func(*neuron.Turn, pykernel.JobEnded) error { return nil })
	neuron.Handle(k, seenType, func(*neuron.Turn, pykernel.ResultsSeen) error { return nil })
	neuron.Handle(k, goneType, h.sessionPykernelGone)
	return k
}

func existingSession(t *neuron.Turn) (sessionState, error) {
	s, err := neuron.State(t, sessionType, nil)
	switch {
	case err != nil:
	case !s.exists():
		err = neuron.SettleAs(codeMissing, errors.New("no such session"))
	case s.Removing:
		err = neuron.SettleAs(codeGone, errors.New("the session was removed"))
	}
	return s, err
}

// workingSession returns the state of a session of this kind that takes work.
func workingSession(t *neuron.Turn, kind string) (sessionState, error) {
	s, err := existingSession(t)
	switch {
	case err != nil:
		return s, err
	case s.Closed:
		return s, neuron.SettleAs(codeClosed, errors.New("the session is closed"))
	case s.Open.Kind != kind:
		return s, neuron.SettleAs(codeKind, fmt.Errorf("the session is of kind %s", s.Open.Kind))
	}
	return s, nil
}

func (h *Host) openSession(t *neuron.Turn, m open) error {
	s, err := neuron.State(t, sessionType, nil)
	if err != nil {
		return err
	}
	if s.exists() {
		if s.Open != m.Open {
			return neuron.SettleAs(codeConflict, errors.New("the session exists with another workspace, model or kind"))
		}
		return nil
	}
	if gone, err := wasRemoved(t, t.Self().Key); err != nil {
		return err
	} else if gone {
		return neuron.SettleAs(codeGone, errors.New("the session was removed"))
	}
	s = sessionState{Open: m.Open, Branch: m.Branch, PID: m.PID, CreatedAt: t.Now()}
	id := t.Self().Key
	t.Write(
		&insertSession{id: id, owner: t.Self().Owner, place: neuron.PlaceOf(id), open: m.Open, branch: m.Branch, at: t.Now()},
		&insertBranch{id: m.Branch, session: id, name: "main", at: t.Now()},
	)
	emit(t, id, 0, wire.SessionOpened, wire.Session{ID: id, Kind: m.Open.Kind, Workspace: m.Open.Workspace, Model: m.Open.Model,
		Agent: m.Open.Agent, Python: m.Open.Python, State: "open", PID: uint64(m.PID), CreatedAt: t.Now()})
	if m.PID != 0 {
		spawn(t, &s, m.PID)
	}
	return neuron.SetState(t, sessionType, s)
}

// spawn writes the row of a process of the session; its neuron takes its state from the row at its first delivery.
func spawn(t *neuron.Turn, s *sessionState, pid ident.PID) {
	id := t.Self()
	s.PID = pid
	t.Write(&insertProcess{pid: pid, owner: id.Owner, session: id.Key, branch: s.Branch, agent: s.Open.Agent, model: s.Open.Model,
		workspace: s.Open.Workspace, state: string(turn.Created), at: t.Now()})
	emit(t, id.Key, pid, wire.ProcessSpawned, wire.Process{PID: uint64(pid), Session: id.Key, Agent: s.Open.Agent, Model: s.Open.Model,
		Workspace: s.Open.Workspace, State: wire.State{State: string(turn.Created), Since: t.Now()}, Cost: new(int64), CreatedAt: t.Now()})
}

// forwardInput stores the input and sends it to the session's process, or to a new one where none lives. One that comes back,
// because its process ended before it, goes to the next; in a session that was closed meanwhile it is cancelled.
func (h *Host) forwardInput(t *neuron.Turn, m admit) error {
	s, err := workingSession(t, wire.SessionRun)
	var refused *neuron.Refusal
	if m.Stored && errors.As(err, &refused) && refused.Code == codeClosed {
		cancelInput(t, m)
		return nil
	}
	if err != nil {
		return err
	}
	if !m.Stored {
		if old, err := findInput(t, m.Session, m.ClientID); err != nil || old != nil {
			return errors.Join(err, sameInput(old, m))
		}
	}
	alive, err := processAlive(t, s.PID)
	if err != nil {
		return err
	}
	if !alive {
		if m.Spare == 0 {
			return neuron.Settle(fmt.Errorf("input %s came without a pid to spawn", m.ClientID))
		}
		spawn(t, &s, m.Spare)
		m.Spare = 0 // the new process finds the input in its row, whatever reaches it first
	}
	if m.Stored {
		t.Write(&moveInput{session: m.Session, clientID: m.ClientID, pid: s.PID})
	} else {
		storeInput(t, m, s.PID)
	}
	m.Stored, m.Text = true, "" // the row has the text
	if err := neuron.Send(t, processID(t.Self().Owner, s.PID), admitType, m, neuron.AtDepth(0)); err != nil {
		return err
	}
	return neuron.SetState(t, sessionType, s)
}

func storeInput(t *neuron.Turn, m admit, pid ident.PID) {
	t.Write(&insertInput{session: m.Session, clientID: m.ClientID, id: t.NewID(), pid: pid, mode: m.Mode, text: m.Text, at: t.Now()})
	emit(t, m.Session, pid, wire.InputAdmitted, wire.InputEvent{ClientID: m.ClientID, Mode: m.Mode, State: "admitted", Text: m.Text})
}

func cancelInput(t *neuron.Turn, m admit) {
	t.Write(&endInput{session: m.Session, clientID: m.ClientID, state: "cancelled", at: t.Now()})
	emit(t, m.Session, 0, wire.InputEnded, wire.InputEvent{ClientID: m.ClientID, Mode: m.Mode, State: "cancelled"})
}

// sameInput refuses an id that was used for another input; the same input again is no error.
func sameInput(old *inputRow, m admit) error {
	if old == nil || old.text == m.Text && old.mode == m.Mode {
		return nil
	}
	return neuron.SettleAs(codeConflict, fmt.Errorf("input %s was already sent with another text or mode", m.ClientID))
}

func (h *Host) closeSession(t *neuron.Turn, m closing) error {
	s, err := existingSession(t)
	if err != nil || s.Closed {
		return err
	}
	s.Closed = true
	id := t.Self()
	t.Write(&closeSession{id: id.Key, at: t.Now()})
	if s.Kernel.ID != "" {
		t.Write(&pykernel.EndKernel{ID: s.Kernel.ID, Reason: "the session was closed"})
	}
	now := t.Now()
	emit(t, id.Key, 0, wire.SessionEnded, wire.Session{ID: id.Key, Kind: s.Open.Kind, Workspace: s.Open.Workspace, Model: s.Open.Model,
		Agent: s.Open.Agent, Python: s.Open.Python, State: "closed", PID: uint64(s.PID), CreatedAt: s.CreatedAt, ClosedAt: &now})
	alive, err := processAlive(t, s.PID)
	if err != nil {
		return err
	}
	if alive {
		end := signal{Signal: wire.Terminate, Code: 1, Cause: string(turn.Closed)}
		if err := neuron.Send(t, processID(id.Owner, s.PID), signalType, end, neuron.OnLane(neuron.Signal), neuron.AtDepth(0)); err != nil {
			return err
		}
	}
	return neuron.SetState(t, sessionType, s)
}

func (h *Host) runSessionCell(t *neuron.Turn, m runCell) error {
	s, err := workingSession(t, wire.SessionPy)
	if err != nil {
		return err
	}
	old, _, err := cells.Find(t, m.Cell)
	if err != nil {
		return err
	}
	if old != nil {
		if old.Code != m.Code {
			return neuron.SettleAs(codeConflict, errors.New("this cell was already sent with other code"))
		}
		return nil
	}
	left, full, err := h.room(t, s.Kernel.ID)
	if full == nil && left <= 0 {
		full = errCells
	}
	if err != nil || full != nil {
		return cmp.Or(err, neuron.SettleAs(codeFull, full))
	}
	id := t.Self()
	at := site{session: id.Key, branch: s.Branch, workspace: s.Open.Workspace, python: s.Open.Python}
	kernel, err := h.pykernelFor(t, &s.Kernel, at)
	if err != nil {
		return err
	}
	if err := startCell(t, kernel, at, 0, m); err != nil {
		return err
	}
	emit(t, id.Key, 0, wire.CellStarted, wire.CellEvent{Cell: wire.Cell{ID: m.Cell, Session: id.Key, Kernel: s.Kernel.ID, Code: m.Code,
		State: cells.Started, StartedAt: t.Now()}})
	return neuron.SetState(t, sessionType, s)
}

func (h *Host) stopSessionCell(t *neuron.Turn, m stopCell) error {
	c, _, err := cells.Find(t, m.Cell)
	switch {
	case err != nil:
		return err
	case c == nil || c.Session != t.Self().Key:
		return neuron.SettleAs(codeMissing, errors.New("no such cell"))
	case c.State == cells.Ended:
		return nil
	}
	return interruptCell(t, c.Kernel, c.ID)
}

func (h *Host) sessionCellEnded(t *neuron.Turn, m pykernel.CellEnded) error {
	s, err := neuron.State(t, sessionType, nil)
	if err != nil {
		return err
	}
	c, body, err := cells.Find(t, m.Cell)
	if err != nil || c == nil || c.State == cells.Ended {
		return err
	}
	if err := s.Kernel.note(t, &m, false); err != nil {
		return err
	}
	end := &cells.End{Ended: m, BackgroundedAt: body.Since(), At: t.Now(), Cause: handedOn(t)}
	t.Write(end)
	emit(t, t.Self().Key, 0, wire.CellEnded, wire.CellEvent{Cell: cells.Ending(*c, end), Output: m.Output.Head, Tail: m.Output.Tail})
	return neuron.SetState(t, sessionType, s)
}

func (h *Host) sessionPykernelGone(t *neuron.Turn, m pykernel.Gone) error {
	s, err := neuron.State(t, sessionType, nil)
	if err != nil || !s.Kernel.gone(m.Kernel) {
		return err
	}
	return neuron.SetState(t, sessionType, s)
}
