package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/message"
	"soma/wire"
)

// world stands in for the daemon behind the interfaces of api: sessions, processes and events in memory.
type world struct {
	mu         sync.Mutex
	generation string
	sessions   map[string]wire.Session
	bodies     map[string]any // by kind and ids: what a write said
	cells      map[string]wire.Cell
	kernels    *kernels
	processes  []wire.Process
	events     map[string][]wire.Event
	first      uint64 // kept
	subs       map[*subscription]bool
	capacity   int // of a subscription
	stopped    chan wire.Stop
	looks      int // calls of Process
	mute       bool
	on         func(ctx context.Context, method string) error
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld() *world {
	return &world{
		generation: "g1", sessions: map[string]wire.Session{}, bodies: map[string]any{}, cells: map[string]wire.Cell{},
		events: map[string][]wire.Event{}, first: 1, subs: map[*subscription]bool{}, capacity: 64,
		stopped: make(chan wire.Stop, 1), kernels: newKernels(),
	}
}

func (w *world) enter(ctx context.Context, method string) error {
	w.mu.Lock()
	on := w.on
	w.mu.Unlock()
	if on != nil {
		return on(ctx, method)
	}
	return nil
}

// before sets what comes before every method.
func (w *world) before(on func(ctx context.Context, method string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = on
}

// once remembers what a write said, and refuses another body under the same ids.
func (w *world) once(key string, body any) *wire.Error {
	if old, ok := w.bodies[key]; ok && old != body {
		return wire.Errorf(wire.Conflict, "%s is taken", key)
	}
	w.bodies[key] = body
	return nil
}

func (w *world) Open(ctx context.Context, id string, req wire.OpenSession) (wire.Session, error) {
	if err := w.enter(ctx, "Open"); err != nil {
		return wire.Session{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.once("session "+id, req); err != nil {
		return wire.Session{}, err
	}
	if _, ok := w.sessions[id]; !ok {
		pid := uint64(len(w.processes) + 1)
		s := wire.Session{ID: id, Kind: req.Kind, Workspace: req.Workspace, Model: req.Model, State: "open", PID: pid, CreatedAt: epoch}
		w.sessions[id] = s
		w.processes = append(w.processes, wire.Process{
			PID: pid, Session: id, Model: req.Model, Workspace: req.Workspace, CreatedAt: epoch,
			State: wire.State{State: wire.Ready, Since: epoch},
		})
		w.commit(id, pid, wire.SessionOpened, s)
	}
	return w.sessions[id], nil
}

func (w *world) Session(ctx context.Context, id string) (wire.Session, error) {
	if err := w.enter(ctx, "Session"); err != nil {
		return wire.Session{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session(id)
}

func (w *world) session(id string) (wire.Session, error) {
	s, ok := w.sessions[id]
	if !ok {
		return s, wire.Errorf(wire.NotFound, "there is no session %s", id)
	}
	return s, nil
}

func (w *world) Sessions(ctx context.Context, f wire.SessionFilter) ([]wire.Session, error) {
	if err := w.enter(ctx, "Sessions"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []wire.Session
	for _, s := range w.sessions {
		if s.ID > f.After && (f.Kind == "" || s.Kind == f.Kind) && (f.Workspace == "" || s.Workspace == f.Workspace) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b wire.Session) int { return strings.Compare(a.ID, b.ID) })
	return all[:min(len(all), f.Limit)], nil
}

func (w *world) Close(ctx context.Context, id string) (wire.Session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.session(id)
	if err == nil && s.State != "closed" {
		s.State, s.ClosedAt = "closed", &epoch
		w.sessions[id] = s
		w.commit(id, 0, wire.SessionEnded, s)
	}
	return w.sessions[id], err
}

func (w *world) Admit(ctx context.Context, session, clientID string, in wire.Input) (wire.InputState, error) {
	if err := w.enter(ctx, "Admit"); err != nil {
		return wire.InputState{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s, err := w.session(session)
	if err != nil {
		return wire.InputState{}, err
	}
	key := "input " + session + " " + clientID
	_, old := w.bodies[key]
	if err := w.once(key, in); err != nil {
		return wire.InputState{}, err
	}
	if !old {
		w.commit(session, s.PID, wire.InputAdmitted, wire.InputEvent{ClientID: clientID, Mode: in.Mode, State: "admitted", Text: in.Text})
	}
	return wire.InputState{Session: session, ClientID: clientID, PID: s.PID, Mode: in.Mode, State: "admitted", At: epoch}, nil
}

func (w *world) Input(ctx context.Context, session, clientID string) (wire.InputState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, ok := w.bodies["input "+session+" "+clientID].(wire.Input)
	if !ok {
		return wire.InputState{}, wire.Errorf(wire.NotFound, "there is no such input")
	}
	return wire.InputState{Session: session, ClientID: clientID, PID: 1, Mode: in.Mode, State: "admitted", At: epoch}, nil
}

func (w *world) RunCell(ctx context.Context, session, clientID string, in wire.RunCell) (wire.Cell, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.once("cell "+session+" "+clientID, in); err != nil {
		return wire.Cell{}, err
	}
	id := session + "." + clientID
	w.cells[id] = wire.Cell{ID: id, Session: session, Kernel: "k1", Code: in.Code, State: "started", StartedAt: epoch}
	w.commit(session, 0, wire.CellStarted, wire.CellEvent{Cell: w.cells[id]})
	return w.cells[id], nil
}

func (w *world) Cell(ctx context.Context, id string) (wire.Cell, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.cells[id]
	if !ok {
		return c, wire.Errorf(wire.NotFound, "there is no cell %s", id)
	}
	return c, nil
}

func (w *world) InterruptCell(ctx context.Context, id string) (wire.Cell, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.cells[id]
	if !ok {
		return c, wire.Errorf(wire.NotFound, "there is no cell %s", id)
	}
	c.State, c.Status, c.EndedAt = "ended", "interrupted", &epoch
	c.Error = &wire.CellFault{Type: "KeyboardInterrupt"}
	w.cells[id] = c
	w.commit(c.Session, 0, wire.CellEnded, wire.CellEvent{Cell: c, Output: "0123"})
	return c, nil
}

func (w *world) Processes(ctx context.Context, f wire.ProcessFilter) ([]wire.Process, error) {
	if err := w.enter(ctx, "Processes"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []wire.Process
	for _, p := range w.processes {
		if p.PID > f.After && (f.All || !p.Ended()) && (f.Workspace == "" || p.Workspace == f.Workspace) &&
			(f.Session == "" || p.Session == f.Session) && len(all) < f.Limit {
			all = append(all, p)
		}
	}
	return all, nil
}

func (w *world) Process(ctx context.Context, pid uint64) (wire.Process, error) {
	if err := w.enter(ctx, "Process"); err != nil {
		return wire.Process{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	return w.process(pid)
}

func (w *world) process(pid uint64) (wire.Process, error) {
	if pid > uint64(len(w.processes)) {
		return wire.Process{}, wire.Errorf(wire.NotFound, "there is no process %d", pid)
	}
	return w.processes[pid-1], nil
}

func (w *world) Signal(ctx context.Context, pid uint64, clientID string, s wire.Signal) (wire.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := w.process(pid)
	if err != nil {
		return p, err
	}
	if s.Signal == wire.Terminate {
		w.end(pid, 137)
	}
	return w.processes[pid-1], nil
}

// end ends a process; the caller holds the lock.
func (w *world) end(pid uint64, code int) {
	p := &w.processes[pid-1]
	p.State = wire.State{State: wire.Terminated, Since: epoch}
	p.ExitCode, p.EndedAt = &code, &epoch
	w.commit(p.Session, pid, wire.ProcessExited, wire.StateEvent{State: p.State, ExitCode: &code})
}

func (w *world) Messages(ctx context.Context, pid uint64, after uint64, limit int) ([]wire.Message, error) {
	var all []wire.Message
	for seq := after + 1; seq <= 250 && len(all) < limit; seq++ {
		all = append(all, wire.Message{Seq: seq, ID: "m", At: epoch, Message: message.Message{Role: message.User, Text: "<b>&"}})
	}
	return all, nil
}

func (w *world) Ledger(ctx context.Context, pid uint64, after string, limit int) ([]wire.LedgerRow, error) {
	cost := int64(12)
	rows := []wire.LedgerRow{
		{ID: "a", PID: pid, Provider: "script", Model: "tour", Outcome: "ok", Cost: &cost, StartedAt: epoch, EndedAt: epoch},
		{ID: "b", PID: pid, Provider: "script", Model: "tour", Outcome: "ok", StartedAt: epoch, EndedAt: epoch},
	}
	rows = slices.DeleteFunc(rows, func(r wire.LedgerRow) bool { return r.ID <= after })
	return rows[:min(len(rows), limit)], nil
}

func (w *world) Status(ctx context.Context) (wire.Status, error) {
	if err := w.enter(ctx, "Status"); err != nil {
		return wire.Status{}, err
	}
	return wire.Status{PID: 7, Wire: wire.Version, Generation: w.generation, StartedAt: epoch}, nil
}

func (w *world) Stop(ctx context.Context, s wire.Stop) (wire.Stopped, error) {
	w.stopped <- s
	return wire.Stopped{PID: 7}, nil
}

func (w *world) Models(ctx context.Context) ([]wire.Model, error) {
	return []wire.Model{{Name: "script:tour", Type: "script", Default: true}}, nil
}

func (w *world) Ready(ctx context.Context) error { return w.enter(ctx, "Ready") }

func (w *world) Generation() string { w.mu.Lock(); defer w.mu.Unlock(); return w.generation }

func (w *world) Events(ctx context.Context, session string, after uint64, limit int) ([]wire.Event, uint64, uint64, error) {
	if err := w.enter(ctx, "Events"); err != nil {
		return nil, 0, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.events[session]
	if len(all) == 0 {
		return nil, 0, 0, nil
	}
	last := all[len(all)-1].Seq
	from := min(max(after, w.first-1), last)
	rows := slices.Clone(all[from:])
	return rows[:min(len(rows), limit)], w.first, last, nil
}

func (w *world) Subscribe(session string) interface {
	Next(context.Context) (wire.Item, error)
	Close()
} {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &subscription{w: w, session: session, items: make(chan wire.Item, w.capacity)}
	w.subs[s] = true
	return s
}

// commit adds an event and tells the subscriptions; the caller holds the lock.
func (w *world) commit(session string, pid uint64, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	seq := uint64(len(w.events[session]) + 1)
	e := wire.Event{Session: session, Seq: seq, PID: pid, Kind: kind, At: epoch, Body: text}
	w.events[session] = append(w.events[session], e)
	if s, ok := w.sessions[session]; ok {
		s.LastEvent = seq
		w.sessions[session] = s
	}
	if !w.mute {
		w.tell(session, wire.Item{Event: &e})
	}
}

// quietly commits n events that no subscription hears of.
func (w *world) quietly(session string, n int) {
	w.mu.Lock()
	w.mute = true
	w.mu.Unlock()
	w.note(session, n)
	w.mu.Lock()
	w.mute = false
	w.mu.Unlock()
}

// say gives subscriptions an item, or if it is zero the event with a sequence.
func (w *world) say(session string, item wire.Item, seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if item == (wire.Item{}) {
		item.Event = &w.events[session][seq-1]
	}
	w.tell(session, item)
}

// note commits n small events.
func (w *world) note(session string, n int) { w.noteLong(session, n, 0) }

// noteLong commits n events of at least size bytes.
func (w *world) noteLong(session string, n, size int) {
	detail := strings.Repeat("x", size)
	for range n {
		w.mu.Lock()
		w.commit(session, 1, wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Running, Detail: detail, Since: epoch}})
		w.mu.Unlock()
	}
}

func (w *world) live(session, kind string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(session, wire.Item{Live: &wire.Live{Kind: kind, Body: text}})
}

func (w *world) tell(session string, item wire.Item) {
	for s := range w.subs {
		if s.session != session && (s.session != "" || item.Event == nil) {
			continue
		}
		select {
		case s.items <- item:
		default:
			s.dropped = true
		}
	}
}

// subscription is a real one: bounded, and lossy for the slow.
type subscription struct {
	w       *world
	session string
	items   chan wire.Item
	dropped bool
}

func (s *subscription) Next(ctx context.Context) (wire.Item, error) {
	s.w.mu.Lock()
	dropped := s.dropped
	s.dropped = false
	s.w.mu.Unlock()
	if dropped {
		return wire.Item{Dropped: true}, nil
	}
	select {
	case item := <-s.items:
		return item, nil
	case <-ctx.Done():
		return wire.Item{}, ctx.Err()
	}
}

func (s *subscription) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	delete(s.w.subs, s)
}
