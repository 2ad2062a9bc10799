package process

import (
	"cmp"
	"encoding/json"
	"fmt"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/internal/agent/turn"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/process/shorten"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// admit stores an input and lets the machine have it (K-14). The same input again is without effect.
func (w *work) admit(m admit) error {
	if m.Session != w.s.Session {
		return neuron.SettleAs(codeMissing, fmt.Errorf("process %s is not of session %s", w.pid, m.Session))
	}
	if m.Stored && w.s.Machine.Status == turn.Terminated {
		// It ended before the input came: the session has it taken by another one.
		return neuron.Send(w.t, sessionID(w.t.Self().Owner, m.Session), forwardType, m, neuron.AtDepth(0))
	}
	old, err := findInput(w.t, m.Session, m.ClientID)
	switch {
	case err != nil:
		return err
	case old != nil && !m.Stored:
		return sameInput(old, m)
	case old != nil && (old.pid != w.pid || old.state != "admitted"):
		return nil
	}
	if err := w.step(admitted(m.ClientID, m.Mode)); err != nil {
		return err
	}
	if !m.Stored {
		storeInput(w.t, m, w.pid)
	}
	crash.Point(crash.AdmitBeforeCommit)
	return nil
}

// answered takes the outcome of an inference. Every attempt gets its ledger row, also one that comes too late.
func (w *work) answered(m neuron.Ended) error {
	a, err := w.outcome(m)
	if err != nil {
		return err
	}
	w.reply, w.took = a, wire.StepEndedEvent{Step: a.Step, Attempt: m.Attempt}
	if a.Vendor != "" {
		w.s.Vendor, w.s.Served = a.Vendor, a.Model
	}
	current := m.ID.WithAttempt(0) == w.s.Execution && m.Attempt == w.s.Machine.Attempt
	f := a.Failure
	switch {
	case f == nil && current:
		w.ledger(m, "done")
		return w.takeCalls()
	case f == nil:
		w.ledger(m, "superseded")
	case f.Class == lost || f.Class == cancelled:
		w.ledger(m, f.Class)
	default:
		w.ledger(m, "failed")
	}
	switch {
	case !current: // what it showed was superseded when it was given up
		return nil
	case f.Class == lost:
		return w.step(turn.Lost{Inference: a.Step, Attempt: m.Attempt})
	}
	return w.step(turn.Failed{Inference: a.Step, Attempt: m.Attempt, Class: model.Class(f.Class), Words: f.Words, RetryAfter: f.RetryAfter})
}

// outcome reads an outcome. Where none was reported, and where nobody knows what the attempt has used, its reservation stands
// for that.
func (w *work) outcome(m neuron.Ended) (*answer, error) {
	a := &answer{Step: w.s.Machine.Inference, Vendor: w.s.Vendor, Model: cmp.Or(w.s.Served, w.s.Model), StartedAt: w.t.Now(), EndedAt: w.t.Now()}
	switch m.Status {
	case neuron.Done:
		a = &answer{}
		if err := json.Unmarshal(m.Payload, a); err != nil {
			return nil, neuron.SettleAs(neuron.Undecodable, err)
		}
		if a.Failure == nil || a.Failure.Class != lost {
			return a, nil
		}
	case neuron.Unknown:
		a.Failure = &failure{Class: lost, Words: m.Error}
	default:
		a.Failure = &failure{Class: string(model.Fatal), Words: m.Error}
	}
	a.Usage = w.reserved()
	return a, nil
}

// takeCalls judges the calls of the answer in order and gives the answer to the machine.
func (w *work) takeCalls() error {
	calls := w.reply.Message.Calls
	w.s.Calls = nil
	w.took.Cells = make([]string, len(calls))
	var left int
	var full, err error
	if len(calls) > 0 {
		if left, full, err = w.h.room(w.t, w.s.Kernel.ID); err != nil {
			return err
		}
	}
	events := make([]turn.Call, len(calls))
	for i, c := range calls {
		open := openCall{Position: i, CallID: c.ID, Row: CallRow(w.t.Delivery().ID, i)}
		row := &insertToolCall{id: open.Row, pid: w.pid, branch: w.s.Branch, step: w.took.Step, position: i, call: c,
			state: "running", at: w.t.Now()}
		err := cmp.Or(w.h.tools.Check(c), full)
		if err == nil && left <= 0 {
			err = errCells
		}
		if err != nil {
			why := shorten.Text(err.Error(), shorten.MaxText)
			row.state, row.status, row.endedAt = "ended", message.Error, w.t.Now()
			w.results[open.key()] = message.Message{Role: message.Tool, CallID: c.ID, Status: message.Error, Text: why}
			row.result = w.held(open.key())
			w.refused = append(w.refused, wire.ToolResultEvent{Step: w.took.Step, Position: i, CallID: c.ID, Tool: shorten.Text(c.Tool, 256),
				Status: string(message.Error), Error: why})
		} else {
			open.Tool = c.Tool
			row.cell = open.cell()
			left--
		}
		w.t.Write(row)
		w.s.Calls, w.took.Cells[i] = append(w.s.Calls, open), row.cell
		events[i] = turn.Call{ID: open.key(), Settled: err != nil}
	}
	if err := w.step(turn.Answered{Inference: w.took.Step, Attempt: w.took.Attempt, Calls: events}); err != nil {
		return err
	}
	crash.Point(crash.AnswerBeforeCommit)
	return nil
}

// held returns the tool message that has to wait in its call's row, because an earlier call is still open; else nil.
func (w *work) held(key string) []byte {
	if m, ok := w.results[key]; ok {
		return shorten.JSON(m)
	}
	return nil
}

func (w *work) ledger(m neuron.Ended, outcome string) {
	a := w.reply
	cost := w.cost(a.Vendor, a.Model, a.Usage, a.StartedAt)
	w.t.Write(&insertLedger{id: m.ID.WithAttempt(uint16(m.Attempt)), pid: w.pid, session: w.s.Session, provider: a.Vendor, model: a.Model,
		step: a.Step, attempt: m.Attempt, outcome: outcome, usage: a.Usage, cost: cost, startedAt: a.StartedAt, at: a.EndedAt, cause: handedOn(w.t)})
	w.s.Sums.spend(a.Usage, cost)
	w.s.Turn.spend(a.Usage, cost)
	w.took.Cost = cost
}

// processCellEnded stores the outcome of a cell; the machine hears of it if the call is still open.
func (h *Host) processCellEnded(t *neuron.Turn, m pykernel.CellEnded) error {
	return h.work(t, func(w *work) error {
		c, body, err := cells.Find(t, m.Cell)
		if err != nil || c == nil || c.State == cells.Ended {
			return err
		}
		open := w.callOf(m.Cell)
		if open != nil {
			if err := w.s.Kernel.note(t, &m, true); err != nil {
				return err
			}
		}
		t.Write(&cells.End{Ended: m, BackgroundedAt: body.Since(), At: t.Now(), Cause: handedOn(t)})
		if open != nil {
			return w.toolDone(*open, m)
		}
		return w.cellEnded(m, c.Code, body)
	})
}

// callOf returns the open call of a cell, nil where none waits for it.
func (w *work) callOf(cell string) *openCall {
	for i := range w.s.Calls {
		if w.s.Calls[i].cell() == cell {
			return &w.s.Calls[i]
		}
	}
	return nil
}

func (w *work) toolDone(c openCall, m pykernel.CellEnded) error {
	result := resultOf(c, m)
	w.results[c.key()] = result
	end := &endToolCall{id: c.Row, status: result.Status, at: w.t.Now()}
	w.t.Write(end)
	step := w.s.Machine.Inference
	effects, err := w.move(turn.ToolDone{Inference: step, Call: c.key()})
	if err != nil {
		return err
	}
	ev := wire.ToolResultEvent{Step: step, Position: c.Position, CallID: c.CallID, Tool: c.Tool, Cell: m.Cell, Status: string(m.Status),
		DurationMS: m.DurationMS, Value: m.Value, Output: m.Output.Head, Tail: m.Output.Tail, OutputSize: m.Output.Size, Note: m.Note,
		Shown: cells.Shown(m.Images, m.ImageErrors, m.Repair)}
	if m.Error != nil {
		ev.Error = cmp.Or(m.Error.Traceback, m.Error.Type+": "+m.Error.Message)
	}
	if !tells(effects) {
		ev.State = w.tell()
	}
	w.event(wire.ToolResult, ev)
	if err := w.perform(effects); err != nil {
		return err
	}
	end.result = w.held(c.key())
	return nil
}

// resultOf puts a cell's outcome into the words for the model and the structured result for clients.
func resultOf(c openCall, m pykernel.CellEnded) message.Message {
	r := tool.Result{Note: m.Note, CellID: m.Cell, Status: string(m.Status), DurationMS: m.DurationMS,
		Output: tool.Output{Head: m.Output.Head, Tail: m.Output.Tail, Size: m.Output.Size},
		Calls:  m.Calls, ImageErrors: m.ImageErrors, Repair: m.Repair}
	if f := m.Output.Spill; f != nil {
		r.Output.Spill = &tool.Spill{Path: f.Path, Size: f.Size, Whole: f.Whole}
	}
	if m.Value != nil {
		r.Value = *m.Value
	}
	if m.Error != nil {
		r.Error = &tool.ResultError{Type: m.Error.Type, Message: m.Error.Message, Traceback: m.Error.Traceback}
	}
	said := message.Message{Role: message.Tool, CallID: c.CallID, Status: callStatus(m.Status), Text: tool.Render(r)}
	for i, img := range m.Images {
		said.Images = append(said.Images, message.Image{Media: img.Media, Content: img.Content.String(), Size: img.Size, Name: img.Name})
		r.Images = append(r.Images, tool.Image{Media: img.Media, Size: img.Size, Name: img.Name, Path: fmt.Sprintf("/v1/cells/%s/images/%d", m.Cell, i+1)})
	}
	said.Result = shorten.JSON(r)
	return said
}

func callStatus(s pykernel.CellStatus) message.CallStatus {
	switch s {
	case pykernel.CellOK, tool.Backgrounded:
		return message.OK
	case pykernel.CellInterrupted:
		return message.Cancelled
	case pykernel.CellTimedOut:
		return message.TimedOut
	case pykernel.CellUnknown:
		return message.Unknown
	}
	return message.Error
}

func (w *work) signal(m signal) error {
	switch m.Signal {
	case wire.Pause:
		return w.step(turn.Pause{})
	case wire.Resume:
		return w.step(turn.Resume{})
	case wire.Interrupt:
		return w.step(turn.Interrupt{})
	case wire.Terminate:
		e := turn.Terminate{Code: 137, Cause: turn.Killed}
		if m.Code != 0 {
			e.Code, e.Cause = m.Code, turn.Cause(m.Cause)
		}
		return w.step(e)
	}
	return neuron.Settle(fmt.Errorf("signal %q is not known", m.Signal))
}
