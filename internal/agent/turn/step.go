package turn

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"soma/internal/agent/model"
)

// Step applies an event that happened at the given time and returns the new state with what the host has to do. The old
// state is left as it was. Errors: ErrEnded and ErrInputsFull refuse an input, ErrEvent and ErrIllegalMove report a defect;
// with an error the state is unchanged and there are no effects. An event that comes late is no error but a Dropped effect.
// Pure; safe for concurrent use.
func Step(s State, at time.Time, e Event) (State, []Effect, error) {
	m := &machine{State: s.clone(), at: at.UnixMilli()}
	if err := m.handle(e); err != nil {
		return s, nil, err
	}
	m.slots(s.Status, e)
	return m.State, m.out, nil
}

// machine is the state while one event is applied to it.
type machine struct {
	State
	at  int64
	out []Effect
}

func (m *machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *machine) drop(why string) error {
	m.emit(Dropped{Why: why})
	return nil
}

func (m *machine) handle(e Event) error {
	if m.Status == Terminated {
		if _, ok := e.(InputAdmitted); ok {
			return ErrEnded
		}
		return m.drop("the process has ended")
	}
	switch e := e.(type) {
	case InputAdmitted:
		return m.admit(Input(e))
	case WakeRead:
		return m.wakeRead(e)
	case BackgroundEnded:
		return m.backgroundEnded()
	case Dispatched:
		return m.dispatch()
	case Answered:
		return m.answer(e)
	case Failed:
		return m.fail(e)
	case Lost:
		return m.lose(e)
	case ToolDone:
		return m.toolDone(e)
	case Woke:
		return m.wake()
	case Pause:
		return m.pause()
	case Resume:
		return m.resume()
	case Interrupt:
		return m.interrupt()
	case Terminate:
		return m.terminate(e)
	}
	return fmt.Errorf("%w: unknown type %T", ErrEvent, e)
}

func (m *machine) admit(in Input) error {
	switch {
	case in.ID == "" || len(in.ID) > MaxID:
		return fmt.Errorf("%w: input id of %d bytes", ErrEvent, len(in.ID))
	case slices.ContainsFunc(m.Inputs, func(i Input) bool { return i.ID == in.ID }):
		return m.drop("the input is already here")
	case len(m.Inputs) >= MaxInputs && !in.Wake: // wakes share one
		return fmt.Errorf("%w: %d", ErrInputsFull, len(m.Inputs))
	}
	m.Inputs = append(m.Inputs, in)
	if m.Status == Created || m.resting() {
		return m.next()
	}
	return nil
}

// resting reports whether the process is Blocked because it has nothing to do.
func (m *machine) resting() bool {
	return m.Status == Blocked && (m.Reason == OnInput || m.Reason == OnBackground)
}

func (m *machine) wakeRead(e WakeRead) error {
	i := slices.IndexFunc(m.Inputs, func(in Input) bool { return in.ID == e.Input && in.Wake })
	if i < 0 {
		return m.drop("no such wake waits")
	}
	m.Inputs = slices.Delete(m.Inputs, i, i+1)
	m.emit(Retire(e))
	if m.Status == Ready && !m.Open && len(m.Inputs) == 0 {
		return m.next()
	}
	return nil
}

func (m *machine) backgroundEnded() error {
	if m.Status == Blocked && m.Reason == OnBackground {
		return m.next()
	}
	return m.drop("nothing waits for it")
}

func (m *machine) dispatch() error {
	if m.Status != Ready {
		return m.drop("the process is not ready")
	}
	if err := m.move(Running); err != nil {
		return err
	}
	first := 0
	if !m.Open {
		m.Turn++
		m.Open, m.Done, m.Spent = true, false, 0
		m.emit(StartTurn{Turn: m.Turn})
		first = 1 // the input at the head opens the turn, whatever its kind
	}
	var later []Input
	for i, in := range m.Inputs {
		if i >= first && in.After {
			later = append(later, in)
			continue
		}
		m.emit(Deliver{Input: in.ID})
	}
	m.Inputs = later
	if m.Attempt == 0 {
		m.Inference++
		m.Spent++
		m.Failures = 0
	}
	m.Attempt++
	m.emit(StartInference{Inference: m.Inference, Attempt: m.Attempt})
	return nil
}

func (m *machine) current(inference int64, attempt int) bool {
	return m.Status == Running && m.Inference == inference && m.Attempt == attempt
}

