package retention_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
	"soma/wire"
)

// less is what of a is not in b.
func less(a, b map[string]int64) map[string]int64 {
	m := map[string]int64{}
	for table, n := range a {
		if n -= b[table]; n != 0 {
			m[table] = n
		}
	}
	return m
}

// some leaves out what is zero.
func some(m map[string]int64) map[string]int64 { return less(m, nil) }

// pruneOne tells what is stored of one session.
func (w *world) stored(session string) map[string]int64 {
	w.t.Helper()
	list, _, err := w.keeper.Prune(w.t.Context(), wire.Prune{Before: time.Now().Add(time.Hour), DryRun: true, Limit: wire.MaxPrune})
	w.must(err)
	for _, p := range list {
		if p.Session == session {
			return some(p.Tables)
		}
	}
	w.t.Fatalf("session %s is not at rest", session)
	return nil
}

// beside gives the first cell of a session an image and a trace, its python kernel jobs, and the session commands of a person.
func (w *world) beside(session string) {
	w.t.Helper()
	var id, kernel string
	w.must(w.store.Query(w.t.Context(), `select id, kernel from cell where session = ? order by id limit 1`, []any{session},
		func(scan func(...any) error) error { return scan(&id, &kernel) }))
	cell, err := ident.Parse(id)
	w.must(err)
	body, err := json.Marshal(cells.Body{Images: []pykernel.Image{{Media: "image/png", Content: pykernel.ImageID(cell, 0)}}})
	w.must(err)
	w.rows = append(w.rows, &pykernel.KeepImage{ID: pykernel.ImageID(cell, 0), Bytes: []byte("png")},
		&pykernel.InsertTrace{Cell: id, Session: session, Kernel: kernel, Body: []byte("[]"), At: time.Now()})
	w.later(`update cell set body = ? where id = ?`, body, id)
	for i := range 300 {
		w.later(`insert into shell_command (session, id, branch, command, state, status, note, bytes, kept, started_at)
values (?, ?, ?, 'ls', 'ended', 'exited', '', 0, 0, 0)`, session, strconv.Itoa(i), cell[:])
		w.rows = append(w.rows, &pykernel.EndJob{Kernel: kernel, Session: session, Job: pykernel.JobEnd{Job: strconv.Itoa(i), EndedAt: 1}})
	}
	w.now()
}

