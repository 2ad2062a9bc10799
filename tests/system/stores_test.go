//go:build crash

package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"soma/client"
	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
	"soma/message"
	"soma/wire"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// soma runs the program to its end in the world's environment.
func (w *world) soma(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, w.bin, args...)
	cmd.Dir, cmd.Env = w.dir, append(w.env[:len(w.env):len(w.env)], env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("soma %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// throughPostgres moves the store of a home, whose daemon is gone, into a database and back into the home.
func (w *world) throughPostgres(ctx context.Context, dsn string) error {
	if _, err := w.soma(ctx, nil, "store", "copy", "home", dsn); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(w.home.Database()+suffix, filepath.Join(w.dir, "first.db"+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	_, err := w.soma(ctx, nil, "store", "copy", dsn, "home")
	return err
}

// journals reads both journals of the neurons of a work.
func (k *work) journals(ctx context.Context) (string, error) {
	var all []wire.Journal
	for _, pid := range k.pids {
		for _, feed := range []string{wire.FeedIn, wire.FeedOut} {
			j, err := k.w.client.Journal(ctx, fmt.Sprintf("%s/process/%d", wire.Owner, pid), feed, 0, wire.MaxLimit)
			if err != nil {
				return "", err
			}
			all = append(all, j)
		}
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// lost puts a delivery that no handler takes into the outbox of a home whose daemon has stopped.
func (w *world) lost(ctx context.Context) error {
	store, err := sqlite.Open(ctx, w.home.Database(), sqlite.Options{})
	if err != nil {
		return err
	}
	fence, err := store.Claim(ctx, "local")
	if err == nil {
		target := neuron.ID{Owner: wire.Owner, Kind: "lost", Key: "a"}
		at := time.Now().UTC().Truncate(time.Microsecond)
		id := ident.New(at)
		d := neuron.Delivery{ID: id, Correlation: id, Alias: "lost.v1", Payload: json.RawMessage(`{}`), Target: target, At: at}
		err = store.Commit(ctx, fence, []*neuron.Record{{
			Place: neuron.PlaceOf(target.String()), Outbox: []neuron.OutboxRow{{Delivery: d, Place: neuron.PlaceOf(target.String()), Due: at}},
		}})
	}
	return errors.Join(err, store.Close())
}

// A store with a history goes to PostgreSQL and back: transcripts, events, journals, ledger, a refused input and a dead letter are
// the same, and followers by an old cursor begin anew.
func TestStoreWithAHistoryIsCopied(t *testing.T) {
	bin := build(t)
	dsn := postgrestest.Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w := newWorld(t, bin)
	k, err := w.newWork("old", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.start(ctx), k.run(ctx)); err != nil {
		t.Fatal(err)
	}
	var refused *wire.Error
	if _, err := w.client.Signal(ctx, k.pids[0], "late", wire.Pause); !errors.As(err, &refused) {
		t.Fatalf("a signal to a process that has ended: %v", err)
	}
	if err := errors.Join(w.stop(ctx), w.lost(ctx), w.start(ctx)); err != nil {
		t.Fatal(err)
	}
	type state struct {
		outcome
		journals string
		dead     []wire.DeadLetter
		status   wire.Status
	}
	look := func() (s state) {
		t.Helper()
		var err error
		if s.outcome, err = k.finish(ctx); err != nil {
			t.Fatal(err)
		}
		if s.journals, err = k.journals(ctx); err != nil {
			t.Fatal(err)
		}
		for len(s.dead) == 0 && ctx.Err() == nil {
			page, err := w.client.DeadLetters(ctx, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			s.dead = page.Items
		}
		if s.status, err = w.client.Status(ctx); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := look()
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.throughPostgres(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	if err := w.start(ctx); err != nil {
		t.Fatal(err)
	}
	after := look()
	if before.hash != after.hash || !slices.EqualFunc(before.events, after.events, same) {
		t.Errorf("the transcript or the feed differs: %s", firstDifference(before.entries, after.entries))
	}
	if before.journals != after.journals {
		t.Errorf("the journals differ:\n%s\n%s", before.journals, after.journals)
	}
	if fmt.Sprint(before.dead) != fmt.Sprint(after.dead) || len(after.dead) != 1 {
		t.Errorf("the dead letters are %v and %v", before.dead, after.dead)
	}
	if before.status.Generation == after.status.Generation {
		t.Error("both stores have one generation")
	}
	reset := false
	_, err = w.client.Follow(ctx, k.name, wire.Cursor{Generation: before.status.Generation, Seq: 2}, func(f client.Frame) error {
		reset = f.Reset != nil
		return client.ErrEnough
	})
	if err != nil || !reset {
		t.Errorf("a follower of the old store is told of no reset (%v)", err)
	}
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := takeImage(w.home, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if err := errors.Join(m.consistent(ctx), k.check(ctx, m, after.outcome, map[int]attempts{})); err != nil {
		t.Error(err)
	}
}

// A daemon dies in the middle of work; its store goes to PostgreSQL and back, and the next daemon goes on with what was under way to the end
// that it has without a death.
func TestCopiedStoreGoesOn(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	table := newTally()
	t.Run("points", func(t *testing.T) {
		for point, at := range map[crash.Name]int{
			crash.AdmitCommitted: 1, crash.DispatchCommitted: 1, crash.StreamMid: 1, crash.AnswerBeforeCommit: 1, crash.EndCommitted: 1,
		} {
			dsn := postgrestest.Database(t)
			tr := trial{point: point, at: at, extra: extraAt(point, at)}
			tr.died = func(k *work) error { return k.w.throughPostgres(t.Context(), dsn) }
			trialOf(t, bin, tr, calm, table)
		}
	})
	t.Logf("hits per point:\n%v", table)
}

// A python kernel that lives does not come along with a copy: its cell's result is unknown, the process is told that the names
// are gone, and the kernel's process ends.
func TestKernelsStayBehind(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	dsn := postgrestest.Database(t)
	res, err := trial{point: crash.CellMid, at: 1, waits: true, died: func(k *work) error {
		out, err := k.w.soma(t.Context(), nil, "store", "copy", "home", dsn)
		if err == nil && !strings.Contains(out, "1 python kernel does not come along: the names in it are lost, and the result of 1 running cell is unknown\n") {
			err = errors.New(out)
		}
		if err == nil {
			err = os.Rename(k.w.home.Database(), filepath.Join(k.w.dir, "first.db"))
		}
		if err == nil {
			_, err = k.w.soma(t.Context(), nil, "store", "copy", dsn, "home")
		}
		return err
	}}.run(t, bin)
	if err != nil {
		t.Fatal(err)
	}
	goesOnUnknown(t, calm, res)
}

// goesOnUnknown checks a run whose cell c was lost.
func goesOnUnknown(t *testing.T, calm, res result) {
	t.Helper()
	want, got := calm.first.entries, res.first.entries
	unknown := slices.IndexFunc(want, func(e entry) bool { return strings.HasSuffix(e.Text, "\nworking") })
	if !slices.EqualFunc(want[:unknown], got[:unknown], equal) {
		t.Errorf("before the unknown result: %s", firstDifference(want[:unknown], got[:unknown]))
	}
	if e := got[unknown]; e.Role != message.Tool || !strings.Contains(e.Text, "result unknown") {
		t.Errorf("the result of the lost cell is %+v", e)
	}
	if e := got[unknown+3]; !strings.Contains(e.Text, "names of the earlier kernel are gone") || !strings.Contains(e.Text, "NameError") {
		t.Errorf("the result after that is %+v", e)
	}
	if len(got) != len(want) || got[len(got)-1].Text != want[len(want)-1].Text {
		t.Errorf("the end is %+v", got[unknown:])
	}
}

// A backup that is made while a cell runs is restored over a store that went on to the end: the process goes on from where it was
// then, the cell's result is unknown, and the end is the same.
func TestRestoredStoreGoesOn(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w := newWorld(t, bin)
	k, err := w.newWork("w0", true)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, "backup")
	var shown int
	k.output = func(k *work, o wire.OutputEvent) error {
		if !strings.Contains(o.Text, "working") || shown > 0 {
			return nil
		}
		shown = len(k.shown)
		if _, err := w.soma(ctx, nil, "backup", file); err != nil {
			return err
		}
		return k.open()
	}
	if err := errors.Join(w.start(ctx), k.run(ctx)); err != nil {
		t.Fatal(err)
	}
	if out, err := w.soma(ctx, nil, "restore", "--replace", file); err == nil || !strings.Contains(out, "end it with soma stop") {
		t.Errorf("restore beside a daemon: %v %s", err, out)
	}
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	if out, err := w.soma(ctx, nil, "restore", file); err == nil || !strings.Contains(out, "with --replace the backup takes its place") {
		t.Errorf("restore over a store: %v %s", err, out)
	}
	out, err := w.soma(ctx, nil, "restore", "--replace", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"restored 1 session and ", "1 process has not ended", "the result of 1 running cell is unknown", "is kept as " + w.home.Database() + ".replaced-"} {
		if !strings.Contains(out, want) {
			t.Errorf("restore says %s, and not %q", out, want)
		}
	}
	if err := w.start(ctx); err != nil {
		t.Fatal(err)
	}
	// The second input came after the backup: it is given again.
	k.pids, k.shown = k.pids[:1], k.shown[:shown:shown]
	pid := k.pids[0]
	if err := k.follow(ctx, func(e wire.Event) bool { return e.Kind == wire.ProcessExited && e.PID == pid }); err != nil {
		t.Fatal(err)
	}
	if err := k.admit(ctx, inputs[1].id, "now "+inputs[1].id); err != nil {
		t.Fatal(err)
	}
	pid = k.pids[1]
	if err := k.follow(ctx, func(e wire.Event) bool { return e.Kind == wire.ProcessExited && e.PID == pid }); err != nil {
		t.Fatal(err)
	}
	var res result
	if res.first, err = k.finish(ctx); err != nil {
		t.Fatal(err)
	}
	goesOnUnknown(t, calm, res)
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := takeImage(w.home, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if err := errors.Join(m.consistent(ctx), m.settled(ctx)); err != nil {
		t.Error(err)
	}
}

// The program dies at each point of its work on whole stores. What was there stays, what is not whole is never taken for a
// store or a backup, and the same command then does it.
func TestDeathAtWorkOnStores(t *testing.T) {
	bin := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	w := newWorld(t, bin)
	k, err := w.newWork("w0", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.start(ctx), k.run(ctx)); err != nil {
		t.Fatal(err)
	}
	before, err := k.finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	file, dsn := filepath.Join(w.dir, "backup"), postgrestest.Database(t)
	dies := func(point string, args ...string) {
		t.Helper()
		var exit *exec.ExitError
		if out, err := w.soma(ctx, []string{"SOMA_CRASH=" + point}, args...); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("%s: %v %s", point, err, out)
		}
	}
	must := func(args ...string) {
		t.Helper()
		if _, err := w.soma(ctx, nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"backup.mid", "backup.mid:9", "backup.mid:25", "backup.written"} {
		dies(at, "backup", file)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a backup: %v", at, err)
		}
		if out, err := w.soma(ctx, nil, "restore", "--replace", file+".part"); err == nil {
			t.Errorf("%s: the rest is restored: %s", at, out)
		}
	}
	must("backup", file)
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"copy.mid", "copy.mid:20"} {
		for _, to := range []string{dsn, filepath.Join(w.dir, "other")} {
			dies(at, "store", "copy", "home", to)
			serve := []string{"SOMA_HOME=" + to}
			if to == dsn {
				serve = []string{"SOMA_STORE=" + to}
			}
			if out, err := w.soma(ctx, serve, "serve"); err == nil || !strings.Contains(out, "run soma store copy again") {
				t.Errorf("%s: a daemon on the rest: %v %s", at, err, out)
			}
		}
	}
	must("store", "copy", "home", dsn)
	must("store", "copy", "home", filepath.Join(w.dir, "other"))

	was, err := os.ReadFile(w.home.Database())
	if err != nil {
		t.Fatal(err)
	}
	dies("restore.mid", "restore", "--replace", file)
	if is, err := os.ReadFile(w.home.Database()); err != nil || !bytes.Equal(is, was) {
		t.Errorf("the store was changed (%v)", err)
	}
	dies("restore.placed", "restore", "--replace", file)
	must("restore", "--replace", file)
	if err := w.start(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := k.finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if before.hash != after.hash || !slices.EqualFunc(before.events, after.events, same) {
		t.Errorf("the transcript differs: %s", firstDifference(before.entries, after.entries))
	}
	if err := w.stop(ctx); err != nil {
		t.Fatal(err)
	}
	hits, err := w.passed()
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range crash.OfStores() {
		t.Logf("%-16s %4d hits", point, hits[string(point)])
		if hits[string(point)] == 0 {
			t.Errorf("%s was never passed", point)
		}
	}
}

// A password in the arguments is refused and not shown.
func TestNoPasswordInArguments(t *testing.T) {
	bin := build(t)
	w := newWorld(t, bin)
	out, err := w.soma(t.Context(), nil, "store", "copy", "home", "postgres://me:verysecret@127.0.0.1/x")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 64 || strings.Contains(out, "verysecret") || !strings.Contains(out, "PGPASSFILE") {
		t.Errorf("%v %s", err, out)
	}
}