func (m *machine) answer(e Answered) error {
	if !m.current(e.Inference, e.Attempt) {
		return m.drop("the answer is not of the current attempt")
	}
	if len(e.Calls) > MaxCalls {
		return fmt.Errorf("%w: %d calls in one answer", ErrEvent, len(e.Calls))
	}
	seen := map[string]bool{}
	var start []string
	for _, c := range e.Calls {
		if c.ID == "" || len(c.ID) > MaxID || seen[c.ID] {
			return fmt.Errorf("%w: call id %q is empty, long or doubled", ErrEvent, c.ID)
		}
		seen[c.ID] = true
		if !c.Settled {
			start = append(start, c.ID)
		}
	}
	m.emit(AppendAnswer{Inference: m.Inference})
	m.Attempt, m.Failures, m.Crashes = 0, 0, 0
	if len(e.Calls) > 0 {
		m.Calls = slices.Clone(e.Calls)
		if len(start) > 0 {
			m.emit(StartCalls{Inference: m.Inference, Calls: start})
			if err := m.block(OnTool, "", 0); err != nil {
				return err
			}
		}
		return m.settle()
	}
	if !slices.ContainsFunc(m.Inputs, func(i Input) bool { return !i.After }) {
		m.endTurn(WhyDone, "")
	}
	return m.next()
}

func (m *machine) toolDone(e ToolDone) error {
	i := slices.IndexFunc(m.Calls, func(c Call) bool { return c.ID == e.Call })
	if e.Inference != m.Inference || i < 0 || m.Calls[i].Settled {
		return m.drop("no such call is open")
	}
	m.Calls[i].Settled = true
	return m.settle()
}

// settle puts the results that are there into the branch, as far as call order allows, and goes on after the last.
func (m *machine) settle() error {
	for len(m.Calls) > 0 && m.Calls[0].Settled {
		m.emit(AppendResult{Inference: m.Inference, Call: m.Calls[0].ID})
		m.Calls = m.Calls[1:]
	}
	if len(m.Calls) > 0 {
		return nil
	}
	m.Calls = nil
	return m.next()
}

func (m *machine) fail(e Failed) error {
	if !m.current(e.Inference, e.Attempt) {
		return m.drop("the failure is not of the current attempt")
	}
	m.emit(Supersede{Inference: m.Inference, Attempt: m.Attempt})
	m.Failures++
	words := clip(e.Words)
	delay, again := model.RetryDelay(e.Class, m.Failures, e.RetryAfter)
	switch {
	case again && m.Paused:
		return m.next()
	case again:
		until := m.at + delay.Milliseconds()
		m.emit(WaitUntil{Time: until})
		return m.block(OnProvider, words, until)
	}
	m.Attempt = 0
	m.emit(Note{Text: "the model could not be asked: " + words})
	m.endTurn(WhyFailed, words)
	if err := m.next(); err != nil {
		return err
	}
	if m.Status == Blocked && m.Reason == OnInput {
		m.Detail = clip("the last turn failed: " + words)
	}
	return nil
}

func (m *machine) lose(e Lost) error {
	if !m.current(e.Inference, e.Attempt) {
		return m.drop("the loss is not of the current attempt")
	}
	m.emit(Supersede{Inference: m.Inference, Attempt: m.Attempt})
	m.Crashes++
	what := fmt.Sprintf("the daemon ended while inference %d (attempt %d) was running", m.Inference, m.Attempt)
	switch {
	case m.Crashes >= MaxCrashes:
		m.emit(Note{Text: fmt.Sprintf("%s, the crash number %d without progress: blocked until resumed", what, m.Crashes)})
		return m.block(OnCrashLoop, fmt.Sprintf("%d crashes without progress", m.Crashes), 0)
	case m.Hold:
		m.emit(Note{Text: what + ": held until resumed"})
		return m.block(Interrupted, "", 0)
	}
	m.emit(Note{Text: what + ": it is made again"})
	if err := m.block(Interrupted, "", 0); err != nil {
		return err
	}
	return m.next()
}

func (m *machine) wake() error {
	switch {
	case m.Status != Blocked || m.Reason != OnProvider:
		return m.drop("nothing waits for this time")
	case m.at < m.Until:
		m.emit(WaitUntil{Time: m.Until})
		return nil
	}
	return m.next()
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxDetail {
		return s
	}
	n := MaxDetail - len("…")
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
