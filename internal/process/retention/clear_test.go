package retention_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/retention"
	"soma/wire"
)

// S-62: a prune removes what is at rest for long enough, and of that what its dry run has told; what is in use or was used since stays,
// and totals are the same. The setting does it by itself.
func TestPrune(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		for _, session := range []string{"a", "b", "c"} {
			w.run(session, "work", "i1")
		}
		before := now()
		w.run("young", "talk", "i1")
		_, err := w.host.Admit(t.Context(), "c", "again", wire.Input{Text: "more"})
		w.must(err)
		w.py("p", "1")
		w.calm("c")
		w.until("the end", func() bool { return w.one(`select count(*) from process where ended_at is null`) == 0 })
		w.calm("c")
		spent, had := w.spent(), w.counts()
		dry, more, err := w.keeper.Prune(t.Context(), wire.Prune{Before: before, DryRun: true})
		w.must(err)
		if len(dry) != 2 || more || dry[0].Session != "a" || dry[1].Session != "b" || dry[0].State != "" || dry[0].Kind != "run" || dry[0].Workspace != w.folder {
			t.Fatalf("a dry run tells %+v, %v", dry, more)
		}
		if now := w.counts(); !maps.Equal(now, had) {
			t.Errorf("a dry run has removed %v", less(had, now))
		}
		told := map[string]int64{}
		for _, p := range dry {
			for table, n := range p.Tables {
				told[table] += n
			}
		}
		var done []wire.Pruned
		r := wire.Prune{Before: before, Limit: 1}
		for more := true; more; {
			var list []wire.Pruned
			list, more, err = w.keeper.Prune(t.Context(), r)
			w.must(err)
			done = append(done, list...)
			r.After = list[len(list)-1].Session
		}
		gone := less(had, w.counts())
		delete(gone, "ledger_sum")
		if len(done) != 2 || done[0].State != wire.Removed || !maps.Equal(gone, some(told)) || !maps.Equal(done[1].Tables, dry[1].Tables) {
			t.Errorf("removed %+v, gone are %v, told were %v", done, gone, some(told))
		}
		if w.spent() != spent {
			t.Errorf("spent %s, was %s", w.spent(), spent)
		}
		for session, want := range map[string]int64{"a": 0, "b": 0, "c": 1, "young": 1, "p": 1} {
			if n := w.one(`select count(*) from session where id = ?`, session); n != want {
				t.Errorf("%d rows of session %s, want %d", n, session, want)
			}
		}
		w.change = func(o *retention.Options) { o.Keep = time.Millisecond }
		w.restart()
		w.must(w.keeper.PruneOld(t.Context()))
		w.until("the end of the removals", func() bool { return w.one(`select count(*) from session where state = 'removing'`) == 0 })
		if n := w.one(`select count(*) from session`); n != 1 || w.one(`select count(*) from session where id = 'p'`) != 1 {
			t.Errorf("%d sessions stay, want the one in use", n)
		}
	})
}

