package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/internal/agent/model/script"
	"soma/internal/agent/price"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/process"
	"soma/internal/process/retention"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
	"soma/wire"
)

// m runs the tests and then ends the server, before goroutines are counted.
type m struct{ *testing.M }

func (m m) Run() int { return postgrestest.Main(m.M) }

func TestMain(t *testing.M) { goleak.VerifyTestMain(m{t}) }

const patience = pykerneltest.Patience

// stage finds scripts by the name of the model.
type stage map[string]string

func (s stage) Find(_ context.Context, name string) (process.Model, error) {
	text, ok := s[name]
	if !ok {
		return process.Model{}, wire.Errorf(wire.NoModel, "no model %s", name)
	}
	p, err := script.Parse(name, []byte(text))
	return process.Model{Vendor: "shop", Model: name, Provider: p}, err
}

// cutStore commits nothing any more once it is cut, as if the daemon had been killed.
type cutStore struct {
	neuron.Store
	left  atomic.Int64
	done  atomic.Int64
	onCut func()
}

const never = 1 << 40

func (s *cutStore) Commit(ctx context.Context, fence neuron.Fence, group []*neuron.Record) error {
	if s.left.Add(-1) < 0 {
		if s.onCut != nil {
			s.onCut()
		}
		return fmt.Errorf("%w: cut off by the test", neuron.ErrStoreFailed)
	}
	s.done.Add(1)
	return s.Store.Commit(ctx, fence, group)
}

// world is one home with real parts: store, engine, processes with scripts for models, python kernels, retention.
type world struct {
	t      testing.TB
	dir    string
	folder string
	stage  stage
	open   func(sequences []neuron.Sequence) (neuron.Store, error)
	change func(*retention.Options)
	logMu  sync.Mutex
	log    bytes.Buffer

	store  *cutStore
	engine *engine.Engine
	host   *process.Host
	sup    *supervise.Supervisor
	keeper *retention.Keeper
	rows   []neuron.Op // of later
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) {
		dsn := postgrestest.Database(t)
		fn(t, newWorld(t, func(seq []neuron.Sequence) (neuron.Store, error) {
			return postgres.Open(t.Context(), dsn, postgres.Options{Sequences: seq})
		}))
	})
}

func onSQLite(t testing.TB) *world {
	path := filepath.Join(t.TempDir(), "soma.db")
	return newWorld(t, func(seq []neuron.Sequence) (neuron.Store, error) {
		return sqlite.Open(t.Context(), path, sqlite.Options{Sequences: seq})
	})
}

