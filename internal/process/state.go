package process

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/process/background"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// sums count what a process or a turn has used. Cost is nil once any part of it is unknown.
type sums struct {
	Steps     int64  `json:"steps"`
	Cells     int64  `json:"cells"`
	Tokens    int64  `json:"tokens"`
	Cost      *int64 `json:"cost"`
	Estimated bool   `json:"estimated,omitempty"`
}

func (s *sums) spend(u message.Usage, cost *int64) {
	s.Tokens += u.Total()
	s.Estimated = s.Estimated || u.Estimated
	switch {
	case s.Cost == nil:
	case cost == nil:
		s.Cost = nil
	default:
		n := *s.Cost + *cost
		s.Cost = &n
	}
}

// openCall is a call of the last answer whose result has not joined the branch. With 128 of them and 400 inputs the state must
// stay below 64 KiB, so that what can be derived is not here.
type openCall struct {
	// Position in its message is also its name in the turn machine, for a provider's own ids may repeat.
	Position int      `json:"at"`
	CallID   string   `json:"id"`
	Tool     string   `json:"tool,omitempty"` // empty for a call that was refused
	Row      ident.ID `json:"row"`
}

func (c *openCall) key() string { return strconv.Itoa(c.Position) }

// CallRow is the id of the tool_call row of the call at a position of the answer that a delivery brought.
func CallRow(answer ident.ID, position int) ident.ID {
	return ident.Derive(answer, "call "+strconv.Itoa(position))
}

// cell is the id of the cell that the call became, "" for one that was refused.
func (c *openCall) cell() string {
	if c.Tool == "" {
		return ""
	}
	return ident.Derive(c.Row, "cell").String()
}

// processState is what a process's neuron remembers.
type processState struct {
	Machine   turn.State   `json:"machine"`
	Session   string       `json:"session"`
	Branch    ident.ID     `json:"branch"`
	Model     string       `json:"model"`
	Python    string       `json:"python,omitempty"`
	Workspace string       `json:"workspace"`
	Messages  uint64       `json:"messages"` // last sequence of the branch
	Kernel    pykernelSlot `json:"kernel"`
	// Bytes is the size of the branch's messages; with Vendor and Served, who answered last and under which name, it is
	// what a reservation is estimated from.
	Bytes  int64  `json:"bytes"`
	Vendor string `json:"vendor,omitempty"`
	Served string `json:"served,omitempty"`
	// Execution is the current or last inference.
	Execution ident.ID   `json:"execution,omitzero"`
	Calls     []openCall `json:"calls,omitempty"`
	Alarm     ident.ID   `json:"alarm,omitzero"` // of a provider delay
	Wake      string     `json:"wake,omitempty"` // client id of the wake that waits
	Sums      sums       `json:"sums"`
	Turn      sums       `json:"turn"`
}

func processID(owner string, pid ident.PID) neuron.ID {
	return neuron.ID{Owner: owner, Kind: ProcessKind, Key: pid.String()}
}

func (h *Host) processKind() *neuron.Kind {
	k := neuron.NewKind(ProcessKind)
	k.Place = h.places.of
	neuron.Handle(k, admitType, func(t *neuron.Turn, m admit) error { return h.work(t, func(w *work) error { return w.admit(m) }) })
	neuron.Handle(k, dispatchType, func(t *neuron.Turn, _ dispatch) error {
		return h.work(t, func(w *work) error { return w.step(turn.Dispatched{}) })
	})
	neuron.Handle(k, answerType, func(t *neuron.Turn, m neuron.Ended) error {
		return h.work(t, func(w *work) error { return w.answered(m) })
	})
	neuron.Handle(k, cellEndedType, h.processCellEnded)
	neuron.Handle(k, backgroundedType, h.processCellBackgrounded)
	neuron.Handle(k, jobEndedType, func(t *neuron.Turn, m pykernel.JobEnded) error {
		return h.work(t, func(w *work) error { return w.jobEnded(m) })
	})
	neuron.Handle(k, seenType, func(t *neuron.Turn, m pykernel.ResultsSeen) error {
		return h.work(t, func(w *work) error { return w.seen(m) })
	})
	neuron.Handle(k, goneType, func(t *neuron.Turn, m pykernel.Gone) error {
		return h.work(t, func(w *work) error { return w.pykernelGone(m) })
	})
	neuron.Handle(k, signalType, func(t *neuron.Turn, m signal) error { return h.work(t, func(w *work) error { return w.signal(m) }) })
	neuron.Handle(k, wokeType, func(t *neuron.Turn, _ woke) error {
		return h.work(t, func(w *work) error { return w.step(turn.Woke{}) })
	})
	return k
}

// work is one turn of a process: the state before and after, and what the turn machine's effects stage.
type work struct {
	h      *Host
	t      *neuron.Turn
	pid    ident.PID
	s      processState
	before turn.State
	update Update
	// told says that an event of this turn already carries the new state.
	told bool
	// results are the tool messages that are known in this turn and have not joined, by call key.
	results map[string]message.Message
	// joined are the messages that entered the branch, for the event that tells of them.
	joined  []wire.Message
	reply   *answer                // the outcome that is being taken
	refused []wire.ToolResultEvent // calls of the answer that never run
	took    wire.StepEndedEvent
	ending  string // the cell or job whose end this turn takes: its row does not say so yet
}

// work loads the process, lets fn change it, and stages what follows.
func (h *Host) work(t *neuron.Turn, fn func(*work) error) error {
	w := &work{h: h, t: t, results: map[string]message.Message{}}
	fresh, err := w.load()
	if err != nil {
		return err
	}
	w.before = w.s.Machine
	sums := w.s.Sums
	if fresh {
		err = w.takeStored()
	}
	if err == nil {
		err = fn(w)
	}
	if err != nil {
		return err
	}
	return w.finish(sums)
}

