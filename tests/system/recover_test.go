//go:build crash

package system_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"soma/internal/crash"
	"soma/internal/store/sqlite"
	"soma/wire"
)

// With recover: hold a process whose inference a crash cut off is blocked as interrupted and says so; resumed, it goes on to
// the end that it has without a death. The lost attempt is told of, has its row, and nothing of it is in the transcript.
// K-04, K-32
func TestHeldAfterACrash(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	held, noted := false, false
	tr := trial{point: crash.StreamMid, at: 2, settings: []string{"recover: hold"}, extra: extraAt(crash.StreamMid, 2)}
	tr.event = func(ctx context.Context, k *work, e wire.Event) error {
		switch e.Kind {
		case wire.StepFailed:
			var b wire.StepFailedEvent
			if err := json.Unmarshal(e.Body, &b); err != nil || b.Step != 2 || b.Attempt != 1 {
				return errors.Join(err, fmt.Errorf("the lost attempt is told of as %s", e.Body))
			}
		case wire.NoteAdded:
			noted = true
			p, err := k.w.client.Process(ctx, k.pids[0])
			if err != nil {
				return err
			}
			if held = p.State.State == wire.Blocked && p.Reason == "interrupted"; !held {
				return fmt.Errorf("the process is %+v", p.State)
			}
			if _, err := k.w.client.Signal(ctx, k.pids[0], "go-on", wire.Resume); err != nil {
				return err
			}
		case wire.StepEnded:
			var b wire.StepEndedEvent
			if err := json.Unmarshal(e.Body, &b); err != nil {
				return err
			}
			want := 1
			if b.Step == 2 && e.PID == k.pids[0] {
				want = 2
			}
			if b.Attempt != want || b.Message.Attempt != want {
				return fmt.Errorf("step %d was answered by attempt %d", b.Step, b.Attempt)
			}
		}
		return nil
	}
	res, err := tr.run(t, bin)
	switch {
	case err != nil:
		t.Fatal(err)
	case !held || !noted || res.deaths != 1:
		t.Fatalf("held %v, noted %v, deaths %d", held, noted, res.deaths)
	case res.first.hash != calm.first.hash:
		t.Fatal(firstDifference(calm.first.entries, res.first.entries))
	}
}

// later is a second migration, as a later build would have it.
const later = `create table later (session text not null, seq integer not null) strict;
insert into later select session, seq from event;
alter table session add column later integer not null default 7;
`

// The daemon dies inside a later migration of a home that has work in it: nothing of the migration is left; the next daemon
// makes it whole, the old work is as it was, and new work runs.
// N-33
func TestDeathInALaterMigration(t *testing.T) {
	bin := build(t)
	calm, err := trial{}.run(t, bin)
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, sqlite.Migrations()); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d_later.sql", len(names)+1)), []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	var before outcome
	var old *work
	tr := trial{point: crash.MigrateMid, at: 1, extra: map[int]attempts{}}
	tr.prepare = func(ctx context.Context, w *world) error {
		if old, err = w.newWork("old", false); err != nil {
			return err
		}
		if err = w.start(ctx); err != nil {
			return err
		}
		if err = old.run(ctx); err != nil {
			return err
		}
		if before, err = old.finish(ctx); err != nil {
			return err
		}
		w.works = slices.DeleteFunc(w.works, func(k *work) bool { return k == old }) // it is done
		w.env = append(w.env, "SOMA_MIGRATIONS="+dir)
		return w.stop(ctx)
	}
	tr.died = func(k *work) error {
		m, err := takeImage(k.w.home, k.w.dir)
		if err != nil {
			return err
		}
		defer m.close()
		number, there, err := m.schema(t.Context(), "later")
		if err != nil || there || number != fmt.Sprint(len(names)) {
			return errors.Join(err, fmt.Errorf("after the death the schema is %s, the table is there: %v", number, there))
		}
		return nil
	}
	res, err := tr.run(t, bin)
	switch {
	case err != nil:
		t.Fatal(err)
	case res.deaths != 1:
		t.Fatalf("the daemon died %d times", res.deaths)
	case before.hash != calm.first.hash || res.first.hash != calm.first.hash:
		t.Fatal("the transcripts differ")
	}
	m, err := takeImage(old.w.home, old.w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	rows, err := m.events(t.Context(), old.name)
	if err != nil {
		t.Fatal(err)
	}
	if number, there, err := m.schema(t.Context(), "later"); err != nil || !there || number != fmt.Sprint(len(names)+1) {
		t.Errorf("the schema is %s, the table is there: %v (%v)", number, there, err)
	}
	if err := m.none(t.Context(), "rows of the migration", `select count(*) from later having count(*) <> ?`, len(rows)); err != nil {
		t.Error(err)
	}
}