func newWorld(t testing.TB, open func([]neuron.Sequence) (neuron.Store, error)) *world {
	w := &world{t: t, dir: t.TempDir(), folder: t.TempDir(), open: open, stage: stage{
		"talk": "name: talk\nsteps: [{say: hello, usage: {input: 10, output: 5}}]\n",
		"work": `
name: work
steps:
  - calls: [{python: 'print("x" * 2000)'}, {tool: none, arguments: {}}]
    usage: {input: 100, cache_read: 20, output: 7}
  - say: done
    usage: {input: 130, output: 3}
`,
		"wait": "name: wait\nsteps: [{say: hm}]\n",
		"long": "name: long\nsteps: [{say: " + strings.Repeat("word ", 20_000) + "}]\n",
	}}
	w.start()
	t.Cleanup(func() {
		if w.keeper == nil {
			w.start()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := w.sup.EndAll(ctx); err != nil {
			t.Errorf("end all: %v", err)
		}
		w.stop()
	})
	return w
}

// Write takes the log.
func (w *world) Write(b []byte) (int, error) {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	return w.log.Write(b)
}

func (w *world) logged() string {
	w.logMu.Lock()
	defer w.logMu.Unlock()
	return w.log.String()
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (w *world) start() {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	s, err := w.open(append(process.Sequences(), neuron.Sequence{
		Name: pykernel.FrameSequence, Last: pykernel.FrameSequenceLast, Save: pykernel.FrameSequenceSave,
	}))
	w.must(err)
	w.store = &cutStore{Store: s}
	w.store.left.Store(never)
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
	w.must(os.MkdirAll(w.spool(), 0o700))
	prices, err := price.Parse("test", []byte("prices:\n  - {provider: shop, prefix: work, valid_from: 2000-01-01, input: 1, cache_read: 0.1, cache_write: 1, output: 3}\n"))
	w.must(err)
	w.host = process.New(process.Options{
		Owner: wire.Owner, Node: "local", Reader: s, Models: w.stage, Prices: prices, Python: pykerneltest.Python, MaxConcurrent: 4,
		Spool: w.spool(), Live: func(string, string, any) {}, Now: now, Log: log,
	})
	w.engine, err = engine.New(engine.Options{
		Store: w.store, Kinds: w.host.Kinds(), Types: w.host.Aliases(), Now: now, Log: log,
		Adapters:  map[string]neuron.Adapter{process.InferenceKind: w.host.Adapter()},
		Committed: w.committed, Fatal: func(err error) {
			if w.store.left.Load() > never/2 {
				w.t.Errorf("engine: %v", err)
			}
		},
	})
	w.must(err)
	w.host.Bind(w.engine)
	w.must(w.host.Load(ctx))
	w.sup, err = supervise.New(supervise.Options{
		RunDir: filepath.Join(w.dir, "run"), BundleDir: filepath.Join(w.dir, "bundles"), Node: "local", Neurons: w.engine, Reader: s,
		Env: pykerneltest.Env, Log: log, Now: now,
	})
	w.must(err)
	o := retention.Options{
		Owner: wire.Owner, Reader: s, Neurons: w.engine, Sessions: w.host, RunDir: filepath.Join(w.dir, "run"), Every: -1, Now: now, Log: log,
	}
	if w.change != nil {
		w.change(&o)
	}
	w.keeper = retention.New(o)
	w.must(w.sup.Start(ctx))
	w.must(w.engine.Start(ctx))
	if several, ok := s.(*postgres.Store); ok { // this node is alone, and takes all places
		taken, err := several.Take(ctx, w.engine.Fence(), neuron.AllPlaces())
		w.must(err)
		w.must(w.engine.Gain(ctx, taken))
	}
	w.must(w.host.Start(ctx))
	w.must(w.keeper.Start(ctx))
}

func (w *world) spool() string { return filepath.Join(w.dir, "spool") }

func (w *world) stop() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	w.must(w.keeper.Stop(ctx))
	w.must(w.host.Stop(ctx))
	w.must(w.engine.Stop(ctx))
	w.must(w.sup.Stop(ctx))
	w.must(w.store.Close())
	w.keeper = nil
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func (w *world) committed(group []*neuron.Record) {
	for _, r := range group {
		for _, op := range r.Ops {
			w.host.Committed(op)
		}
		w.sup.Committed(r.Ops)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.logged())
	}
}

// until waits until ok; there is nothing to wait on for rows that go.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end.C:
			w.t.Fatalf("%s did not come\n%s", what, w.logged())
		}
	}
}

// run lets agents of a session work an input through; each ends with it.
func (w *world) run(session, model string, inputs ...string) {
	w.t.Helper()
	_, err := w.host.Open(w.t.Context(), session, wire.OpenSession{Workspace: w.folder, Model: model})
	w.must(err)
	for _, in := range inputs {
		st, err := w.host.Admit(w.t.Context(), session, in, wire.Input{Text: "do " + in})
		w.must(err)
		w.until("the end", func() bool {
			p, err := w.host.Process(w.t.Context(), st.PID)
			w.must(err)
			return p.EndedAt != nil
		})
	}
	w.calm(session)
}

// calm waits until nothing of a session runs or waits.
func (w *world) calm(session string) {
	w.t.Helper()
	w.until("calm", func() bool {
		return w.one(`select count(*) from kernel where session = ? and state <> 'ended'`, session)+
			w.one(`select (select count(*) from outbox) + (select count(*) from execution)`) == 0
	})
}

// py runs cells in a session without an agent; its python kernel lives on.
func (w *world) py(session string, cells ...string) {
	w.t.Helper()
	_, err := w.host.Open(w.t.Context(), session, wire.OpenSession{Kind: wire.SessionPy, Workspace: w.folder})
	w.must(err)
	for i, code := range cells {
		c, err := w.host.RunCell(w.t.Context(), session, fmt.Sprint("c", i), wire.RunCell{Code: code})
		w.must(err)
		w.until("a cell", func() bool {
			c, err := w.host.Cell(w.t.Context(), c.ID)
			w.must(err)
			return c.EndedAt != nil
		})
	}
}

