package process_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

var writes = regexp.MustCompile(`^\s*(?:insert into|update|delete from) (\w+)`)

// writer checks who wrote the rows of a committed record: in every test of this package (M-02, M-03).
func (w *world) writer(r *neuron.Record) {
	for _, op := range r.Ops {
		if strings.Contains(fmt.Sprintf("%T", op), "process_test.") {
			continue // a test's own
		}
		m := writes.FindStringSubmatch(strings.ToLower(op.SQL()))
		if m == nil {
			w.t.Errorf("cannot see what %T writes: %s", op, op.SQL())
			continue
		}
		kind := ""
		if r.Turn != nil {
			kind = r.Neuron.Kind
		}
		w.mu.Lock()
		if w.wrote == nil {
			w.wrote = map[string]map[string]int{}
		}
		if w.wrote[m[1]] == nil {
			w.wrote[m[1]] = map[string]int{}
		}
		w.wrote[m[1]][kind]++
		w.mu.Unlock()
		switch m[1] {
		case "message": // appending is its process's alone
			if kind != process.ProcessKind {
				w.t.Errorf("%T of branch %x is written by %q", op, op.Args()[0], r.Neuron)
			}
			branch := op.Args()[0]
			if n := w.one(`select count(*) from process where branch = ? and 'me/process/' || pid = ?`, branch, r.Neuron.String()); n != 1 {
				w.t.Errorf("%s appends to a branch that is not its own", r.Neuron)
			}
		case "input", "cell", "ledger", "event", "tool_call":
			if kind != process.ProcessKind && kind != process.SessionKind {
				w.t.Errorf("%T is written without a turn of its session or process", op)
			}
		case "process": // one lives on a branch
			if kind == "" {
				w.t.Errorf("%T is written without a turn", op)
			}
			if m[0] == "insert into process" {
				if n := w.one(`select count(*) from process where branch = ? and ended_at is null`, op.Args()[3]); n > 1 {
					w.t.Errorf("%d processes live on one branch", n)
				}
			}
		case "session", "branch": // membership is the session's
			if kind != process.SessionKind {
				w.t.Errorf("%T is written by %q", op, r.Neuron)
			}
		}
	}
}

// M-01, M-02, M-03: an owner has sessions, a session its branch, a branch one live process and one live python kernel at most;
// rows are written by turns alone, branches by their session, messages by the branch's process. An input goes to the session's
// branch, to whichever process has it.
func TestWhoWrites(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls: [{python: '1 + 1'}, {tool: none, arguments: {}}, {python: 'import os; os._exit(1)'}]
  - calls: [{python: '2 + 2'}]
  - say: 'done'
`}, withPython)
	single := func() {
		t.Helper()
		for what, sql := range map[string]string{
			"live processes": `select branch from process where ended_at is null group by branch having count(*) > 1`,
			"live kernels":   `select branch from kernel where state <> 'ended' group by branch having count(*) > 1`,
			"branches":       `select session from branch group by session having count(*) > 1`,
		} {
			if n := w.one(`select count(*) from (` + sql + `)`); n != 0 {
				t.Errorf("%d times several %s", n, what)
			}
		}
	}
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	single()
	st := w.admit("s", "b", "y") // spawns the next process of the branch
	// It may have worked its input through already; then there is nothing to interrupt.
	_, err := w.host.Signal(t.Context(), st.PID, "stop", wire.Signal{Signal: wire.Interrupt})
	var ended *wire.Error
	if !errors.As(err, &ended) || ended.Code != wire.ProcessEnded {
		w.must(err)
	}
	w.kill()
	w.admit("s", "c", "z")
	single()
	w.py("p")
	w.run("p", "a", "1")
	w.await("rest", func() bool {
		return w.one(`select count(*) from execution`)+w.one(`select count(*) from cell where state = 'started'`) == 0
	})
	single()
	_, err = w.host.Close(t.Context(), "s")
	w.must(err)
	for what, sql := range map[string]string{
		"sessions of another owner": `select 1 from session where owner <> 'me'`,
		"strange neurons": `select 1 from neuron where id not in (select 'me/session/' || id from session)
			and id not in (select 'me/process/' || pid from process)`,
		"sessions that are no neuron":       `select 1 from session where 'me/session/' || id not in (select id from neuron)`,
		"processes that are no neuron":      `select 1 from process where 'me/process/' || pid not in (select id from neuron)`,
		"processes outside their branch":    `select 1 from process p where not exists (select 1 from branch b where b.id = p.branch and b.session = p.session)`,
		"messages outside the branch":       `select 1 from message where branch not in (select branch from session where id = 's')`,
		"kernels outside their session":     `select 1 from kernel k where not exists (select 1 from branch b where b.id = k.branch and b.session = k.session)`,
		"processes of a session of kind py": `select 1 from process where session = 'p'`,
	} {
		if n := w.one(`select count(*) from (` + sql + `)`); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, table := range []string{"message", "input", "cell", "ledger", "event", "session", "branch"} {
		if len(w.wrote[table]) == 0 {
			t.Errorf("nothing wrote %s: %v", table, w.wrote)
		}
	}
	if w.wrote["kernel"][""] == 0 {
		t.Errorf("no write without a turn was seen: %v", w.wrote)
	}
}
