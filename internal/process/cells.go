package process

import (
	"context"
	"sync"
	"time"

	"soma/internal/neuron"
)

// liveCells knows the session of each cell that runs, for its live output.
type liveCells struct {
	mu       sync.Mutex
	sessions map[string]string
}

// Committed takes an operation of a committed record, in commit order. It does not block.
func (h *Host) Committed(op neuron.Op) {
	switch op := op.(type) {
	case *Update:
		h.slots.update(op)
		if !op.endedAt.IsZero() {
			h.histories.forget(op.branch)
		}
	case *insertCell:
		h.cells.put(op.id, op.session)
	case *endCell:
		h.cells.drop(op.ended.Cell)
	case *insertLedger:
		h.spools.release(op.id)
	}
}

// SessionOfCell returns the session of a running cell, also of one that an earlier daemon started; "" if there is none.
func (h *Host) SessionOfCell(ctx context.Context, cell string) string {
	if s, ok := h.cells.get(cell); ok {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := findCell(h.rows(ctx), cell)
	if err != nil || c == nil || c.State == "ended" {
		return ""
	}
	h.cells.put(cell, c.Session)
	return c.Session
}

func (l *liveCells) put(cell, session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = map[string]string{}
	}
	l.sessions[cell] = session
}

func (l *liveCells) get(cell string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.sessions[cell]
	return s, ok
}

func (l *liveCells) drop(cell string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, cell)
}
