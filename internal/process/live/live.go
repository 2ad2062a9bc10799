package live

import (
	"sync"

	"soma/wire"
)

// Texts keep what the running attempts have shown, for who joins late. The zero value is ready; they are safe for concurrent use.
type Texts struct {
	mu   sync.Mutex
	runs map[string]map[*Text]bool // by session
}

// Text is what one attempt has shown so far. It is safe for concurrent use.
type Text struct {
	mu            sync.Mutex
	event         wire.DeltaEvent
	text, thought []byte
}

// Begin returns the text of an attempt of a session that e names; End has to come.
func (l *Texts) Begin(session string, e wire.DeltaEvent) *Text {
	t := &Text{event: e}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]map[*Text]bool{}
	}
	if l.runs[session] == nil {
		l.runs[session] = map[*Text]bool{}
	}
	l.runs[session][t] = true
	return t
}

// End forgets the text of an attempt.
func (l *Texts) End(session string, t *Text) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs[session], t)
	if len(l.runs[session]) == 0 {
		delete(l.runs, session)
	}
}

// Add adds to the text and returns what shows that.
func (t *Text) Add(text string, reasoning bool) wire.DeltaEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := &t.text
	if reasoning {
		to = &t.thought
	}
	e := t.event
	e.Offset, e.Text, e.Reasoning = int64(len(*to)), text, reasoning
	*to = append(*to, text...)
	return e
}

// Of returns what the running attempts of a session have shown so far, each as one delta from offset 0.
func (l *Texts) Of(session string) []wire.DeltaEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []wire.DeltaEvent
	for t := range l.runs[session] {
		t.mu.Lock()
		for i, text := range [][]byte{t.thought, t.text} {
			if len(text) > 0 {
				e := t.event
				e.Text, e.Reasoning = string(text), i == 0
				all = append(all, e)
			}
		}
		t.mu.Unlock()
	}
	return all
}
