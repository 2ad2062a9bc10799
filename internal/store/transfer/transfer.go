package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"soma/internal/crash"
	"soma/internal/store/schema"
)

// Table is one table of a store with its columns in their order.
type Table struct {
	Name    string
	Columns []string
}

// Source is a store whose rows are read as of one moment. A value is an int64, a string, bytes or nil; engines may differ in
// whether a text comes as a string or as bytes.
type Source interface {
	// Tables returns all tables of the store, also those that are not copied, in any order.
	Tables(ctx context.Context) ([]Table, error)
	// Rows calls row for each row of a table, with a value for each of the table's columns; bytes are valid during the call.
	Rows(ctx context.Context, t Table, row func(values []any) error) error
	// Epoch is the highest under which a node has held the store or a part of it.
	Epoch(ctx context.Context) (uint64, error)
	// Number runs a query that both engines understand and returns its one number, 0 for none.
	Number(ctx context.Context, query string) (int64, error)
	// Seal returns what keeps daemons from the store, nil for nothing.
	Seal(ctx context.Context) (*schema.Seal, error)
	// Generation names the store.
	Generation(ctx context.Context) (string, error)
}

// Target is a store that is filled. Its Rows read what has been filled so far.
type Target interface {
	Source
	// Prepare seals the store, so that no daemon uses it, and empties it of what an interrupted copy has left. It fails with
	// ErrNotEmpty where anybody has used the store.
	Prepare(ctx context.Context, seal schema.Seal) error
	// Fill writes the rows of a table that rows gives to row.
	Fill(ctx context.Context, t Table, rows func(row func(values []any) error) error) error
	// Finish ends the work; what was filled is on the disk when it returns.
	Finish(ctx context.Context, f Finish) error
}

// EndKernels marks the live python kernels of the earlier store, for a reason, as ending and of no node. One without a process is
// given an impossible one: a kernel that boots would be booted again, with cells that may have run since.
const EndKernels = `update kernel set state = 'ending', reason = $1, node = '', os_pid = case when os_pid > 0 then os_pid else 2147483647 end
	where state <> 'ended'`

// ErrNotEmpty reports a target that holds something already.
var ErrNotEmpty = errors.New("the store is not empty")

// Finish says what becomes of a store that was filled.
type Finish struct {
	// Seal stays on the store; nil makes it a store for daemons, to which all that follows applies. It gets a new generation, so
	// that followers of the old one are told that theirs is gone, and its python kernels are marked as ending.
	Seal *schema.Seal
	// Reason says in few words why the python kernels end.
	Reason string
	// Epoch is the least that the next holder goes beyond.
	Epoch uint64
}

// Progress tells how far a copy is. Done of Tables tables are copied and checked.
type Progress struct {
	Table        string
	Done, Tables int
	Rows, Bytes  int64 // so far, of all tables
}

// Options are what a copy is told besides its ends.
type Options struct {
	Seal schema.Seal // of the target while it is filled
	// Mid is the crash point that is passed after each table.
	Mid crash.Name
	// Progress is called now and then from the goroutine that copies; nil for nobody.
	Progress func(Progress)
}

// Report tells what was copied, table by table.
type Report struct {
	Tables []TableReport `json:"tables"`
	Rows   int64         `json:"rows"`
	Bytes  int64         `json:"bytes"` // of values
	// Epoch is the source's.
	Epoch uint64 `json:"-"`
}

// TableReport is what was copied of one table. Sum does not depend on the order of rows and is the same for both engines.
type TableReport struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	Sum  string `json:"sum"` // 64 hex digits
}

// held are the tables that say who holds a store. They are of that store and never copied.
var held = []string{"lease", "node"}

// own are the rows of meta that are of one store: who it is, and what it keeps for its engine.
var own = []string{"generation", "keys", "peers", schema.Sealed, "schema"}

const meta = "meta"

// Held reports whether a table stays behind.
func Held(table string) bool { return slices.Contains(held, table) }

// Own reports whether a row of meta stays behind.
func Own(name string) bool { return slices.Contains(own, name) }

// MismatchError reports stores that do not have the same tables and columns.
type MismatchError struct{ What string }

func (e *MismatchError) Error() string {
	return "the stores are not of one schema: " + e.What + "; start a daemon of this build on the older one once"
}

// DifferentError reports rows that did not arrive as they were.
type DifferentError struct {
	Table     string
	Want, Got TableReport
}

