package shown

import (
	"sync"

	"soma/ident"
	"soma/wire"
)

// maxShown bounds the processes that are remembered as they were read.
const maxShown = 4096

// Processes are processes as they were last read, one a session, until a commit changes one: who signals a process is told how it
// stands after the signal's turn, which often changes nothing. It is safe for concurrent use.
type Processes struct {
	mu        sync.Mutex
	changes   uint64 // commits that changed a process, known here or not
	processes map[ident.PID]wire.Process
	sessions  map[string]ident.PID
}

// Get returns the process and how many changes there have been, which put wants to know.
func (s *Processes) Get(pid ident.PID) (p wire.Process, ok bool, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.processes[pid]
	return p, ok, s.changes
}

// Put remembers what was read after get, unless it may have changed since.
func (s *Processes) Put(p wire.Process, changes uint64) {
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

// Changed forgets a process whose row has changed.
func (s *Processes) Changed(pid ident.PID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.processes, pid)
}

// Forget forgets what is remembered of a session that has gone.
func (s *Processes) Forget(session string) {
	s.Inputs(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
}

// Inputs forgets the process of a session whose inputs have changed.
func (s *Processes) Inputs(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.processes, s.sessions[session])
}

// Clear forgets all of them.
func (s *Processes) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.processes, s.sessions = nil, nil
}