// S-62: what could grow without end has a bound: dead letters, events, inputs and python kernels of a session, the sums of removed
// sessions, payloads that nothing names, rows of python kernels that have ended, neurons of what never was.
func TestBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.change = func(o *retention.Options) {
			o.Bounds = retention.Bounds{DeadLetters: 300, Events: 300, Inputs: 300, Kernels: 3, Sums: 2, Payloads: time.Millisecond, Strangers: time.Millisecond}
		}
		w.restart()
		w.run("a", "work", "i1")
		w.run("b", "talk", "i1")
		b := w.rowsOf("b")
		var branch []byte
		w.must(w.store.Query(t.Context(), `select branch from session where id = 'a'`, nil, func(scan func(...any) error) error {
			var x []byte
			err := scan(&x)
			branch = append(branch, x...)
			return err
		}))
		kept := ident.New(now())
		named := fmt.Sprintf(`{"content":"%s"}`, kept)
		w.exec(`insert into content (id, size, bytes, payload) values (?, 1, ?, 1)`, kept[:], []byte("x"))
		for i := range int64(900) {
			id := ident.New(now())
			w.later(`insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, 'c', '', 1, 0)`, id[:], []byte(named))
			w.later(`insert into event (session, seq, pid, kind, body, at) values ('a', ?, 0, 'note', ?, ?)`, 1000+i, []byte("{}"), now().UnixMicro())
			w.later(`insert into input (session, client_id, id, pid, mode, state, text, at) values ('a', ?, ?, 1, 'steer', ?, 'x', 0)`, fmt.Sprint("x", i), id[:],
				[]string{"delivered", "admitted"}[i/890])
			if i%100 == 0 {
				w.later(`insert into kernel (id, owner, session, branch, node, workspace, python, state, reason, token, bundle, os_pid, pgid, leader, epoch, last_seq, used_at, created_at)
values (?, 'o', 'a', ?, 'n', '', '', 'ended', '', '', '', 0, 0, '', 0, 0, 0, ?)`, id.String(), branch, 1000+i)
				w.later(`insert into kernel_inbox (kernel, item, at) values (?, 'done:x', 0)`, id.String())
				w.later(`insert into content (id, size, bytes, payload) values (?, 1, ?, 1)`, id[:], []byte("x"))
				w.later(`insert into ledger_sum (session, provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, removed_at)
values (?, ?, ?, 1, 2, 3, 4, 5, 6, 7, 0, 1, ?)`, fmt.Sprint("gone", i), "p", "m", i)
			}
		}
		w.now()
		_, err := w.host.RunCell(t.Context(), "never", "c", wire.RunCell{Code: "1"})
		if code(err) != wire.NotFound || w.one(`select count(*) from neuron where id = 'me/session/never'`) != 1 {
			t.Fatalf("a stranger: %v", err)
		}
		w.until("a moment", func() bool { return time.Since(kept.Time()) > 20*time.Millisecond })
		spent := w.spent()
		w.must(w.keeper.Clear(t.Context()))
		if n := w.one(`select count(*) from content where payload = 1`); n != 10 {
			t.Errorf("%d payloads after one look", n)
		}
		w.must(w.keeper.Clear(t.Context()))
		for sql, want := range map[string]int64{
			`select count(*) from dead_letter`:                                              300,
			`select count(*) from event where session = 'a'`:                                300,
			`select max(seq) from event where session = 'a'`:                                1899,
			`select min(seq) from event where session = 'a'`:                                1600,
			`select count(*) from input where session = 'a' and state = 'admitted'`:         10,
			`select count(*) from input where session = 'a' and state <> 'admitted'`:        300,
			`select count(*) from kernel where session = 'a'`:                               3,
			`select count(*) from kernel_inbox`:                                             0,
			`select count(distinct session) from ledger_sum where session <> ''`:            2,
			`select count(*) from ledger_sum where session = '' and cost = 49`:              1,
			`select count(*) from content where payload = 1`:                                1,
			`select count(*) from neuron where id = 'me/session/never'`:                     0,
			`select count(*) from turn where neuron not in (select key from neuron)`:        0,
			`select count(*) from input where session = 'a' and client_id = 'x600'`:         1,
			`select count(*) from ledger_sum where session in ('gone800', 'gone700')`:       2,
			`select count(*) from neuron n join process p on n.id = 'me/process/' || p.pid`: 2,
			`select count(*) from neuron n join session s on n.id = 'me/session/' || s.id`:  2,
		} {
			if n := w.one(sql); n != want {
				t.Errorf("%s: %d, want %d", sql, n, want)
			}
		}
		if w.spent() != spent {
			t.Errorf("spent\n%swas\n%s", w.spent(), spent)
		}
		if w.rowsOf("b") != b {
			t.Error("another session was touched")
		}
		if !strings.Contains(w.logged(), "too many dead letters") {
			t.Error("nobody was told that dead letters went")
		}
		// Who was behind what is kept is told from where on it is.
		events, first, last, err := w.host.Events(t.Context(), "a", 5, 1)
		if err != nil || first != 1600 || last != 1899 || len(events) != 1 || events[0].Seq != 1600 {
			t.Errorf("events %v, first %d, last %d, %v", events, first, last, err)
		}
		// The last number is still known: the next event follows it.
		w.restart()
		_, err = w.host.Close(t.Context(), "a")
		w.must(err)
		if n := w.one(`select max(seq) from event where session = 'a'`); n != 1900 {
			t.Errorf("the next event is %d", n)
		}
	})
}

