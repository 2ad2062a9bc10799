package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/neuron"
	"soma/message"
	"soma/wire"
)

// N-46: whatever an event's texts hold, its body is bounded and valid, what is cut is the beginning, and calls stay valid.
func TestEventsAreBounded(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := func(name string) string {
			part := rapid.SampledFrom([]string{"a", "é€😀", "\x01\x02", "<&>", "\"\\", "\u2028", "\xff"}).Draw(r, name)
			return strings.Repeat(part, rapid.SampledFrom([]int{0, 3, 300, 3000}).Draw(r, name+" times"))
		}
		value := text("value")
		m := wire.Message{Seq: 1, ID: ident.New(time.Now()).String(), At: time.Now(), Message: message.Message{Role: message.Assistant, Text: text("text"), Result: encode(text("result"))}}
		call := message.Call{Tool: "python", Arguments: encode(map[string]any{"code": text("code"), "timeout_ms": 5}), Malformed: text("malformed")}
		for i := range rapid.SampledFrom([]int{0, 1, 5, 128}).Draw(r, "calls") {
			call.ID = fmt.Sprintf("%064d", i)
			m.Message.Calls = append(m.Message.Calls, call)
		}
		var many []wire.Message
		for range rapid.SampledFrom([]int{1, 2, 400}).Draw(r, "messages") {
			many = append(many, m)
			many[len(many)-1].Message = message.Message{Role: message.User, Text: m.Message.Text}
		}
		cells := make([]string, len(m.Message.Calls))
		for i := range cells {
			cells[i] = ident.New(time.Now()).String()
		}
		for _, body := range []any{
			wire.InputEvent{Text: text("input")}, wire.StepEndedEvent{Message: m, Cells: cells}, wire.StepStartedEvent{Messages: many, Model: strings.Repeat("m", maxPath)},
			wire.ToolResultEvent{Value: &value, Output: text("output"), Tail: text("tail"), Error: text("error"), Note: text("note")},
			wire.CellEvent{Output: text("output"), Tail: text("tail"), Cell: wire.Cell{Code: text("code"), Value: &value, Note: text("note"),
				Error: &wire.CellFault{Type: text("type"), Message: text("message"), Traceback: text("trace")}}},
		} {
			b := newEvent("s", 1, "k", body, time.Now()).Body
			if len(b) > wire.MaxEvent || !json.Valid(b) || !utf8.Valid(b) {
				r.Fatalf("%T: %d bytes, valid %v: %.3000s", body, len(b), json.Valid(b), b)
			}
		}
		short := cutMessage(m, cutMessages)
		if short.Cut && !strings.HasPrefix(m.Message.Text, short.Message.Text) {
			r.Fatal("not the beginning")
		}
		for i, c := range short.Message.Calls {
			var a, whole struct{ Code string }
			if json.Unmarshal(c.Arguments, &a) != nil || json.Unmarshal(m.Message.Calls[i].Arguments, &whole) != nil || !strings.HasPrefix(whole.Code, a.Code) {
				r.Fatalf("call %s", c.Arguments)
			}
		}
	})
}

// A spool survives its daemon and keeps only what is complete; slots are used again.
func TestSpools(t *testing.T) {
	dir := t.TempDir()
	load := func(keep ...ident.ID) *spools {
		s := &spools{dir: dir}
		m := map[ident.ID]bool{}
		for _, id := range keep {
			m[id] = true
		}
		if err := s.load(m); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.close() })
		return s
	}
	a, b, c := ident.New(time.Now()), ident.New(time.Now()), ident.New(time.Now())
	s := load()
	for id, text := range map[ident.ID]string{a: "first", b: "the second one", c: strings.Repeat("c", maxSlot+1)} {
		if err := s.put(id, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *spools, id ident.ID, text string) {
		t.Helper()
		got, found, err := s.get(id)
		if string(got) != text || found != (text != "") || err != nil {
			t.Errorf("%.20q, %v, %v instead of %.20q", got, found, err, text)
		}
	}
	want(s, a, "first")
	s.release(c)
	want(s, c, "")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = load(a, b)
	want(s, a, "first")
	want(s, b, "the second one")
	want(s, c, "")
	files, err := filepath.Glob(filepath.Join(dir, "*"+spoolSuffix))
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	large := 0
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if info.Size() > maxSlot {
			large++
		}
	}
	if large != 0 {
		t.Errorf("%d free slots are large", large)
	}
	if err := s.put(c, []byte("again")); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 3 {
		t.Errorf("a free slot was not used: %v", files)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	// Cut off at any byte, an answer is not complete.
	for _, f := range files {
		whole, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(whole), "second") {
			continue
		}
		for n := range len(whole) {
			if err := os.WriteFile(f, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			s := load(a, b, c)
			if got, found, _ := s.get(b); found {
				t.Errorf("cut at %d: %q", n, got)
			}
			_ = s.close()
		}
	}
}

