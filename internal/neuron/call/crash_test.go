package call_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/inflight"
)

// N-27, N-33: the program is killed before each of its commits in turn: between request, method, answer and end. The next
// life finds the call and brings it to one end; no effect happens twice.
func TestKilledBetweenTheSteps(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		var runs counter
		k := kind(func(turn *neuron.Turn, n note) error {
			got, err := call.Do(turn, echo, id("b"+n.Text), n)
			if err != nil {
				return err
			}
			it, err := call.Pull(turn, count, id("c"+n.Text), note{Text: n.Text, N: 5})
			if err != nil {
				return err
			}
			sum := 0
			for {
				item, ok, err := it.Next()
				if err != nil {
					return err
				}
				if !ok {
					break
				}
				sum += item
			}
			turn.Write(put{"end " + n.Text, fmt.Sprint(got.Text, sum)})
			return nil
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{"method " + n.Text, ""})
			return call.Do(turn, door, id("d"+n.Text), n)
		})
		call.Serve(k, door, func(turn *neuron.Turn, n note) (note, error) {
			turn.Write(put{"inner " + n.Text, ""})
			return note{Text: "answer"}, nil
		})
		counting(k, &runs)
		lives := 0
		for kill := int64(1); ; kill++ {
			text := fmt.Sprint("k", kill, ";")
			d := fresh(t, id("a"+text), text)
			w := startUntil(t, b, kill, quick(), k)
			err := w.Accept(t.Context(), d)
			if err == nil {
				// The delivery is kept or handled; what follows may still be killed.
				if err := quietOrDead(w); err == nil && !w.dead.Load() {
					w.stop()
					break
				}
			}
			w.stop()
			lives++
			w = start(t, b, k)
			if err := w.Accept(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			w.wantClean()
			if got := b.rows(t)["end "+text]; got != "answer15" {
				t.Errorf("killed before commit %d: %q", kill, got)
			}
			w.wantFacts(id("a"+text), "requested", "requested", "completed", "completed")
			w.wantFacts(id("b"+text), "requested", "completed")
			w.stop()
		}
		if lives < 8 {
			t.Errorf("%d lives were killed", lives)
		}
		for key, n := range runs.n {
			if n > 2 {
				t.Errorf("%s ran %d times", key, n)
			}
		}
	})
}

// quietOrDead waits until nothing is left to do, or the engine has been killed.
func quietOrDead(w *world) error {
	for !w.dead.Load() {
		if s := w.Stats(); s.Running+s.Waiting+s.Records+s.Outbox+s.Removals == 0 {
			return nil
		}
		if err := w.t.Context().Err(); err != nil {
			return err
		}
	}
	return neuron.ErrFenced
}

// N-27: an engine that stops lets nobody wait: the handler's attempt fails, and the next life goes on with the call.
func TestStopWhileWaiting(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		entered, left := make(chan struct{}), make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("b"), n)
			if !errors.Is(err, neuron.ErrStopped) {
				t.Errorf("the call ended with %v", err)
			}
			close(left)
			return err
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			close(entered)
			<-left // the caller goes first
			return n, errBroken
		})
		w := start(t, b, k)
		d := fresh(t, id("a"), "x")
		ends := make(chan error, 1)
		go func() { ends <- w.Accept(t.Context(), d) }()
		<-entered
		w.stop()
		if err := <-ends; err != nil && !errors.Is(err, neuron.ErrStopped) {
			t.Error(err)
		}
		next := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("b"), n)
			turn.Write(put{"end", ""})
			return err
		})
		call.Serve(next, echo, func(turn *neuron.Turn, n note) (note, error) { turn.Write(put{"method", ""}); return n, nil })
		w = start(t, b, next)
		if err := w.Accept(t.Context(), d); err != nil {
			t.Error(err)
		}
		w.wantClean()
		w.wantFacts(id("a"), "requested", "completed")
		if rows := b.rows(t); len(rows) != 2 {
			t.Errorf("rows %v", rows)
		}
	})
}

