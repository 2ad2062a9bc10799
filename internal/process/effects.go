package process

import (
	"fmt"
	"slices"
	"time"

	"soma/ident"
	"soma/internal/agent/tool"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process/shorten"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// perform stages the effects in the order that the machine gave, then the events that sum them up.
func (w *work) perform(effects []turn.Effect) error {
	begins := false
	for i, e := range effects {
		var err error
		switch e := e.(type) {
		case turn.WantSlot:
			w.update.WantSlot = true
		case turn.DropSlot:
			w.update.DropSlot = true
		case turn.StartTurn:
			w.s.Turn, begins = sums{Cost: new(int64)}, true
		case turn.EndTurn:
			w.endTurn(e)
		case turn.Deliver:
			err = w.deliver(e.Input)
		case turn.CancelInput:
			w.endInput(e.Input, "cancelled")
		case turn.Retire:
			w.endInput(e.Input, "retired")
		case turn.StartInference:
			w.startInference(e, begins)
		case turn.CancelInference:
			w.t.CancelExecution(w.s.Execution)
		case turn.Supersede:
			w.superseded(e, tells(effects[i+1:]))
		case turn.AppendAnswer:
			w.appendAnswer(tells(effects[i+1:]))
		case turn.StartCalls:
			err = w.startCalls(e.Calls)
		case turn.CancelCalls:
			err = w.cancelCalls(e.Calls)
		case turn.AppendResult:
			err = w.appendResult(e)
		case turn.WaitUntil:
			err = w.waitUntil(time.UnixMilli(e.Time))
		case turn.Note:
			m := w.append(message.Message{Role: message.Note, Text: e.Text}, 0, "")
			w.event(wire.NoteAdded, wire.NoteEvent{Message: m, State: w.tell()})
		case turn.Ended:
			w.ended()
		case turn.Dropped:
			w.h.o.Log.Debug("event dropped", "pid", w.pid, "why", e.Why)
		default:
			err = neuron.Settle(fmt.Errorf("effect %T is not known", e))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tells reports whether one of the effects brings an event that carries the new state, or the process's end.
func tells(effects []turn.Effect) bool {
	return slices.ContainsFunc(effects, func(e turn.Effect) bool {
		switch e.(type) {
		case turn.Note, turn.EndTurn, turn.Ended:
			return true
		}
		return false
	})
}

// append adds a message to the branch, with a line for people or none; a body above the payload limit becomes content.
func (w *work) append(m message.Message, attempt int, line string) wire.Message {
	w.s.Messages++
	row := &insertMessage{branch: w.s.Branch, seq: w.s.Messages, id: w.t.NewID(), role: m.Role, attempt: attempt, at: w.t.Now()}
	b := shorten.JSON(stored{m, line})
	row.said, row.size = m, len(b)
	if m.Role != message.Note {
		w.s.Bytes += int64(len(b))
	}
	if len(b) > neuron.DefaultLimits().PayloadBytes {
		row.content = w.t.Keep(b)
	} else {
		row.body = b
	}
	w.t.Write(row)
	return wire.Message{Seq: row.seq, ID: row.id.String(), Attempt: attempt, At: row.at, Message: m, Line: line}
}

func (w *work) deliver(clientID string) error {
	if clientID == w.s.Wake {
		return w.deliverWake()
	}
	text, ok := w.h.texts.Get(inputKey{w.s.Session, clientID})
	if !ok {
		in, err := findInput(w.t, w.s.Session, clientID)
		if err != nil {
			return err
		}
		if in == nil {
			return neuron.Settle(fmt.Errorf("input %s has no row", clientID))
		}
		text = in.text
	}
	w.joined = append(w.joined, w.append(message.Message{Role: message.User, Text: text}, 0, ""))
	w.endInput(clientID, "delivered")
	return nil
}

func (w *work) endInput(clientID, state string) {
	w.t.Write(&endInput{session: w.s.Session, clientID: clientID, state: state, at: w.t.Now()})
	ev := wire.InputEvent{ClientID: clientID, State: state}
	if clientID == w.s.Wake {
		w.s.Wake = ""
		ev.Mode, ev.Kind = wire.InputWake, wire.InputWake
	}
	if state != "delivered" { // a delivered one shows as a message
		w.event(wire.InputEnded, ev)
	}
}

func (w *work) startInference(e turn.StartInference, begins bool) {
	if e.Attempt == 1 {
		w.s.Execution = w.t.NewID().WithAttempt(0)
		w.s.Sums.Steps++
		w.s.Turn.Steps++
	}
	w.s.Alarm = ident.ID{}
	in := inferenceInput{PID: w.pid, Session: w.s.Session, Branch: w.s.Branch, Through: w.s.Messages, Model: w.s.Model,
		Inference: e.Inference, Attempt: e.Attempt}
	w.t.Start(neuron.Execution{ID: w.s.Execution, Attempt: e.Attempt, Kind: InferenceKind, Policy: neuron.Attach, Input: shorten.JSON(in), Value: in,
		Then: answerType.Alias(), Estimate: w.reservation()})
	w.event(wire.StepStarted, wire.StepStartedEvent{Step: e.Inference, Attempt: e.Attempt, Turn: begins, Model: w.s.Model,
		Messages: w.joined, State: w.tell()})
	w.joined = nil
}

// reservedOutput is how many tokens of output an attempt is taken to need, before it is known (K-21).
const reservedOutput = 1000

// reserved is what an attempt is taken to use: four bytes of context for a token.
func (w *work) reserved() message.Usage {
	return message.Usage{Input: w.s.Bytes / 4, Output: reservedOutput, Estimated: true}
}

// reservation is the cost of reserved in nano-dollars, 0 while the price or who answers is not known.
func (w *work) reservation() int64 {
	if cost := w.cost(w.s.Vendor, w.s.Served, w.reserved(), w.t.Now()); cost != nil {
		return *cost
	}
	return 0
}

// cost returns what usage costs in nano-dollars, nil where the price is not known. A script costs nothing.
func (w *work) cost(vendor, model string, u message.Usage, at time.Time) *int64 {
	c := w.h.o.Prices.Of(vendor, model, at, u)
	if c.Unknown {
		return nil
	}
	return &c.Nano
}

func (w *work) endTurn(e turn.EndTurn) {
	u := w.s.Turn
	w.event(wire.TurnEnded, wire.TurnEndedEvent{Why: string(e.Why), Words: e.Words, Steps: u.Steps, Cells: u.Cells, Tokens: u.Tokens,
		Cost: u.Cost, Estimated: u.Estimated, State: w.tell()})
}

// appendAnswer adds the answer to the branch and tells of it before anything that follows from it.
func (w *work) appendAnswer(told bool) {
	w.took.Message, w.took.Usage = w.append(w.reply.Message, w.took.Attempt, ""), w.reply.Usage
	if !told {
		w.took.State = w.tell()
	}
	w.event(wire.StepEnded, w.took)
	for _, r := range w.refused {
		w.event(wire.ToolResult, r)
	}
}

// superseded tells that what an attempt has shown is not part of the transcript (K-32). Its ledger row comes with its outcome.
func (w *work) superseded(e turn.Supersede, told bool) {
	f := &failure{Class: cancelled, Words: "interrupted"}
	if w.reply != nil {
		f = w.reply.Failure
	}
	ev := wire.StepFailedEvent{Step: e.Inference, Attempt: e.Attempt, Class: f.Class, Error: shorten.Text(f.Words, shorten.MaxText), Again: w.s.Machine.Attempt != 0}
	if !told {
		ev.State = w.tell()
	}
	w.event(wire.StepFailed, ev)
}

func (w *work) waitUntil(at time.Time) error {
	id, err := neuron.After(w.t, at.Sub(w.t.Now()), wokeType, woke{})
	w.s.Alarm = id
	return err
}

// startCalls begins the calls of the answer in call order: the frames enter the python kernel in that order (K-10).
func (w *work) startCalls(keys []string) error {
	at := site{session: w.s.Session, branch: w.s.Branch, workspace: w.s.Workspace, python: w.s.Python}
	kernel, err := w.h.pykernelFor(w.t, &w.s.Kernel, at)
	if err != nil {
		return err
	}
	for _, key := range keys {
		c, err := w.call(key)
		if err != nil {
			return err
		}
		run, err := w.cellOf(c)
		if err != nil {
			return err
		}
		if err := startCell(w.t, kernel, at, w.pid, run); err != nil {
			return err
		}
		w.s.Sums.Cells++
		w.s.Turn.Cells++
	}
	return nil
}

// call returns an open call by its name in the turn machine.
func (w *work) call(key string) (*openCall, error) {
	for i := range w.s.Calls {
		if c := &w.s.Calls[i]; c.key() == key {
			return c, nil
		}
	}
	return nil, neuron.Settle(fmt.Errorf("call %s is not open", key))
}

// cellOf returns the cell of a call that passed its checks.
func (w *work) cellOf(c *openCall) (runCell, error) {
	code, timeout, err := tool.PythonCall(w.reply.Message.Calls[c.Position].Arguments)
	if err != nil {
		return runCell{}, neuron.Settle(err)
	}
	return runCell{Cell: c.cell(), Code: code, TimeoutMS: timeout.Milliseconds(), BackgroundMS: w.h.o.Background.Milliseconds()}, nil
}

// cancelCalls interrupts cells that run. All of them are in the branch's current python kernel, if that is still there.
func (w *work) cancelCalls(keys []string) error {
	for _, key := range keys {
		c, err := w.call(key)
		if err != nil {
			return err
		}
		if err := interruptCell(w.t, w.s.Kernel.ID, c.cell()); err != nil {
			return err
		}
	}
	return nil
}

// appendResult adds the tool message of a call to the branch: the one of this turn, one held in its row, or a cancelled one.
func (w *work) appendResult(e turn.AppendResult) error {
	open, err := w.call(e.Call)
	if err != nil {
		return err
	}
	c := *open
	w.s.Calls = slices.DeleteFunc(slices.Clone(w.s.Calls), func(o openCall) bool { return o.Position == c.Position })
	if e.Cancelled {
		text := "cancelled: it was interrupted; what it did before that stays done"
		w.t.Write(&endToolCall{id: c.Row, status: message.Cancelled, at: w.t.Now()})
		w.append(message.Message{Role: message.Tool, CallID: c.CallID, Status: message.Cancelled, Text: text}, 0, "")
		w.event(wire.ToolResult, wire.ToolResultEvent{Step: e.Inference, Position: c.Position, CallID: c.CallID, Tool: c.Tool,
			Cell: c.cell(), Status: string(message.Cancelled), Note: text})
		return nil
	}
	m, ok := w.results[e.Call]
	if !ok {
		if m, err = heldResult(w.t, c.Row); err != nil {
			return err
		}
	}
	delete(w.results, e.Call)
	w.append(m, 0, "")
	return nil
}

func (w *work) ended() {
	if w.s.Kernel.ID != "" {
		w.t.Write(&pykernel.EndKernel{ID: w.s.Kernel.ID, Reason: "the process has ended"})
		w.s.Kernel.gone(w.s.Kernel.ID)
	}
	w.event(wire.ProcessExited, wire.StateEvent{State: w.wireState(), ExitCode: &w.s.Machine.Exit.Code})
	w.told = true
}
