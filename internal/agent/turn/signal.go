package turn

import "fmt"

func (m *machine) pause() error {
	if m.Paused {
		return m.drop("already paused")
	}
	m.Paused = true
	if m.Status == Ready || m.resting() || m.Status == Blocked && m.Reason == OnProvider {
		return m.next()
	}
	return nil
}

func (m *machine) resume() error {
	held := m.Status == Blocked && (m.Reason == OnPause || m.Reason == Interrupted || m.Reason == OnCrashLoop)
	if !m.Paused && !held {
		return m.drop("not paused")
	}
	m.Paused = false
	if !held {
		return nil
	}
	m.Crashes = 0
	return m.next()
}

func (m *machine) interrupt() error {
	if !m.Open && len(m.Inputs) == 0 {
		return m.drop("nothing is being worked on")
	}
	m.abandon(WhyInterrupted)
	return m.next()
}

func (m *machine) terminate(e Terminate) error {
	if e.Code == 0 || e.Cause == Finished {
		return fmt.Errorf("%w: terminate with code %d, cause %q", ErrEvent, e.Code, e.Cause)
	}
	m.abandon(WhyTerminated)
	return m.exit(Exit{Code: e.Code, Cause: e.Cause, Words: clip(e.Words)})
}

// abandon stops what runs, closes the history so that it is paired, and ends the turn and all inputs not delivered.
func (m *machine) abandon(why Why) {
	if m.Status == Running {
		m.emit(CancelInference{Inference: m.Inference, Attempt: m.Attempt})
		m.emit(Supersede{Inference: m.Inference, Attempt: m.Attempt})
	}
	var stop []string
	for _, c := range m.Calls {
		if !c.Settled {
			stop = append(stop, c.ID)
		}
	}
	if len(stop) > 0 {
		m.emit(CancelCalls{Inference: m.Inference, Calls: stop})
	}
	for _, c := range m.Calls {
		m.emit(AppendResult{Inference: m.Inference, Call: c.ID, Cancelled: !c.Settled})
	}
	for _, in := range m.Inputs {
		m.emit(CancelInput{Input: in.ID})
	}
	m.Calls, m.Inputs = nil, nil
	m.Attempt, m.Failures, m.Crashes = 0, 0, 0
	m.Done = false
	if m.Open {
		m.endTurn(why, "")
	}
}