// S-62, P-066: a removed session leaves nothing but the sums of what it cost; all other sessions have the same rows as before, and totals of
// cost and tokens are the same. Its id is never used again, now or after a restart: an old input is told that it has gone.
func TestRemove(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.run("a", "work", "i1", "i2")
		w.run("a2", "long", "i1")
		w.run("b", "work", "i1")
		w.run("b2", "long", "i1")
		w.py("p", `print("y" * 100000)`, `1 + 1`)
		for _, session := range []string{"a", "b"} {
			w.beside(session)
		}
		pid := w.one(`select min(pid) from process where session = 'a'`)
		spent, spends := w.spent(), w.one(`select count(*) from ledger`)
		b, b2, p := w.rowsOf("b"), w.rowsOf("b2"), w.rowsOf("p")
		for table, least := range map[string]int64{"tool_call": 4, "cell": 4, "content": 4, "message": 12, "ledger": 7, "job": 600, "cell_trace": 2, "shell_command": 600} {
			if n := w.counts()[table]; n < least {
				t.Errorf("%d rows in %s: there is too little to remove", n, table)
			}
		}
		for _, session := range []string{"a", "a2"} {
			before, stored := w.counts(), w.stored(session)
			r, err := w.remove(session, wire.Remove{})
			w.must(err)
			gone := less(before, w.counts())
			delete(gone, "ledger_sum")
			if r.State != wire.Removed || !maps.Equal(gone, stored) {
				t.Errorf("%s: %+v, gone are %v, stored were %v", session, r, gone, stored)
			}
			var n int64
			for _, rows := range stored {
				n += rows
			}
			if r.Done != n+1 || r.Rows != r.Done { // and the turn that marked it
				t.Errorf("%s: %+v of %d rows", session, r, n)
			}
			if left := w.rowsOf(session); left != "" {
				t.Errorf("left of %s: %s", session, left)
			}
		}
		if got := w.spent(); got != spent {
			t.Errorf("spent\n%swas\n%s", got, spent)
		}
		if n := w.one(`select count(*) from ledger`); n >= spends {
			t.Errorf("%d ledger rows of %d", n, spends)
		}
		for i := range 2 {
			if n := w.one(`select count(*) from content where payload = 1`); n != 1 { // b2's
				t.Errorf("%d payloads", n)
			}
			for session, rows := range map[string]string{"b": b, "b2": b2} {
				if now := w.rowsOf(session); now != rows {
					t.Errorf("session %s has\n%s\nhad\n%s", session, now, rows)
				}
			}
			if i == 0 && w.rowsOf("p") != p {
				t.Error("session p has changed")
			}
			_, err := w.host.Admit(t.Context(), "a", "i1", wire.Input{Text: "do i1"})
			if code(err) != wire.Gone {
				t.Errorf("an old input: %v", err)
			}
			_, err = w.host.Open(t.Context(), "a", wire.OpenSession{Workspace: w.folder, Model: "work"})
			if code(err) != wire.Gone {
				t.Errorf("opened again: %v", err)
			}
			_, err = w.host.Session(t.Context(), "a")
			if code(err) != wire.Gone {
				t.Errorf("read: %v", err)
			}
			_, err = w.host.Close(t.Context(), "a")
			if code(err) != wire.Gone {
				t.Errorf("closed: %v", err)
			}
			_, err = w.host.RunCell(t.Context(), "a", "c", wire.RunCell{Code: "1"})
			if code(err) != wire.Gone {
				t.Errorf("a cell: %v", err)
			}
			if _, err = w.host.Process(t.Context(), uint64(pid)); code(err) != wire.NotFound {
				t.Errorf("its process: %v", err)
			}
			if r, err := w.remove("a", wire.Remove{}); err != nil || r.State != wire.Removed {
				t.Errorf("removed again: %+v, %v", r, err)
			}
			if _, err := w.remove("never", wire.Remove{}); code(err) != wire.NotFound {
				t.Errorf("one that never was: %v", err)
			}
			if n := w.one(`select count(*) from session where id = 'a'`) + w.one(`select count(*) from process where session = 'a'`); n != 0 {
				t.Errorf("%d rows came back", n)
			}
			w.restart()
		}
	})
}

// S-62: a session in use is refused and says by what; by force its processes and python kernels end first. Answers that nobody waits
// for any more are not left in files, nor is the run directory of the kernel.
func TestRemoveInUse(t *testing.T) {
	w := onSQLite(t)
	_, err := w.host.Open(t.Context(), "a", wire.OpenSession{Workspace: w.folder, Model: "talk", Keep: true})
	w.must(err)
	st, err := w.host.Admit(t.Context(), "a", "i", wire.Input{Text: "x"})
	w.must(err)
	w.until("an answer", func() bool { return w.one(`select count(*) from ledger`) == 1 })
	w.py("p", `x = 1`)
	for session, words := range map[string]string{"a": fmt.Sprintf("process %d is ", st.PID), "p": "python kernel "} {
		_, err := w.remove(session, wire.Remove{})
		if code(err) != wire.InUse || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "force") {
			t.Errorf("%s in use: %v", session, err)
		}
		before := time.Now().Add(time.Hour)
		if _, err := w.remove(session, wire.Remove{Force: true, Before: &before}); code(err) != wire.InUse {
			t.Errorf("%s by age: %v", session, err)
		}
		r, err := w.remove(session, wire.Remove{Force: true})
		if err != nil || r.State != wire.Removed || w.rowsOf(session) != "" {
			t.Errorf("%s by force: %+v, %v, left %s", session, r, err, w.rowsOf(session))
		}
	}
	runs, err := filepath.Glob(filepath.Join(w.dir, "run", "*"))
	if err != nil || len(runs) != 0 {
		t.Errorf("run directories %v, %v", runs, err)
	}
	files, err := filepath.Glob(filepath.Join(w.spool(), "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("spool files %v, %v", files, err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || len(b) != 0 {
			t.Errorf("%s holds %q, %v", f, b, err)
		}
	}
	w.calm("a")
	w.must(w.keeper.Clear(t.Context()))
	if m := some(w.counts()); m["session"]+m["process"]+m["event"]+m["kernel"]+m["content"] != 0 {
		t.Errorf("left are %v", m)
	}
}

