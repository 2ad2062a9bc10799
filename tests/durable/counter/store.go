package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/store/postgres"
	"soma/internal/store/sqlite"
)

// Small are limits at which journals are cut and rows are written soon.
func Small() neuron.Limits {
	l := neuron.DefaultLimits()
	l.CheckpointTurn, l.JournalEntries, l.JournalBytes, l.DedupeWindow = 8, 16, 16<<10, 256
	l.BackoffMin, l.BackoffMax = time.Millisecond, 50*time.Millisecond
	return l
}

const table = "create table durable_note (id %s primary key, sum bigint not null);"

// Open opens the database of dsn: "sqlite:PATH", or what names one on PostgreSQL. lease is for the latter.
func Open(ctx context.Context, dsn string, limits neuron.Limits, lease time.Duration) (neuron.Store, error) {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		m, err := withNotes(sqlite.Migrations(), "blob")
		if err != nil {
			return nil, err
		}
		s, err := sqlite.Open(ctx, path, sqlite.Options{Migrations: m, Limits: limits})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	m, err := withNotes(postgres.Migrations(), "bytea")
	if err != nil {
		return nil, err
	}
	s, err := postgres.Open(ctx, dsn, postgres.Options{Migrations: m, Limits: limits, Lease: lease})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func withNotes(all fs.FS, bytes string) (fs.FS, error) {
	names, err := fs.Glob(all, "*.sql")
	if err != nil {
		return nil, err
	}
	m := fstest.MapFS{fmt.Sprintf("%04d_durable.sql", len(names)+1): {Data: fmt.Appendf(nil, table, bytes)}}
	for _, name := range names {
		data, err := fs.ReadFile(all, name)
		if err != nil {
			return nil, err
		}
		m[name] = &fstest.MapFile{Data: data}
	}
	return m, nil
}

// Noted returns what a delivery has come to; found is false when nothing is noted of it.
func Noted(ctx context.Context, r neuron.Reader, id ident.ID) (sum int64, found bool, err error) {
	err = r.Query(ctx, "select sum from durable_note where id = ?", []any{id[:]}, func(scan func(...any) error) error {
		found = true
		return scan(&sum)
	})
	return sum, found, err
}

// Check compares a database at rest with the sums that neurons must have come to: all deliveries and calls are settled, every
// journal has no gap, and tallies say how many entries there were.
func Check(ctx context.Context, s neuron.Store, want map[neuron.ID]int64) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for id, sum := range want {
		n, err := s.Neuron(ctx, id)
		if err != nil {
			return err
		}
		var got int64
		if n.StateAlias != "" {
			if err := json.Unmarshal(n.State, &got); err != nil {
				return err
			}
		}
		if got != sum {
			bad("%s has come to %d, want %d", id, got, sum)
		}
		for _, f := range []neuron.Feed{neuron.In, neuron.Out} {
			if err := feed(ctx, s, id, f); err != nil {
				errs = append(errs, err)
			}
		}
	}
	rows, err := s.Outbox(ctx, neuron.AllPlaces(), ident.ID{}, 10)
	if err != nil {
		return err
	}
	for _, r := range rows {
		bad("outbox row %s of %s to %s is left, attempts %d, due %s", r.ID, r.Caller, r.Target, r.Attempts, r.Due)
	}
	runs, err := s.Executions(ctx, neuron.AllPlaces(), ident.ID{}, 10)
	if err != nil {
		return err
	}
	for _, x := range runs {
		bad("execution %s of %s is left", x.ID, x.Neuron)
	}
	dead, err := s.DeadLetters(ctx, ident.ID{}, 10)
	if err != nil {
		return err
	}
	for _, d := range dead {
		bad("dead letter %s to %s: %s %s", d.Alias, d.Target, d.Code, d.Error)
	}
	calls, err := call.Pending(ctx, s, ident.ID{}, 10)
	if err != nil {
		return err
	}
	for _, c := range calls {
		bad("call %s of %s is left", c.ID, c.Caller)
	}
	return errors.Join(errs...)
}

// feed checks one journal.
func feed(ctx context.Context, s neuron.Store, id neuron.ID, f neuron.Feed) error {
	p, err := s.Entries(ctx, id, f, 0, 1000)
	if err != nil {
		return err
	}
	var sum uint64
	for _, n := range p.Tallies {
		sum += n
	}
	if sum != p.Last {
		return fmt.Errorf("%s feed %d: tallies %v, last %d", id, f, p.Tallies, p.Last)
	}
	if uint64(len(p.Seqs)) != p.Last+1-p.First {
		return fmt.Errorf("%s feed %d: %d entries from %d to %d", id, f, len(p.Seqs), p.First, p.Last)
	}
	sent := map[string]uint64{} // the last of each sender and lane
	for i, seq := range p.Seqs {
		e := &p.Entries[i]
		if seq != p.First+uint64(i) {
			return fmt.Errorf("%s feed %d: sequence %d at %d", id, f, seq, p.First+uint64(i))
		}
		if f == neuron.Out || e.Seq == 0 || e.Caller == e.Target { // alarms have no order
			continue
		}
		lane := fmt.Sprint(e.Caller, e.Lane)
		if e.Seq <= sent[lane] {
			return fmt.Errorf("%s: %d of %s after %d", id, e.Seq, lane, sent[lane])
		}
		sent[lane] = e.Seq
	}
	return nil
}