// load reads the state; a fresh process takes it from its row.
func (w *work) load() (fresh bool, err error) {
	if w.pid, err = ident.ParsePID(w.t.Self().Key); err != nil {
		return false, neuron.Settle(err)
	}
	raw := w.t.Result().State
	if known, ok := w.h.states.Get(w.pid); ok && bytes.Equal(known.raw, raw) {
		w.s = known.s
	} else if w.s, err = neuron.State(w.t, processType, nil); err != nil {
		return false, err
	}
	if w.s.Session != "" {
		w.s.Machine.Hold = w.h.o.Hold // as the person wants it now
		return false, nil
	}
	row, err := findProcess(w.t, w.pid)
	if err == nil && row == nil {
		err = neuron.SettleAs(codeMissing, fmt.Errorf("no process %s", w.pid))
	}
	if err != nil {
		return false, err
	}
	last, err := lastMessage(w.t, row.branch)
	if err != nil {
		return false, err
	}
	w.s = processState{
		Machine: turn.New(row.createdAt, turn.Options{RunToEnd: !row.keep, Hold: w.h.o.Hold}),
		Session: row.session, Branch: row.branch, Model: row.model, Python: row.python, Workspace: row.workspace,
		Messages: last, Sums: sums{Cost: new(int64)}, Turn: sums{Cost: new(int64)},
	}
	return true, nil
}

// takeStored takes the input for which the session spawned the process: what reaches the process first may be another one,
// and it may have ended before the delivery that brings it.
func (w *work) takeStored() error {
	waiting, err := inputsOf(w.t, w.s.Session, w.pid)
	for _, in := range waiting {
		err = errors.Join(err, w.step(in))
	}
	return err
}

// finish stages the process's row, an event where none told the new state, and the neuron's state.
func (w *work) finish(sums sums) error {
	m := &w.s.Machine
	changed := m.Status != w.before.Status || m.Reason != w.before.Reason
	if changed && !w.told {
		w.event(wire.ProcessState, wire.StateEvent{State: w.wireState()})
	}
	if changed || w.s.Sums != sums || w.update.WantSlot || w.update.DropSlot {
		u := w.update
		u.cause = causeOf(w.t)
		u.PID, u.branch, u.sums, u.since = w.pid, w.s.Branch, w.s.Sums, time.UnixMilli(m.Since)
		st := w.wireState()
		u.state, u.reason, u.detail = st.State, st.Reason, st.Detail
		if m.Exit != nil {
			u.exitCode, u.endedAt = m.Exit.Code, w.t.Now()
		}
		w.t.Write(&u)
	}
	if err := neuron.SetState(w.t, processType, w.s); err != nil {
		return err
	}
	if raw := w.t.Result().State; len(raw) <= maxStateSize {
		w.h.states.Put(w.pid, decoded{raw, w.s})
	}
	return nil
}

// decoded is a state in both forms: a turn that finds the same bytes need not decode them. Nothing that the state points to
// is ever changed.
type decoded struct {
	raw []byte
	s   processState
}

func (w *work) event(kind string, body any) { emit(w.t, w.s.Session, w.pid, kind, body) }

func (w *work) wireState() wire.State {
	m := &w.s.Machine
	st := wire.State{State: string(m.Status), Reason: string(m.Reason), Detail: m.Detail, Since: time.UnixMilli(m.Since).UTC()}
	if m.Until != 0 {
		st.Detail = fmt.Sprintf("until %s: %s", time.UnixMilli(m.Until).UTC().Format(time.RFC3339), m.Detail)
	}
	if m.Exit != nil {
		st.Reason, st.Detail = string(m.Exit.Cause), m.Exit.Words
	}
	return st
}

// tell returns the new state for the one event that carries it: nil when it did not change or was told, and at the end of
// a process, which has an event of its own.
func (w *work) tell() *wire.State {
	m := &w.s.Machine
	if w.told || m.Status == turn.Terminated || m.Status == w.before.Status && m.Reason == w.before.Reason {
		return nil
	}
	w.told = true
	st := w.wireState()
	return &st
}

// step applies an event of the turn machine and stages its effects.
func (w *work) step(e turn.Event) error {
	effects, err := w.move(e)
	if err != nil {
		return err
	}
	return w.perform(effects)
}

// move applies an event of the turn machine; the caller has to perform the effects.
func (w *work) move(e turn.Event) ([]turn.Effect, error) {
	w.s.Machine.Awaits = false
	s, effects, err := turn.Step(w.s.Machine, w.t.Now(), e)
	if err == nil && s.Exit != nil && s.Exit.Cause == turn.Finished && w.s.Kernel.ID != "" {
		n, qerr := background.Awaited(w.t, w.s.Kernel.ID, w.ending)
		if qerr != nil {
			return nil, qerr
		}
		if n > 0 {
			w.s.Machine.Awaits = true
			s, effects, err = turn.Step(w.s.Machine, w.t.Now(), e)
		}
	}
	switch {
	case errors.Is(err, turn.ErrEnded):
		return nil, neuron.SettleAs(codeEnded, fmt.Errorf("process %s has ended", w.pid))
	case errors.Is(err, turn.ErrInputsFull):
		return nil, neuron.SettleAs(codeFull, err)
	case err != nil:
		return nil, neuron.Settle(err)
	}
	w.s.Machine = s
	return effects, nil
}