type noReader struct{ t *testing.T }

func (r noReader) Query(context.Context, string, []any, func(func(...any) error) error) error {
	r.t.Error("a read of what is kept")
	return nil
}

// Histories are fed by commits, so that a step reads nothing; they stay within their bound, and longest unused ones go first.
func TestHistories(t *testing.T) {
	var hs histories
	h := &Host{o: Options{Reader: noReader{t}}}
	branches := make([]ident.ID, 10)
	for i := range branches {
		branches[i] = ident.New(time.Now())
		for seq := range uint64(4) {
			hs.committed(&insertMessage{branch: branches[i], seq: seq + 1, said: message.Message{Text: fmt.Sprint(i, seq)}, size: maxHistoryBytes / 30})
		}
	}
	if hs.bytes > maxHistoryBytes || len(hs.kept) != hs.order.Len() || len(hs.kept) != 7 {
		t.Errorf("%d bytes, %d branches, %d in order", hs.bytes, len(hs.kept), hs.order.Len())
	}
	if hs.kept[branches[0]] != nil || hs.kept[branches[9]] == nil {
		t.Error("not the longest unused one went")
	}
	got, err := hs.through(t.Context(), h, branches[9], 3)
	if err != nil || len(got) != 3 || got[2].Text != "9 2" || cap(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	// What does not follow on what is kept changes nothing.
	for _, seq := range []uint64{3, 4, 7} {
		hs.committed(&insertMessage{branch: branches[9], seq: seq, said: message.Message{Text: "other"}})
	}
	hs.committed(&insertMessage{branch: branches[0], seq: 5})
	if got, _ := hs.through(t.Context(), h, branches[9], 4); len(got) != 4 || got[3].Text != "9 3" {
		t.Errorf("%v", got)
	}
	for _, b := range branches {
		hs.forget(b)
	}
	if hs.bytes != 0 || len(hs.kept) != 0 || hs.order.Len() != 0 {
		t.Errorf("%d bytes, %d branches are left", hs.bytes, len(hs.kept))
	}
}

// Rule 1: a process has the place of its session, known before its row is, read where it is not remembered.
func TestPlaces(t *testing.T) {
	reads := 0
	p := places{known: newRecent[string, neuron.Place](2), find: func(pid ident.PID) (string, error) {
		reads++
		if pid > 100 {
			return "", nil
		}
		return fmt.Sprint("s", pid), nil
	}}
	for range 2 {
		for pid := ident.PID(1); pid <= 2; pid++ {
			if got := p.of(processID("me", pid)); got != neuron.PlaceOf(fmt.Sprint("s", pid)) {
				t.Errorf("place of %d: %v", pid, got)
			}
		}
	}
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
	p.put(200, neuron.PlaceOf("early"))
	if got := p.of(processID("me", 200)); got != neuron.PlaceOf("early") || reads != 2 {
		t.Errorf("place %v, %d reads", got, reads)
	}
	if got := p.of(processID("me", 101)); got != neuron.PlaceOf("101") {
		t.Errorf("place without a row: %v", got)
	}
	for pid := range ident.PID(50) {
		p.of(processID("me", pid+1))
	}
	if n := len(p.known.young) + len(p.known.old); n > 4 {
		t.Errorf("%d places are remembered", n)
	}
}