func (w *world) one(sql string, args ...any) (n int64) {
	w.t.Helper()
	w.must(w.store.Query(context.WithoutCancel(w.t.Context()), sql, args, func(scan func(...any) error) error { return scan(&n) }))
	return n
}

// tables are all that the store has but those of the instance itself.
var tables = []string{
	"neuron", "turn", "seen", "outbox", "dead_letter", "execution", "content", "connection", "call", "call_part", "session", "branch",
	"message", "input", "process", "tool_call", "ledger", "ledger_sum", "cell", "event", "kernel", "kernel_frame", "kernel_inbox", "kernel_call",
	"job", "cell_trace", "shell_command",
}

// counts returns the rows of each table.
func (w *world) counts() map[string]int64 {
	w.t.Helper()
	m := map[string]int64{}
	for _, table := range tables {
		m[table] = w.one(`select count(*) from ` + table)
	}
	return m
}

// rowsOf is all that is stored of a session, row by row.
func (w *world) rowsOf(session string) string {
	w.t.Helper()
	var lines []string
	for name, sql := range map[string]string{
		"session": `select id, state, created_at from session where id = ?`, "branch": `select id, name, created_at from branch where session = ?`,
		"message":   `select m.seq, m.id, m.body from message m join branch b on b.id = m.branch where b.session = ?`,
		"content":   `select c.id, c.size, c.bytes from content c join message m on m.content = c.id join branch b on b.id = m.branch where b.session = ?`,
		"output":    `select c.id, c.size, c.bytes from content c join cell x on x.content = c.id where x.session = ?`,
		"input":     `select client_id, state, text from input where session = ?`,
		"process":   `select pid, state, cost from process where session = ?`,
		"tool_call": `select t.id, t.state, t.status from tool_call t join process p on p.pid = t.pid where p.session = ?`,
		"ledger":    `select id, input, cost from ledger where session = ?`, "cell": `select id, status, body from cell where session = ?`,
		"event": `select seq, kind, body from event where session = ?`, "kernel": `select id, state, created_at from kernel where session = ?`,
		"neuron": `select n.id, n.in_seq, n.state from neuron n join process p on n.id = 'me/process/' || p.pid where p.session = ?`,
		"turn":   `select t.seq, t.delivery_id, t.incoming from turn t join neuron n on n.key = t.neuron where n.id = 'me/session/' || ?`,
		"turns":  `select t.seq, t.delivery_id, t.incoming from turn t join neuron n on n.key = t.neuron join process p on n.id = 'me/process/' || p.pid where p.session = ?`,
	} {
		w.must(w.store.Query(w.t.Context(), sql, []any{session}, func(scan func(...any) error) error {
			var a, b, c any
			err := scan(&a, &b, &c)
			lines = append(lines, fmt.Sprintf("%s %v %v %v", name, a, b, c))
			return err
		}))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// spent is what everything has cost, without how much of it is of removed sessions.
func (w *world) spent() string {
	w.t.Helper()
	list, err := w.keeper.Spent(w.t.Context())
	w.must(err)
	var b strings.Builder
	for _, s := range list {
		s.Removed = 0
		fmt.Fprintf(&b, "%+v\n", s)
	}
	return b.String()
}

func (w *world) remove(session string, r wire.Remove) (wire.Removal, error) {
	return w.keeper.Remove(w.t.Context(), session, r)
}

func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// exec writes rows behind everybody's back.
type exec struct {
	sql  string
	args []any
}

func (e exec) SQL() string { return e.sql }
func (e exec) Args() []any { return e.args }

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.must(w.engine.Write(w.t.Context(), 0, exec{sql, args}))
}

// later gathers such rows, and now writes them in one commit.
func (w *world) later(sql string, args ...any) { w.rows = append(w.rows, exec{sql, args}) }

func (w *world) now() {
	w.t.Helper()
	w.must(w.engine.Write(w.t.Context(), 0, w.rows...))
	w.rows = nil
}