// S-62: killed after any commit of a removal, the next daemon goes on with it to its end, and nothing else is touched.
func TestRemoveGoesOnAfterACrash(t *testing.T) {
	w := onSQLite(t)
	w.run("b", "work", "i1")
	b := w.rowsOf("b")
	cut := false
	for n := int64(0); ; n++ {
		session := fmt.Sprint("a", n)
		w.run(session, "work", "i1")
		spent := w.spent()
		ctx, cancel := context.WithCancel(t.Context())
		w.store.onCut = cancel // nobody waits for what has died
		w.store.left.Store(n)
		_, err := w.keeper.Remove(ctx, session, wire.Remove{})
		cut = w.store.left.Load() < 0
		cancel()
		if !cut {
			w.must(err)
			break
		}
		marked := w.one(`select count(*) from session where id = ? and state = 'removing'`, session)
		if (marked == 1) != (n > 0) {
			t.Errorf("after %d commits %d sessions are marked: %v", n, marked, err)
		}
		w.restart()
		if n == 0 {
			_, err := w.remove(session, wire.Remove{})
			w.must(err)
		}
		w.until("the end of the removal", func() bool { return w.one(`select count(*) from session where id = ?`, session) == 0 })
		if left := w.rowsOf(session); left != "" {
			t.Errorf("killed after %d commits, left is %s", n, left)
		}
		if got := w.spent(); got != spent {
			t.Errorf("killed after %d commits, spent\n%swas\n%s", n, got, spent)
		}
		if r, err := w.keeper.Removal(t.Context(), session); err != nil || r.State != wire.Removed {
			t.Errorf("%+v, %v", r, err)
		}
		if n > 60 {
			t.Fatal("a removal has no end")
		}
	}
	if w.rowsOf("b") != b {
		t.Error("another session was touched")
	}
	w.calm("b")
	if m := some(w.counts()); m["neuron"] != 2 || m["session"] != 1 || m["content"] != 1 {
		t.Errorf("left are %v", m)
	}
}

// S-62: many rows go in commits of at most 256, and a content that another session names stays until that goes, too.
func TestRemoveInBoundedCommits(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.run("a", "long", "i1")
		w.run("b", "long", "i1")
		var branch, content []byte
		w.must(w.store.Query(t.Context(), `select m.branch, m.content from message m join branch b on b.id = m.branch where b.session = 'a' and m.content is not null`, nil,
			func(scan func(...any) error) error {
				var x, y []byte
				err := scan(&x, &y)
				branch, content = append(branch, x...), append(content, y...)
				return err
			}))
		// b's message names what a has stored.
		w.exec(`update message set content = ? where content is not null and branch in (select branch from session where id = 'b')`, content)
		for n := range int64(600) {
			id := ident.New(now())
			w.later(`insert into message (branch, seq, id, role, body, attempt, at) values (?, ?, ?, 'note', ?, 0, 0)`, branch, 1000+n, id[:], []byte("{}"))
			w.later(`insert into event (session, seq, pid, kind, body, at) values ('a', ?, 0, 'note', ?, ?)`, 1000+n, []byte("{}"), now().UnixMicro())
		}
		w.now()
		commits := w.store.done.Load()
		r, err := w.remove("a", wire.Remove{})
		w.must(err)
		if n := w.store.done.Load() - commits; n < 1200/256 || r.State != wire.Removed {
			t.Errorf("%d commits, %+v", n, r)
		}
		if n := w.one(`select count(*) from content where id = ?`, content); n != 1 {
			t.Errorf("%d contents of what b names", n)
		}
		if got, err := w.host.Messages(t.Context(), uint64(w.one(`select pid from process where session = 'b'`)), 0, 0); err != nil || len(got) != 2 {
			t.Errorf("b reads %d messages, %v", len(got), err)
		}
		_, err = w.remove("b", wire.Remove{})
		w.must(err)
		if n := w.one(`select count(*) from content where id = ?`, content); n != 0 {
			t.Errorf("%d contents of what nobody names", n)
		}
	})
}
