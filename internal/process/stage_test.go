package process_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"soma/internal/agent/model"
	"soma/internal/agent/model/script"
	"soma/internal/agent/tool"
	"soma/internal/process"
	"soma/message"
	"soma/wire"
)

// stage has a script for each model, keeps what it was asked, and can hold streams at a gate.
type stage struct {
	t testing.TB

	mu       sync.Mutex
	scripts  map[string]model.Provider
	names    map[string][2]string // vendor and model, where not script
	gates    map[string]chan struct{}
	asked    []asked
	open     int // streams
	most     int
	watchers chan struct{}
}

// asked is one request.
type asked struct {
	model    string
	attempt  int
	messages []message.Message
	image    func(context.Context, string) ([]byte, error)
	tools    []tool.Definition
}

func newStage(t testing.TB, scripts map[string]string) *stage {
	t.Helper()
	s := &stage{t: t, scripts: map[string]model.Provider{}, names: map[string][2]string{}, gates: map[string]chan struct{}{}, watchers: make(chan struct{})}
	for name, text := range scripts {
		p, err := script.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s.scripts[name] = p
	}
	return s
}

// hold makes the model's streams wait at their beginning until the returned function is called.
func (s *stage) hold(name string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gates[name] = gate
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.gates[name] == gate {
			delete(s.gates, name)
		}
		close(gate)
	})
}

func (s *stage) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

func (s *stage) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *stage) streaming() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func (s *stage) streams(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += by
	s.most = max(s.most, s.open)
	close(s.watchers)
	s.watchers = make(chan struct{})
}

// Find makes it a process.Models.
func (s *stage) Find(_ context.Context, name string) (process.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.scripts[name]
	if p == nil {
		return process.Model{}, wire.Errorf(wire.NoModel, "no model %s", name)
	}
	m := process.Model{Vendor: "script", Model: name, Provider: &player{s, name, p}}
	if n, ok := s.names[name]; ok {
		m.Vendor, m.Model = n[0], n[1]
	}
	return m, nil
}

type player struct {
	stage *stage
	name  string
	model.Provider
}

// Stream keeps the request and plays the script.
func (p *player) Stream(ctx context.Context, r model.Request) (model.Stream, error) {
	if err := r.Check(); err != nil { // K-09: no request ever breaks it
		p.stage.t.Errorf("request to %s: %v", p.name, err)
	}
	p.stage.mu.Lock()
	p.stage.asked = append(p.stage.asked, asked{p.name, r.Attempt, slices.Clone(r.Messages), r.Image, r.Tools})
	gate := p.stage.gates[p.name]
	p.stage.mu.Unlock()
	s, err := p.Provider.Stream(ctx, r)
	if err != nil {
		return nil, err
	}
	p.stage.streams(1)
	return &playing{Stream: s, stage: p.stage, gate: gate}, nil
}

type playing struct {
	model.Stream
	stage *stage
	gate  chan struct{}
	once  sync.Once
}

// Next waits at the gate first.
func (p *playing) Next(ctx context.Context) (model.Event, error) {
	if p.gate != nil {
		select {
		case <-p.gate:
		case <-ctx.Done():
			return model.Event{}, context.Cause(ctx)
		}
	}
	return p.Stream.Next(ctx)
}

// Close counts it out.
func (p *playing) Close() error {
	p.once.Do(func() { p.stage.streams(-1) })
	return p.Stream.Close()
}
