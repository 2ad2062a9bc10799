package api_test

import (
	"context"
	"testing"

	"soma/wire"
)

// shells stands in for who runs shell commands: one that prints five bytes and runs until it is interrupted.
type shells struct{ w *world }

func (s shells) Run(ctx context.Context, session, id string, req wire.RunShell) (wire.ShellCommand, error) {
	s.w.mu.Lock()
	if err := s.w.once("shell "+session+" "+id, req); err != nil {
		s.w.mu.Unlock()
		return wire.ShellCommand{}, err
	}
	s.w.mu.Unlock()
	return s.Command(ctx, session, id)
}

func (s shells) Command(_ context.Context, session, id string) (wire.ShellCommand, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	req, ok := s.w.bodies["shell "+session+" "+id].(wire.RunShell)
	if !ok {
		return wire.ShellCommand{}, wire.Errorf(wire.NotFound, "there is no shell command %s", id)
	}
	c := wire.ShellCommand{Session: session, ClientID: id, Command: req.Command, State: "started", Bytes: 5, Kept: 5, StartedAt: epoch}
	if s.w.bodies["ended "+session+" "+id] != nil {
		c.State, c.Status, c.EndedAt = "ended", "stopped", &epoch
	}
	return c, nil
}

func (s shells) Interrupt(ctx context.Context, session, id string) (wire.ShellCommand, error) {
	s.w.mu.Lock()
	s.w.bodies["ended "+session+" "+id] = true
	s.w.mu.Unlock()
	return s.Command(ctx, session, id)
}

func (s shells) Output(ctx context.Context, session, id string, offset int64, limit int) (wire.ShellPage, error) {
	c, err := s.Command(ctx, session, id)
	end := min(offset+int64(limit), 5)
	p := wire.ShellPage{Offset: offset, Size: 5, Running: c.State == "started", Text: "a.txt"[offset:end]}
	if p.Running || end < 5 {
		p.Next = &end
	}
	return p, err
}

// P-129: shell commands are written, read and ended by their client's ids.
func TestShell(t *testing.T) {
	r := start(t)
	r.open(t, "s")
	c, err := r.client.RunShell(t.Context(), "s", "l", wire.RunShell{Command: "ls"})
	if err != nil || c.Command != "ls" || c.State != "started" {
		t.Fatalf("%+v, %v", c, err)
	}
	if p, err := r.client.ShellOutput(t.Context(), "s", "l", 2, 0); err != nil || p.Text != "txt" || p.Next == nil || *p.Next != 5 {
		t.Errorf("%+v, %v", p, err)
	}
	if c, err := r.client.InterruptShell(t.Context(), "s", "l"); err != nil || c.Status != "stopped" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := r.client.ShellCommand(t.Context(), "s", "l"); err != nil || c.State != "ended" {
		t.Errorf("%+v, %v", c, err)
	}
	if p, err := r.client.ShellOutput(t.Context(), "s", "l", 0, 16); err != nil || p.Next != nil {
		t.Errorf("%+v, %v", p, err)
	}
}