// N-45: a crash of the program is charged to the method that ran, not to the caller that waited for it.
func TestCrashIsNotChargedToWhoWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, b *base) {
		slots := filepath.Join(t.TempDir(), "inflight")
		entered := make(chan struct{}, 1)
		leave := make(chan struct{})
		k := kind(func(turn *neuron.Turn, n note) error {
			_, err := call.Do(turn, echo, id("b"), n)
			if err != nil {
				return err
			}
			entered <- struct{}{} // the caller runs again and is charged
			<-leave
			return errBroken
		})
		call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
			if n.Text == "stuck" {
				entered <- struct{}{}
				<-leave
			}
			return n, nil
		})
		running := func() (ids []ident.ID) {
			t.Helper()
			<-entered
			kept, err := os.ReadFile(slots)
			if err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(t.TempDir(), "copy")
			if err := os.WriteFile(other, kept, 0o600); err != nil {
				t.Fatal(err)
			}
			f, _, ids, err := inflight.Open(other)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			return ids
		}
		e, err := engine.New(engine.Options{Store: b.store, Kinds: []*neuron.Kind{k}, Types: types, Limits: quick(), Inflight: slots})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{Engine: e, t: t, b: b}
		w.begin()
		ends := make(chan error, 2)
		stuck, goes := fresh(t, id("a"), "stuck"), fresh(t, id("c"), "goes")
		go func() { ends <- w.Deliver(t.Context(), stuck) }()
		if ids := running(); len(ids) != 1 || ids[0] == stuck.ID {
			t.Errorf("charged while the method runs: %v, the caller is %v", ids, stuck.ID)
		}
		close(leave)
		<-entered
		if err := <-ends; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		leave = make(chan struct{})
		go func() { ends <- w.Deliver(t.Context(), goes) }()
		if ids := running(); len(ids) != 1 || ids[0] != goes.ID {
			t.Errorf("charged while the caller runs: %v, want %v", ids, goes.ID)
		}
		close(leave)
		if err := <-ends; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		w.stop()
	})
}

// N-30: a mark put into requests, answers, items, states of streams and texts of errors is in no row of a journal, nor in a
// delivery on its way or a dead one.
func TestFactsHoldNothingOfTheCall(t *testing.T) {
	const mark = "MARK-7f3a"
	b := onDisk(t)
	k := kind(func(turn *neuron.Turn, n note) error {
		_, err := call.Do(turn, echo, id("b"), note{Text: mark + n.Text, N: 1})
		if n.Text == "stream" {
			texts := call.NewStream[note, string]("test.texts", "read")
			it, err := call.Pull(turn, texts, id("b"), note{Text: mark})
			if err != nil {
				return err
			}
			item, ok, err := it.Next()
			if !ok || item != mark+"item" {
				t.Errorf("%q, %v", item, err)
			}
		}
		if err != nil && n.Text == "passes" {
			return err
		}
		return nil
	})
	texts := call.NewStream[note, string]("test.texts", "read")
	call.Serve(k, echo, func(turn *neuron.Turn, n note) (note, error) {
		switch n.Text {
		case mark + "fails":
			return note{}, errors.New(mark)
		case mark + "panics":
			panic(mark)
		case mark + "refuses", mark + "passes":
			return note{}, neuron.SettleAs("no", errors.New(mark))
		}
		return note{Text: mark + "answer"}, nil
	})
	call.ServeStream(k, texts, func(_ *neuron.Turn, n note, after string) ([]string, string, bool, error) {
		return []string{mark + "item", mark + "item"}, mark + "state", true, nil
	}, nil)
	call.Serve(k, door, func(_ *neuron.Turn, n note) (note, error) { return note{Text: mark + "answer"}, nil })
	w := startTyped(t, b, append(types, texts.Alias()), k)
	for _, text := range []string{"works", "fails", "panics", "refuses", "passes", "stream"} {
		if err := w.run(id(text), text); err != nil && text != "passes" {
			t.Errorf("%s: %v", text, err)
		}
		if n := len(w.facts(id(text))); n != 2 && !(text == "stream" && n == 4) {
			t.Errorf("%s: %d facts", text, n)
		}
	}
	if _, err := call.Outside(w.Outside(t.Context()), door, id("b"), note{Text: mark}); err != nil {
		t.Error(err)
	}
	seen := 0
	for _, sql := range []string{
		"select coalesce(incoming, ''), coalesce(outgoing, '') from turn",
		"select delivery, '' from outbox",
		"select delivery, error from dead_letter",
		"select bytes, '' from content",
	} {
		each(t, b.store, sql, func(scan func(...any) error) error {
			var x, y []byte
			if err := scan(&x, &y); err != nil {
				return err
			}
			seen++
			for _, text := range [][]byte{x, y} {
				if bytes.Contains(text, []byte(mark)) || strings.Contains(string(text), "7f3a") {
					t.Errorf("%s: %s", sql, text)
				}
			}
			return nil
		})
	}
	if seen < 20 {
		t.Errorf("looked at %d rows", seen)
	}
	w.wantClean()
}
