package api_test

import (
	"errors"
	"fmt"
	"testing"

	"soma/wire"
)

// The process table comes whole and in order, page by page, at 10,000 processes; filters hold on every page.
func TestProcessTable(t *testing.T) { // K-05
	r := start(t)
	const n = 10_000
	r.world.mu.Lock()
	for pid := uint64(1); pid <= n; pid++ {
		p := wire.Process{
			PID: pid, Session: fmt.Sprint("s", pid%10), Workspace: fmt.Sprint("/w", pid%7), CreatedAt: epoch,
			State: wire.State{State: wire.Running, Since: epoch},
		}
		if pid%3 == 0 {
			p.State.State = wire.Terminated
		}
		r.world.processes = append(r.world.processes, p)
	}
	r.world.mu.Unlock()
	for _, f := range []wire.ProcessFilter{
		{}, {All: true}, {Session: "s4"}, {All: true, Workspace: "/w5"}, {Session: "s4", Workspace: "/w5", After: 5000}, {Session: "none"},
	} {
		all, err := r.client.AllProcesses(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for pid := f.After + 1; pid <= n; pid++ {
			want := r.world.processes[pid-1]
			if !f.All && want.Ended() || f.Session != "" && want.Session != f.Session || f.Workspace != "" && want.Workspace != f.Workspace {
				continue
			}
			if i == len(all) || all[i].PID != pid {
				t.Fatalf("%+v: item %d of %d is not %d", f, i, len(all), pid)
			}
			i++
		}
		if i != len(all) {
			t.Errorf("%+v: %d items, want %d", f, len(all), i)
		}
	}
	page, err := r.client.Processes(t.Context(), wire.ProcessFilter{All: true})
	if err != nil || len(page.Items) != wire.DefaultLimit || page.Next != "100" {
		t.Errorf("a page: %d items, next %q, %v", len(page.Items), page.Next, err)
	}
	page, err = r.client.Processes(t.Context(), wire.ProcessFilter{All: true, After: n - 5, Limit: 5})
	if err != nil || len(page.Items) != 5 || page.Next != "" {
		t.Errorf("the last page, which is full: %d items, next %q, %v", len(page.Items), page.Next, err)
	}
}

func TestPages(t *testing.T) { // I-24
	r := start(t)
	for _, id := range []string{"c", "a", "b"} {
		r.open(t, id)
	}
	f := wire.SessionFilter{Kind: wire.SessionRun, Workspace: "/tmp", Limit: 2}
	first, err := r.client.Sessions(t.Context(), f)
	if err != nil || len(first.Items) != 2 || first.Next != "b" {
		t.Fatalf("%+v, %v", first, err)
	}
	f.After = first.Next
	second, err := r.client.Sessions(t.Context(), f)
	if err != nil || len(second.Items) != 1 || second.Items[0].ID != "c" || second.Next != "" {
		t.Errorf("%+v, %v", second, err)
	}
	messages, err := r.client.Messages(t.Context(), 1, 100, 150)
	if err != nil || len(messages.Items) != 150 || messages.Items[0].Seq != 101 || messages.Next != "" {
		t.Errorf("%d messages, next %q, %v", len(messages.Items), messages.Next, err)
	}
	if text := messages.Items[0].Message.Text; text != "<b>&" {
		t.Errorf("a text comes out as %q", text)
	}
	ledger, err := r.client.Ledger(t.Context(), 1, "", 1)
	if err != nil || len(ledger.Items) != 1 || ledger.Next != "a" {
		t.Fatalf("%+v, %v", ledger, err)
	}
	ledger, err = r.client.Ledger(t.Context(), 1, ledger.Next, 1)
	if err != nil || len(ledger.Items) != 1 || ledger.Items[0].ID != "b" || ledger.Items[0].Cost != nil || ledger.Next != "" {
		t.Errorf("%+v, %v", ledger, err)
	}
	var text string
	for page := (wire.OutputPage{}); !page.EOF; text += page.Text {
		if page, err = r.client.Output(t.Context(), "x", page.Next, 70_000); err != nil {
			t.Fatal(err)
		}
	}
	if text != cellText {
		t.Errorf("the output has %d bytes, want %d", len(text), len(cellText))
	}
}

// A write made again under its id answers the same, with defaults or without, and happens once; another body is refused.
func TestWritesMadeAgain(t *testing.T) { // I-21
	r := start(t)
	session := r.open(t, "s")
	again, err := r.client.OpenSession(t.Context(), "s", wire.OpenSession{Kind: wire.SessionRun, Workspace: "/tmp", Model: "script:tour"})
	if again.LastEvent = session.LastEvent; err != nil || again != session {
		t.Errorf("%+v, %v, first %+v", again, err, session)
	}
	var first wire.InputState
	for i, in := range []wire.Input{{Text: "go on"}, {Text: "go on", Mode: wire.Steer}, {Text: "go on"}} {
		got, err := r.client.Admit(t.Context(), "s", "i", in)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = got
		}
		if got != first {
			t.Errorf("%+v, first %+v", got, first)
		}
	}
	var e *wire.Error
	if _, err := r.client.Admit(t.Context(), "s", "i", wire.Input{Text: "go back"}); !errors.As(err, &e) || e.Code != wire.Conflict {
		t.Errorf("another text: %v", err)
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	if n := len(r.world.events["s"]); n != 2 {
		t.Errorf("%d events, want one of the session and one of the input", n)
	}
}
