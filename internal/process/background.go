package process

import (
	"fmt"

	"soma/ident"
	"soma/internal/agent/tool"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/process/wake"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// processCellBackgrounded ends the call of a cell that goes on: the model reads what there is so far (P-039).
func (h *Host) processCellBackgrounded(t *neuron.Turn, m pykernel.CellBackgrounded) error {
	return h.work(t, func(w *work) error {
		c, _, err := cells.Find(t, m.Cell)
		if err != nil || c == nil || c.State != cells.Started {
			return err
		}
		t.Write(&cells.Background{ID: m.Cell, At: t.Now()})
		open := w.callOf(m.Cell)
		if open == nil { // cancelled meanwhile
			return nil
		}
		so := pykernel.CellEnded{Kernel: m.Kernel, Cell: m.Cell, Status: tool.Backgrounded, DurationMS: m.DurationMS, Output: m.Output}
		if err := w.s.Kernel.note(t, &so, true); err != nil {
			return err
		}
		return w.toolDone(*open, so)
	})
}

// sessionCellBackgrounded records that a cell without an agent goes on behind whoever asked for that.
func (h *Host) sessionCellBackgrounded(t *neuron.Turn, m pykernel.CellBackgrounded) error {
	c, _, err := cells.Find(t, m.Cell)
	if err != nil || c == nil || c.State != cells.Started {
		return err
	}
	t.Write(&cells.Background{ID: m.Cell, At: t.Now()})
	c.State, c.DurationMS, c.OutputSize = cells.Backgrounded, m.DurationMS, m.Output.Size
	emit(t, t.Self().Key, 0, wire.CellBackground, wire.CellEvent{Cell: *c, Output: m.Output.Head, Tail: m.Output.Tail})
	return nil
}

// cellEnded takes the end of a cell that no call waits for.
func (w *work) cellEnded(m pykernel.CellEnded, code string, body cells.Body) error {
	w.ending = m.Cell
	if body.Since() == nil || !m.Wake {
		return w.quietEnd()
	}
	return w.wake(wake.OfCell(m, code))
}

func (w *work) jobEnded(m pykernel.JobEnded) error {
	w.ending = m.Job
	if !m.Wake || m.Service {
		return w.quietEnd()
	}
	return w.wake(wake.OfJob(m))
}

// pykernelGone forgets a python kernel, and tells of the jobs that were stopped with it.
func (w *work) pykernelGone(m pykernel.Gone) error {
	w.s.Kernel.gone(m.Kernel)
	var lost []wake.End
	for _, j := range m.Jobs {
		if !j.Service {
			lost = append(lost, wake.OfLostJob(m.Kernel, j.ID, j.Command))
		}
	}
	if len(lost) == 0 {
		return w.quietEnd()
	}
	return w.wake(lost...)
}

// quietEnd lets a process that waited for nothing else end.
func (w *work) quietEnd() error {
	if w.s.Machine.Reason != turn.OnBackground {
		return nil
	}
	return w.step(turn.BackgroundEnded{})
}

// wake stores news for the process in the turn that stores the end: in the wake that waits, or in a new one, whose id is that of
// the first cell or job that it tells of. A process that has ended is told nothing: its python kernel ends with it.
func (w *work) wake(ends ...wake.End) error {
	if w.s.Machine.Status == turn.Terminated {
		w.h.o.Log.Debug("wake dropped", "pid", w.pid, "why", "the process has ended", "ends", len(ends))
		return nil
	}
	news, fresh := wake.News{}, w.s.Wake == ""
	var err error
	if fresh {
		if w.s.Wake, err = w.wakeID(ends[0]); err != nil {
			return err
		}
	} else if news, err = w.news(); err != nil {
		return err
	}
	for _, e := range ends {
		news = news.With(e)
	}
	if fresh {
		if err := w.step(admitted(w.s.Wake, wire.InputWake)); err != nil {
			return err
		}
		w.t.Write(&insertInput{session: w.s.Session, clientID: w.s.Wake, id: w.t.NewID(), pid: w.pid, mode: wire.InputWake, text: news.String(), at: w.t.Now()})
	} else {
		w.t.Write(&updateWake{session: w.s.Session, clientID: w.s.Wake, text: news.String()})
	}
	w.event(wire.InputAdmitted, wire.InputEvent{ClientID: w.s.Wake, Mode: wire.InputWake, Kind: wire.InputWake, State: "admitted", Line: news.Line()})
	return nil
}

// wakeID is the id of the cell or job, or where another input of the session has that, one that is derived from it.
func (w *work) wakeID(e wake.End) (string, error) {
	if wire.ValidID(e.ID) && len(e.ID) <= maxClientID {
		taken, err := findInput(w.t, w.s.Session, e.ID)
		if err != nil || taken == nil {
			return e.ID, err
		}
	}
	return ident.Named(e.Kernel, string(e.Kind)+":"+e.ID).String(), nil
}

// news returns what the wake that waits tells.
func (w *work) news() (wake.News, error) {
	in, err := findInput(w.t, w.s.Session, w.s.Wake)
	if err == nil && in == nil {
		err = neuron.Settle(fmt.Errorf("wake %s has no row", w.s.Wake))
	}
	if err != nil {
		return wake.News{}, err
	}
	n, err := wake.Parse(in.text)
	if err != nil {
		return n, neuron.Settle(err)
	}
	return n, nil
}

// seen retires what was read since: a wake of which nothing is left never comes.
func (w *work) seen(m pykernel.ResultsSeen) error {
	if w.s.Wake == "" {
		return nil
	}
	news, err := w.news()
	if err != nil {
		return err
	}
	news, changed := news.Read(m.Kernel, m.Cells, m.Jobs)
	if !changed {
		return nil
	}
	w.t.Write(&updateWake{session: w.s.Session, clientID: w.s.Wake, text: news.String()})
	if !news.Empty() {
		return nil
	}
	return w.step(turn.WakeRead{Input: w.s.Wake})
}

// deliverWake lets the wake's news join the branch: the model reads all of it, people a line for each end.
func (w *work) deliverWake() error {
	news, err := w.news()
	if err != nil {
		return err
	}
	w.joined = append(w.joined, w.append(message.Message{Role: message.User, Text: news.Notice()}, 0, news.Line()))
	w.endInput(w.s.Wake, "delivered")
	return nil
}