func (e *DifferentError) Error() string {
	return fmt.Sprintf("table %s did not arrive as it was: %d rows with sum %.12s were read, %d with sum %.12s are there",
		e.Table, e.Want.Rows, e.Want.Sum, e.Got.Rows, e.Got.Sum)
}

// every is how many rows are copied between two words on the progress.
const every = 2000

// Copy fills to with all rows of from and then reads them back. Until the caller calls Finish the target stays sealed,
// whatever happens. Errors: ErrNotEmpty, *MismatchError, *DifferentError, those of the engines.
func Copy(ctx context.Context, from Source, to Target, o Options) (r Report, err error) {
	tables, err := agreed(ctx, from, to)
	if err != nil {
		return r, err
	}
	if r.Epoch, err = from.Epoch(ctx); err != nil {
		return r, err
	}
	if err := to.Prepare(ctx, o.Seal); err != nil {
		return r, err
	}
	tell := func(table string, done int) {
		if o.Progress != nil {
			o.Progress(Progress{Table: table, Done: done, Tables: len(tables), Rows: r.Rows, Bytes: r.Bytes})
		}
	}
	for i, t := range tables {
		tell(t.Name, i)
		var want sum
		err := to.Fill(ctx, t, func(row func([]any) error) error {
			return each(ctx, from, t, func(values []any) error {
				n := want.add(values)
				r.Rows, r.Bytes = r.Rows+1, r.Bytes+n
				if want.rows%every == 0 {
					tell(t.Name, i)
				}
				return row(values)
			})
		})
		if err != nil {
			return r, fmt.Errorf("cannot copy table %s: %w", t.Name, err)
		}
		if o.Mid != "" {
			crash.Point(o.Mid)
		}
		got, err := sumOf(ctx, to, t)
		if err != nil {
			return r, fmt.Errorf("cannot check table %s: %w", t.Name, err)
		}
		if got != want {
			return r, &DifferentError{t.Name, want.report(t.Name), got.report(t.Name)}
		}
		r.Tables = append(r.Tables, want.report(t.Name))
	}
	tell("", len(tables))
	return r, nil
}

// each reads the rows of a table that are copied.
func each(ctx context.Context, from Source, t Table, row func([]any) error) error {
	name := slices.Index(t.Columns, "name")
	if t.Name == meta && name < 0 {
		return &MismatchError{"meta has no names"}
	}
	return from.Rows(ctx, t, func(values []any) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if t.Name == meta && Own(text(values[name])) {
			return nil
		}
		return row(values)
	})
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// Sums returns what a store holds, table by table, as a copy of it would report.
func Sums(ctx context.Context, from Source) ([]TableReport, error) {
	all, err := from.Tables(ctx)
	if err != nil {
		return nil, err
	}
	var out []TableReport
	for _, t := range copied(all) {
		s, err := sumOf(ctx, from, t)
		if err != nil {
			return nil, fmt.Errorf("cannot read table %s: %w", t.Name, err)
		}
		out = append(out, s.report(t.Name))
	}
	return out, nil
}

func sumOf(ctx context.Context, from Source, t Table) (s sum, err error) {
	err = each(ctx, from, t, func(values []any) error { s.add(values); return nil })
	return s, err
}

// copied returns the tables that are copied, by name.
func copied(all []Table) []Table {
	all = slices.DeleteFunc(slices.Clone(all), func(t Table) bool { return Held(t.Name) })
	slices.SortFunc(all, func(a, b Table) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// agreed returns the tables that are copied; both stores must have the same ones.
func agreed(ctx context.Context, from, to Source) ([]Table, error) {
	a, err := from.Tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tables to copy: %w", err)
	}
	b, err := to.Tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tables of the target: %w", err)
	}
	byName := map[string]Table{}
	for _, t := range b {
		byName[t.Name] = t
	}
	for _, t := range a {
		other, ok := byName[t.Name]
		if !ok {
			return nil, &MismatchError{"only one has the table " + t.Name}
		}
		if !slices.Equal(t.Columns, other.Columns) {
			return nil, &MismatchError{fmt.Sprintf("table %s has the columns %s and %s", t.Name, strings.Join(t.Columns, ", "), strings.Join(other.Columns, ", "))}
		}
		delete(byName, t.Name)
	}
	for name := range byName {
		return nil, &MismatchError{"only one has the table " + name}
	}
	return copied(a), nil
}
