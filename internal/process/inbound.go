package process

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"soma/ident"
	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/internal/agent/turn"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

type pykernelGone = pykernel.Gone

// admit stores an input and lets the machine have it (K-14). The same input again is without effect.
func (w *work) admit(m admit) error {
	old, err := findInput(w.t, w.s.Session, m.ClientID)
	if err != nil {
		return err
	}
	if m.Session != w.s.Session {
		return neuron.SettleAs(codeMissing, fmt.Errorf("process %s is not of session %s", w.pid, m.Session))
	}
	if old != nil && !m.Stored {
		return sameInput(old, m)
	}
	if old != nil && old.state != "admitted" {
		return nil
	}
	if err := w.step(turn.InputAdmitted{ID: m.ClientID, After: m.Mode == wire.After}); err != nil {
		return err
	}
	if !m.Stored {
		m.PID = w.pid
		storeInput(w.t, m)
	}
	crash.Point(crash.AdmitBeforeCommit)
	return nil
}

// answered takes the outcome of an inference. Every attempt gets its ledger row, also one that comes too late.
func (w *work) answered(m neuron.Ended) error {
	var in inferenceInput // what the machine needs to know of the attempt is in its current counters
	in.Inference, in.Attempt = w.s.Machine.Inference, m.Attempt
	if m.ID.WithAttempt(0) != w.s.Execution || w.s.Machine.Attempt != m.Attempt {
		in.Inference = -1 // late: the machine drops it
	}
	w.took = wire.StepEndedEvent{Step: w.s.Machine.Inference, Attempt: m.Attempt}
	if m.Status != neuron.Done {
		// Nobody knows what the attempt has used: its reservation stands for it.
		used := message.Usage{Input: w.s.Bytes / 4, Estimated: true}
		lost := answer{Vendor: w.s.Vendor, Model: cmp.Or(w.s.Served, w.s.Model), Usage: used, StartedAt: w.t.Now(), EndedAt: w.t.Now()}
		if err := w.ledger(m, lost, "lost"); err != nil {
			return err
		}
		w.failedEvent("lost", cmp.Or(m.Error, "the daemon ended while it ran"))
		if m.Status == neuron.Unknown {
			return w.step(turn.Lost{Inference: in.Inference, Attempt: m.Attempt})
		}
		return w.step(turn.Failed{Inference: in.Inference, Attempt: m.Attempt, Class: model.Fatal, Words: m.Error})
	}
	var a answer
	if err := json.Unmarshal(m.Payload, &a); err != nil {
		return neuron.SettleAs(neuron.Undecodable, err)
	}
	w.reply = &a
	w.s.Vendor, w.s.Served = a.Vendor, a.Model
	if f := a.Failure; f != nil {
		outcome := "failed"
		switch {
		case f.Class == cancelled:
			outcome = cancelled
		case in.Inference < 0:
			outcome = "superseded"
		}
		if err := w.ledger(m, a, outcome); err != nil {
			return err
		}
		if in.Inference >= 0 {
			w.failedEvent(f.Class, f.Words)
		}
		return w.step(turn.Failed{Inference: in.Inference, Attempt: m.Attempt, Class: model.Class(f.Class), Words: f.Words, RetryAfter: f.RetryAfter})
	}
	if in.Inference < 0 {
		return w.ledger(m, a, "superseded")
	}
	if err := w.ledger(m, a, "done"); err != nil {
		return err
	}
	if err := w.takeCalls(); err != nil {
		return err
	}
	crash.Point(crash.AnswerBeforeCommit)
	return nil
}

// takeCalls judges the calls of the answer in order and gives the answer to the machine.
func (w *work) takeCalls() error {
	calls := w.reply.Message.Calls
	w.s.Calls = nil
	w.took.Cells = make([]string, len(calls))
	events := make([]turn.Call, 0, len(calls))
	var refused []wire.ToolResultEvent
	for i, c := range calls {
		open := openCall{Key: strconv.Itoa(i), CallID: c.ID, Tool: c.Tool, Row: w.t.NewID(), Step: w.took.Step}
		row := &insertToolCall{id: open.Row, pid: w.pid, branch: w.s.Branch, step: w.took.Step, position: i, call: c,
			state: "running", at: w.t.Now()}
		err := w.h.tools().Check(c)
		if err != nil {
			row.state, row.status, row.endedAt = "ended", message.Error, w.t.Now()
			w.results[open.Key] = result{message: message.Message{Role: message.Tool, CallID: c.ID, Status: message.Error, Text: err.Error()}}
			refused = append(refused, wire.ToolResultEvent{Step: open.Step, Position: i, CallID: c.ID, Tool: c.Tool,
				Status: string(message.Error), Error: err.Error()})
		} else {
			open.Cell = ident.Derive(open.Row, "cell").String()
			row.cell, w.took.Cells[i] = open.Cell, open.Cell
		}
		w.t.Write(row)
		w.s.Calls = append(w.s.Calls, open)
		events = append(events, turn.Call{ID: open.Key, Settled: err != nil})
	}
	if err := w.stepAnswered(events); err != nil {
		return err
	}
	for _, r := range refused {
		w.event(wire.ToolResult, r)
	}
	return nil
}

