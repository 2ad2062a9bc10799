package process

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/wire"
)

// pykernelSlot is what a neuron remembers of its branch's python kernel.
type pykernelSlot struct {
	ID string `json:"id,omitempty"` // the one that takes the next cell; empty: none yet, or the last one has ended
	// Lost says that an earlier one ended with its names; Tell that the next result has to say so.
	Lost bool `json:"lost,omitempty"`
	Tell bool `json:"tell,omitempty"`
}

const namesGone = "names of the earlier kernel are gone"

// gone forgets a python kernel that has ended and reports whether it was the current one.
func (s *pykernelSlot) gone(id string) bool {
	if id != s.ID {
		return false
	}
	s.ID, s.Lost = "", true
	return true
}

// note puts the loss of names in front of the first result of the python kernel that followed.
func (s *pykernelSlot) note(m *pykernel.CellEnded) {
	if !s.Tell || m.Kernel != s.ID {
		return
	}
	s.Tell = false
	if m.Note != "" {
		m.Note = namesGone + "; " + m.Note
	} else {
		m.Note = namesGone
	}
}

// site says where a branch's code runs.
type site struct {
	session, workspace, python string
	branch                     ident.ID
}

// pykernelFor returns the python kernel that takes the branch's next cells, and stages a new one where there is none.
// It is called at most once a turn.
func (h *Host) pykernelFor(t *neuron.Turn, slot *pykernelSlot, at site) (string, error) {
	if slot.ID != "" {
		ok, err := takesFrames(t, slot.ID)
		if err != nil {
			return "", err
		}
		if !ok {
			slot.gone(slot.ID)
		}
	}
	if slot.ID == "" {
		slot.ID, slot.Tell, slot.Lost = t.NewID().String(), slot.Lost, false
		t.Write(&pykernel.InsertKernel{ID: slot.ID, Owner: t.Self().String(), Session: at.session, Branch: at.branch, Node: h.o.Node,
			Workspace: at.workspace, Python: cmp.Or(at.python, h.o.Python), Token: newToken(), At: t.Now()})
	}
	return slot.ID, nil
}

// room refuses a cell whose python kernel takes no more frames for now; one that is yet to be made takes them.
func (h *Host) room(kernel string) error {
	if h.o.Room == nil || kernel == "" {
		return nil
	}
	if err := h.o.Room(kernel); err != nil {
		return fmt.Errorf("not started: %w", err)
	}
	return nil
}

// startCell stages a cell in a python kernel: its row and its execute frame.
func startCell(t *neuron.Turn, kernel string, at site, pid ident.PID, m runCell) error {
	frame, err := pykernel.NewFrame(kernel, m.Cell, pykernel.Execute{Type: pykernel.FrameExecute, Cell: m.Cell, Code: m.Code, TimeoutMS: m.TimeoutMS,
		Cause: causeOf(t)}, t.Now())
	if err != nil {
		return err
	}
	t.Write(&insertCell{id: m.Cell, owner: t.Self().String(), session: at.session, branch: at.branch, pid: pid, kernel: kernel,
		code: m.Code, timeoutMS: m.TimeoutMS, at: t.Now()}, frame)
	return nil
}

// causeOf is what the turn's own delivery hands on to what the turn brings about outside of it.
func causeOf(t *neuron.Turn) pykernel.Cause {
	d := t.Delivery()
	return pykernel.Cause{Correlation: d.Correlation, Causation: d.ID}
}

// interruptCell stages an interrupt frame; a python kernel that takes no more frames needs none.
func interruptCell(t *neuron.Turn, kernel, cell string) error {
	ok, err := takesFrames(t, kernel)
	if err != nil || !ok {
		return err
	}
	frame, err := pykernel.NewFrame(kernel, cell, pykernel.Interrupt{Type: pykernel.FrameInterrupt, Cell: cell}, t.Now())
	if err != nil {
		return err
	}
	t.Write(frame)
	return nil
}

func takesFrames(t *neuron.Turn, kernel string) (bool, error) {
	var n int
	err := t.Query(`select count(*) from kernel where id = ? and state in ('booting', 'running')`, []any{kernel},
		func(scan func(...any) error) error { return scan(&n) })
	return n == 1, err
}

func fault(f *pykernel.CellFault) *wire.CellFault {
	if f == nil {
		return nil
	}
	return &wire.CellFault{Type: f.Type, Message: f.Message, Traceback: f.Traceback}
}

func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
