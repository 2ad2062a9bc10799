package process

import (
	"context"
	"sync"

	"soma/ident"
	"soma/wire"
)

// maxShown bounds the processes that are remembered as they were read.
const maxShown = 4096

// shown are processes as they were last read, one a session, until a commit changes one: who signals a process is told how it
// stands after the signal's turn, which often changes nothing. It is safe for concurrent use.
type shown struct {
	mu        sync.Mutex
	changes   uint64 // commits that changed a process, known here or not
	processes map[ident.PID]wire.Process
	sessions  map[string]ident.PID
}

// get returns the process and how many changes there have been, which put wants to know.
func (s *shown) get(pid ident.PID) (p wire.Process, ok bool, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.processes[pid]
	return p, ok, s.changes
}

// put remembers what was read after get, unless it may have changed since.
func (s *shown) put(p wire.Process, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != changes {
		return
	}
	if s.sessions == nil || len(s.sessions) >= maxShown {
		s.processes, s.sessions = map[ident.PID]wire.Process{}, map[string]ident.PID{}
	}
	delete(s.processes, s.sessions[p.Session])
	s.processes[ident.PID(p.PID)], s.sessions[p.Session] = p, ident.PID(p.PID)
}

// changed forgets a process whose row has changed.
func (s *shown) changed(pid ident.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.processes, pid)
}

// forget forgets what is remembered of a session that has gone.
func (s *shown) forget(session string) {
	s.inputs(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
}

// inputs forgets the process of a session whose inputs have changed.
func (s *shown) inputs(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.processes, s.sessions[session])
}

// clear forgets all of them.
func (s *shown) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.processes, s.sessions = nil, nil
}

// look returns a process as of the last commit that this daemon has told of. A list that was read meanwhile may already
// know of a later one.
func (h *Host) look(ctx context.Context, pid uint64) (wire.Process, error) {
	p, ok, changes := h.shown.get(ident.PID(pid))
	if ok {
		return p, nil
	}
	p, err := h.Process(ctx, pid)
	if err == nil {
		h.shown.put(p, changes)
	}
	return p, err
}