// S-62: only places that this node holds are cleared, and what has none by one node.
func TestOnlyOwnPlaces(t *testing.T) {
	w := onSQLite(t)
	w.run("a", "talk", "i1")
	w.stop()
	w.change = func(o *retention.Options) {
		o.Holds = func(neuronPlace) bool { return false }
		o.Bounds.DeadLetters = 1
	}
	w.start()
	for range 3 {
		id := ident.New(now())
		w.exec(`insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, 'c', '', 1, 0)`, id[:], []byte("{}"))
	}
	w.must(w.keeper.Clear(t.Context()))
	if n := w.one(`select count(*) from dead_letter`); n != 3 {
		t.Errorf("%d dead letters", n)
	}
	list, _, err := w.keeper.Prune(t.Context(), wire.Prune{Before: time.Now().Add(time.Hour)})
	if err != nil || len(list) != 1 || list[0].State != wire.Elsewhere || w.one(`select count(*) from session where state = 'open'`) != 1 {
		t.Errorf("pruned %+v, %v", list, err)
	}
}

// reads counts the queries.
type reads struct {
	neuron.Reader
	n atomic.Int64
}

func (r *reads) Query(ctx context.Context, sql string, args []any, row func(scan func(...any) error) error) error {
	r.n.Add(1)
	return r.Reader.Query(ctx, sql, args, row)
}

// S-62: strangers are found among many neurons with few questions, whatever they are called; a neuron with its row stays, and so
// does a stranger of another node.
func TestStrangersAmongMany(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		var r reads
		var own retention.Options
		elsewhere := neuron.PlaceOf("elsewhere")
		w.change = func(o *retention.Options) {
			o.Bounds.Strangers = time.Millisecond
			o.Holds = func(p neuronPlace) bool { return p != elsewhere }
			own = *o
			r.Reader, own.Reader = o.Reader, &r
		}
		w.restart()
		w.run("a", "talk", "i1")
		_, err := w.host.RunCell(t.Context(), "never", "c", wire.RunCell{Code: "1"})
		if code(err) != wire.NotFound {
			t.Fatal(err)
		}
		const like = `insert into neuron (key, id, place, in_seq, out_seq, tallies, marks, latest, state_alias, state)
select ?, ?, place, in_seq, out_seq, tallies, marks, latest, state_alias, state from neuron where id = 'me/session/a'`
		for i := range int64(5000) {
			w.later(like, 10_000+i, fmt.Sprint("me/client/", i))
		}
		strangers := []string{"me/session/odd", "me/process/77", "me/process/seven", "me/process/99999999999999999999", "me/process/-1", "me/process/7e1"}
		for i, id := range strangers {
			w.later(like, 20_000+int64(i), id)
		}
		w.later(like, int64(30_000), "you/session/odd")
		w.later(`insert into neuron (key, id, place, in_seq, out_seq, tallies, marks, latest, state_alias, state)
select ?, ?, ?, in_seq, out_seq, tallies, marks, latest, state_alias, state from neuron where id = 'me/session/a'`, int64(40_000), "me/session/elsewhere", int64(elsewhere))
		w.now()
		had := w.one(`select count(*) from neuron`)
		w.must(retention.New(own).Clear(t.Context()))
		if n := r.n.Load(); n > 60 {
			t.Errorf("%d questions for %d neurons", n, had)
		}
		for _, id := range append(strangers, "me/session/never") {
			if n := w.one(`select count(*) from neuron where id = ?`, id); n != 0 {
				t.Errorf("%s stays", id)
			}
		}
		if n := w.one(`select count(*) from neuron`); n != had-int64(len(strangers))-1 {
			t.Errorf("%d neurons of %d", n, had)
		}
	})
}

// S-62: a node without a place reads nothing at all to clear away.
func TestNodeWithoutPlaces(t *testing.T) {
	w := onSQLite(t)
	var r reads
	var own retention.Options
	w.change = func(o *retention.Options) {
		own = *o
		r.Reader, own.Reader = o.Reader, &r
		own.Holds = func(neuronPlace) bool { return false }
	}
	w.restart()
	w.must(retention.New(own).Clear(t.Context()))
	if n := r.n.Load(); n != 0 {
		t.Errorf("%d questions", n)
	}
}