// stepAnswered puts the event of the answer in front of those that its effects bring: it must be the first that tells of it.
func (w *work) stepAnswered(calls []turn.Call) error {
	s, effects, err := turn.Step(w.s.Machine, w.t.Now(), turn.Answered{Inference: w.took.Step, Attempt: w.took.Attempt, Calls: calls})
	if err != nil {
		return neuron.Settle(err)
	}
	w.s.Machine = s
	if len(effects) > 0 {
		if _, ok := effects[0].(turn.AppendAnswer); ok {
			w.appendAnswer()
			w.took.Usage = w.reply.Usage
			ends := endsTurn(effects)
			if !ends {
				w.took.State = w.tell()
			}
			w.event(wire.StepEnded, w.took)
			effects = effects[1:]
		}
	}
	return w.perform(effects)
}

// endsTurn reports whether an event of the turn's end follows, which then carries the new state.
func endsTurn(effects []turn.Effect) bool {
	return slices.ContainsFunc(effects, func(e turn.Effect) bool { _, ok := e.(turn.EndTurn); return ok })
}

func (w *work) ledger(m neuron.Ended, a answer, outcome string) error {
	cost := w.cost(a.Vendor, a.Model, a.Usage, a.StartedAt)
	w.t.Write(&insertLedger{id: m.ID.WithAttempt(uint16(m.Attempt)), pid: w.pid, session: w.s.Session, provider: a.Vendor, model: a.Model,
		step: w.took.Step, attempt: m.Attempt, outcome: outcome, usage: a.Usage, cost: cost, startedAt: a.StartedAt, at: a.EndedAt})
	w.s.Sums.spend(a.Usage, cost)
	w.s.Turn.spend(a.Usage, cost)
	w.took.Cost = cost
	return nil
}

func (w *work) failedEvent(class, words string) {
	w.event(wire.StepFailed, wire.StepFailedEvent{Step: w.took.Step, Attempt: w.took.Attempt, Class: class, Error: words})
}

// processCellEnded stores the outcome of a cell; the machine hears of it if the call is still open.
func (h *Host) processCellEnded(t *neuron.Turn, m pykernel.CellEnded) error {
	return h.work(t, func(w *work) error {
		c, err := findCell(t, m.Cell)
		if err != nil || c == nil || c.State == "ended" {
			return err
		}
		w.s.Kernel.note(&m)
		t.Write(&endCell{ended: m, at: t.Now()})
		for _, open := range w.s.Calls {
			if open.Cell == m.Cell {
				return w.toolDone(open, m)
			}
		}
		return nil
	})
}

func (w *work) toolDone(c openCall, m pykernel.CellEnded) error {
	position, _ := strconv.Atoi(c.Key)
	r := resultOf(c, m)
	r.event.Step, r.event.Position = c.Step, position
	w.results[c.Key] = r
	end := &endToolCall{id: c.Row, status: r.message.Status, at: w.t.Now()}
	w.t.Write(end)
	s, effects, err := turn.Step(w.s.Machine, w.t.Now(), turn.ToolDone{Inference: c.Step, Call: c.Key})
	if err != nil {
		return neuron.Settle(err)
	}
	w.s.Machine = s
	joins := false
	for _, e := range effects {
		if a, ok := e.(turn.AppendResult); ok && a.Call == c.Key {
			joins = true
		}
	}
	if !joins { // an earlier call is still open: the result waits in its row
		b, err := json.Marshal(r.message)
		if err != nil {
			return neuron.Settle(err)
		}
		end.result = b
	}
	r.event.State = w.tell()
	w.event(wire.ToolResult, r.event)
	return w.perform(effects)
}

// resultOf puts a cell's outcome into the words for the model, the structured result for clients, and the event.
func resultOf(c openCall, m pykernel.CellEnded) result {
	res := tool.Result{Note: m.Note, CellID: m.Cell, Status: string(m.Status), DurationMS: m.DurationMS,
		Output: tool.Output{Head: m.Output.Head, Tail: m.Output.Tail, Size: m.Output.Size}}
	if m.Value != nil {
		res.Value = *m.Value
	}
	ev := wire.ToolResultEvent{CallID: c.CallID, Tool: c.Tool, Cell: c.Cell, Status: string(m.Status), DurationMS: m.DurationMS,
		Value: m.Value, Output: m.Output.Head, Tail: m.Output.Tail, OutputSize: m.Output.Size, Note: m.Note}
	if m.Error != nil {
		res.Error = &tool.ResultError{Type: m.Error.Type, Message: m.Error.Message, Traceback: m.Error.Traceback}
		ev.Error = m.Error.Traceback
	}
	stored, err := json.Marshal(res)
	if err != nil { // strings and numbers
		panic(err)
	}
	return result{
		message: message.Message{Role: message.Tool, CallID: c.CallID, Status: callStatus(m.Status), Text: tool.Render(res), Result: stored},
		event:   ev,
	}
}

func callStatus(s pykernel.CellStatus) message.CallStatus {
	switch s {
	case pykernel.CellOK:
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

// cellOf finds the code of a call that passed its checks.
func (h *Host) cellOf(calls []message.Call, c *openCall) (runCell, error) {
	i, err := strconv.Atoi(c.Key)
	if err != nil || i >= len(calls) {
		return runCell{}, neuron.Settle(fmt.Errorf("call %s is not in the answer", c.Key))
	}
	code, timeout, err := tool.PythonCall(calls[i].Arguments)
	if err != nil {
		return runCell{}, neuron.Settle(err)
	}
	return runCell{Cell: c.Cell, Code: code, TimeoutMS: timeout.Milliseconds()}, nil
}
