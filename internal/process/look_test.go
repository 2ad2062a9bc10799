package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"soma/message"
	"soma/wire"
)

// count returns how many committed events of the session are of the kind; the caller holds mu.
func (w *world) count(session, kind string) (n int) {
	for _, e := range w.events {
		if e.Session == session && e.Kind == kind {
			n++
		}
	}
	return n
}

// awaitEvent waits for the nth event of the kind (from 1) and decodes it.
func (w *world) awaitEvent(session, kind string, n int, body any) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s %d of session %s", kind, n, session), func() bool { return w.count(session, kind) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Session == session && e.Kind == kind {
			if n--; n == 0 && body != nil {
				w.must(json.Unmarshal(e.Body, body))
			}
		}
	}
}

// bodies decodes all committed events of a kind.
func bodies[T any](w *world, session, kind string) []T {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []T
	for _, e := range w.events {
		if e.Session == session && e.Kind == kind {
			var b T
			w.must(json.Unmarshal(e.Body, &b))
			all = append(all, b)
		}
	}
	return all
}

// awaitState waits until the process's row says so.
func (w *world) awaitState(pid uint64, state, reason string) wire.Process {
	w.t.Helper()
	var p wire.Process
	w.await(fmt.Sprintf("state %s (%s) of %d", state, reason, pid), func() bool {
		p = w.process(pid)
		return p.State.State == state && p.Reason == reason
	})
	return p
}

func (w *world) ended(pid uint64) wire.Process {
	w.t.Helper()
	var p wire.Process
	w.await(fmt.Sprintf("end of %d", pid), func() bool { p = w.process(pid); return p.Ended() })
	return p
}

// history returns the branch without notes, paired or the test fails.
func (w *world) history(pid uint64) []message.Message {
	w.t.Helper()
	list, err := w.host.Messages(w.t.Context(), pid, 0, 0)
	w.must(err)
	var all []message.Message
	for i, m := range list {
		if m.Seq != uint64(i+1) {
			w.t.Errorf("message %d has sequence %d", i, m.Seq)
		}
		all = append(all, m.Message)
	}
	if err := message.CheckPaired(all); err != nil {
		w.t.Errorf("process %d: %v", pid, err)
	}
	return all
}

// told returns the history in short: one line each, role and text.
func (w *world) told(pid uint64) string {
	w.t.Helper()
	var b strings.Builder
	for _, m := range w.history(pid) {
		if m.Role == message.Note {
			continue
		}
		fmt.Fprintf(&b, "%s: %s", m.Role, m.Text)
		for _, c := range m.Calls {
			fmt.Fprintf(&b, " [%s]", c.ID)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (w *world) ledger(pid uint64) []wire.LedgerRow {
	w.t.Helper()
	rows, err := w.host.Ledger(w.t.Context(), pid, "", 0)
	w.must(err)
	return rows
}

// one reads one number, also for the commits that come while the test ends.
func (w *world) one(sql string, args ...any) (n int64) {
	w.t.Helper()
	w.must(w.store.Query(context.WithoutCancel(w.t.Context()), sql, args, func(scan func(...any) error) error { return scan(&n) }))
	return n
}

// code returns the wire code of an error.
func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
