package process

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/background"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
)

// pykernelSlot is what a neuron remembers of its branch's python kernel.
type pykernelSlot struct {
	ID string `json:"id,omitempty"` // the one that takes the next cell; empty: none yet, or the last one has ended
	// Lost says that an earlier one ended with its names, Old; Tell that the next result has to say so.
	Lost bool   `json:"lost,omitempty"`
	Tell bool   `json:"tell,omitempty"`
	Old  string `json:"old,omitempty"`
}

const namesGone = "names of the earlier kernel are gone"

// gone forgets a python kernel that has ended and reports whether it was the current one.
func (s *pykernelSlot) gone(id string) bool {
	if id != s.ID {
		return false
	}
	s.ID, s.Lost, s.Old = "", true, id
	return true
}

// note puts the loss of names, and of what ran, in front of the first result of the python kernel that followed; woken as for
// background.Stopped.
func (s *pykernelSlot) note(t *neuron.Turn, m *pykernel.CellEnded, woken bool) error {
	if !s.Tell || m.Kernel != s.ID {
		return nil
	}
	said := []string{namesGone}
	stopped, err := background.Stopped(t, s.Old, woken)
	if err != nil {
		return err
	}
	s.Tell, s.Old = false, ""
	for _, more := range []string{m.Note, stopped} {
		if more != "" {
			said = append(said, more)
		}
	}
	m.Note = strings.Join(said, "; ")
	return nil
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

// room refuses a cell whose python kernel takes no more for now, and else returns how many it takes (P-038). One that is yet to
// be made takes them.
func (h *Host) room(t *neuron.Turn, kernel string) (left int, full, err error) {
	if kernel == "" {
		return background.MaxCells, nil, nil
	}
	if h.o.Room != nil {
		if err := h.o.Room(kernel); err != nil {
			return 0, fmt.Errorf("not started: %w", err), nil
		}
	}
	running, err := background.Cells(t, kernel)
	return background.MaxCells - running, nil, err
}

var errCells = fmt.Errorf("not started: %d cells run already, and no more may at once: wait until one has ended", background.MaxCells)

// startCell stages a cell in a python kernel: its row and its execute frame.
func startCell(t *neuron.Turn, kernel string, at site, pid ident.PID, m runCell) error {
	origin := pykernel.OriginPerson
	if pid != 0 {
		origin = pykernel.OriginModel
	}
	frame, err := pykernel.NewFrame(kernel, m.Cell, pykernel.Execute{Type: pykernel.FrameExecute, Cell: m.Cell, Code: m.Code, TimeoutMS: m.TimeoutMS,
		Origin: origin, BackgroundMS: m.BackgroundMS, Cause: causeOf(t)}, t.Now())
	if err != nil {
		return err
	}
	t.Write(&cells.Insert{ID: m.Cell, Owner: t.Self().String(), Session: at.session, Branch: at.branch, PID: pid, Kernel: kernel,
		Code: m.Code, TimeoutMS: m.TimeoutMS, At: t.Now()}, frame)
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

func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
