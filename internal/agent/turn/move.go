package turn

import "fmt"

// next decides where a process goes at a step boundary: nothing of it runs, and its history is paired.
func (m *machine) next() error {
	if m.Open && m.Attempt == 0 && m.Spent >= m.max() && !m.Paused {
		m.emit(Note{Text: fmt.Sprintf("the turn ended after %d inferences, its limit", m.Spent)})
		m.endTurn(WhyLimit, "")
	}
	switch {
	case m.Paused:
		return m.block(OnPause, "", 0)
	case m.Open || len(m.Inputs) > 0:
		if m.Status == Ready {
			return nil
		}
		return m.move(Ready)
	case m.RunToEnd && m.Done && m.Awaits:
		return m.block(OnBackground, "", 0)
	case m.RunToEnd && m.Done:
		return m.exit(Exit{Code: 0, Cause: Finished})
	}
	return m.block(OnInput, "", 0)
}

func (m *machine) endTurn(why Why, words string) {
	m.Open, m.Done = false, why == WhyDone
	m.emit(EndTurn{Turn: m.Turn, Why: why, Words: words, Inferences: m.Spent})
}

func (m *machine) move(to Status) error {
	if err := Move(m.Status, to); err != nil {
		return err
	}
	m.Status, m.Since = to, m.at
	m.Reason, m.Detail, m.Until = "", "", 0
	return nil
}

func (m *machine) block(why Reason, detail string, until int64) error {
	if m.Status == Blocked && m.Reason == why {
		return nil
	}
	if m.Status == Blocked || m.Status == Created {
		if err := m.move(Ready); err != nil {
			return err
		}
	}
	if err := m.move(Blocked); err != nil {
		return err
	}
	m.Reason, m.Detail, m.Until = why, detail, until
	return nil
}

func (m *machine) exit(e Exit) error {
	if err := m.move(Terminated); err != nil {
		return err
	}
	m.Exit = &e
	m.emit(Ended{Exit: e})
	return nil
}

// slots says what changed for the scheduler between the status before the event and now.
func (m *machine) slots(before Status, e Event) {
	_, granted := e.(Dispatched)
	switch {
	case granted && m.Status != Running: // the slot came too late
		m.emit(DropSlot{})
	case before == Running && m.Status != Running, before == Ready && m.Status != Ready && m.Status != Running:
		m.emit(DropSlot{})
	}
	if m.Status == Ready && before != Ready {
		m.emit(WantSlot{})
	}
}
