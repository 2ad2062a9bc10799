package process

import (
	"sync"

	"soma/wire"
)

// liveTexts keep what the running attempts have shown, for who joins late.
type liveTexts struct {
	mu   sync.Mutex
	runs map[string]map[*liveText]bool // by session
}

type liveText struct {
	mu            sync.Mutex
	event         wire.DeltaEvent
	text, thought []byte
}

func (l *liveTexts) begin(in inferenceInput) *liveText {
	t := &liveText{event: wire.DeltaEvent{PID: uint64(in.PID), Step: in.Inference, Attempt: in.Attempt}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]map[*liveText]bool{}
	}
	if l.runs[in.Session] == nil {
		l.runs[in.Session] = map[*liveText]bool{}
	}
	l.runs[in.Session][t] = true
	return t
}

func (l *liveTexts) end(session string, t *liveText) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs[session], t)
	if len(l.runs[session]) == 0 {
		delete(l.runs, session)
	}
}

func (t *liveText) add(text string, reasoning bool) wire.DeltaEvent {
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

// LiveTexts returns what the running attempts of a session have shown so far, each as one delta from offset 0.
func (h *Host) LiveTexts(session string) []wire.DeltaEvent {
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	var all []wire.DeltaEvent
	for t := range h.live.runs[session] {
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
