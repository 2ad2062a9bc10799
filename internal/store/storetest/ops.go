package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"soma/internal/neuron"
)

// addSeries makes the row that holds a counter.
type addSeries struct{ name string }

func (addSeries) SQL() string   { return "insert into suite_series (series, last) values (?, 0)" }
func (o addSeries) Args() []any { return []any{o.name} }

// addRow carries the next number of its series.
type addRow struct {
	series, body string
	n            uint64
}

func (*addRow) SQL() string                  { return "insert into suite_row (series, n, body) values (?, ?, ?)" }
func (o *addRow) Args() []any                { return []any{o.series, int64(o.n), o.body} }
func (o *addRow) Sequence() (string, string) { return "suite", o.series }
func (o *addRow) SetNumber(n uint64)         { o.n = n }

// countRow takes its number from the rows that are there: no other row holds the counter.
type countRow struct{ addRow }

func (o *countRow) Sequence() (string, string) { return "rows", o.series }

var errGuard = errors.New("body is not what it was")

// changeRows changes rows of a series with the body from, and must meet exactly one.
type changeRows struct{ series, from, to string }

func (changeRows) SQL() string { return "update suite_row set body = ? where series = ? and body = ?" }
func (o changeRows) Args() []any {
	return []any{o.to, o.series, o.from}
}
func (changeRows) Guard() error { return errGuard }

type badOp struct{}

func (badOp) SQL() string { return "insert into no_such_table (x) values (?)" }
func (badOp) Args() []any { return []any{int64(1)} }

// wrongArg has an argument of a type that operations may not have.
type wrongArg struct{ addSeries }

func (wrongArg) Args() []any { return []any{struct{}{}} }

func rows(t testing.TB, s neuron.Store) []string {
	t.Helper()
	var out []string
	err := s.Query(t.Context(), "select series, n, body from suite_row order by series, n", nil, func(scan func(...any) error) error {
		var series, body string
		var n int64
		if err := scan(&series, &n, &body); err != nil {
			return err
		}
		out = append(out, fmt.Sprintf("%s%d %s", series, n, body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantRows(t testing.TB, s neuron.Store, want ...string) {
	t.Helper()
	if got := rows(t, s); !slices.Equal(got, want) {
		t.Fatalf("rows %q, want %q", got, want)
	}
}

func (a *actor) ops(ops ...neuron.Op) *neuron.Record {
	r := a.turn(step{})
	r.Ops = ops
	return r
}

// testOperations: they run in the order of records, and within one in the order in which they were added.
func testOperations(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "1"}, changeRows{"x", "1", "2"}), b.ops(changeRows{"x", "2", "3"}),
		a.ops(changeRows{"x", "3", "4"}, changeRows{"x", "4", "5"}))
	wantRows(t, s, "x1 5")
}

func testGuard(t *testing.T, e Engine) {
	// N-34
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "one"}, &addRow{series: "x", body: "two"}, &addRow{series: "x", body: "two"}))
	for _, from := range []string{"none", "two"} { // no row, and more than one
		lost := a.copy()
		group := []*neuron.Record{lost.ops(changeRows{"x", "one", "1"}), lost.ops(changeRows{"x", from, "2"}), lost.ops()}
		wantRecordError(t, s.Commit(t.Context(), f, group), 1, errGuard)
		a.verify(t, s)
		wantRows(t, s, "x1 one", "x2 two", "x3 two")
	}
	commit(t, s, f, a.ops(changeRows{"x", "one", "1"}))
	wantRows(t, s, "x1 1", "x2 two", "x3 two")
}

// testBadOperation: a statement that cannot run is laid to its record and harms nobody else.
func testBadOperation(t *testing.T, e Engine) {
	// N-34
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.ops(addSeries{"x"}))
	for _, op := range []neuron.Op{badOp{}, addSeries{"x"}, wrongArg{addSeries{"y"}}, &addRow{series: "unknown", body: "no row holds the counter"}} {
		lost := a.copy()
		wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{lost.ops(), lost.ops(op), lost.ops()}), 1, nil)
		a.verify(t, s)
	}
	commit(t, s, f, a.ops(&addRow{series: "x", body: "fine"}))
	wantRows(t, s, "x1 fine")
}

// testNumbers: numbers follow the order of commits, per key, without a gap.
func testNumbers(t *testing.T, e Engine) {
	// M-04
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.ops(addSeries{"x"}, addSeries{"y"}, &addRow{series: "x", body: "a"}), b.ops(&addRow{series: "x", body: "b"}, &addRow{series: "y", body: "b"}))
	op := &addRow{series: "x", body: "c"}
	commit(t, s, f, a.ops(op))
	if op.n != 3 {
		t.Errorf("the operation was given %d, want 3", op.n)
	}
	wantRows(t, s, "x1 a", "x2 b", "x3 c", "y1 b")
}

// testNumbersAfterRedo: what a failed group was given is given again, in the order in which its records then commit.
func testNumbersAfterRedo(t *testing.T, e Engine) {
	// M-04
	s := open(t, e)
	f := claim(t, e, s)
	a, b := newActor("a", 1), newActor("b", 2)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "0"}))
	ra, rb := a.ops(&addRow{series: "x", body: "a"}), b.ops(&addRow{series: "x", body: "b"})
	bad := (&actor{id: b.id, key: 3}).ops(&addRow{series: "x", body: "bad"}, changeRows{"x", "none", "never"})
	wantRecordError(t, s.Commit(t.Context(), f, []*neuron.Record{ra, bad, rb}), 1, nil)
	wantRows(t, s, "x1 0")
	pos := ra.Turn.Pos
	commit(t, s, f, rb)
	commit(t, s, f, ra)
	if e.Take == nil && (rb.Turn.Pos != pos || ra.Turn.Pos != pos+1) {
		t.Errorf("positions %d, %d, want %d, %d", rb.Turn.Pos, ra.Turn.Pos, pos, pos+1)
	}
	wantRows(t, s, "x1 0", "x2 b", "x3 a")
}

// testQuery: reads see committed rows, arguments bind, and errors of the caller come back.
func testQuery(t *testing.T, e Engine) {
	// N-35
	s := open(t, e)
	f := claim(t, e, s)
	a := newActor("a", 1)
	commit(t, s, f, a.ops(addSeries{"x"}, &addRow{series: "x", body: "1"}, &addRow{series: "x", body: "2"}, &addRow{series: "x", body: "3"}))
	var got []int64
	err := s.Query(t.Context(), "select n from suite_row where series = ? and n > ? order by n", []any{"x", int64(1)}, func(scan func(...any) error) error {
		var n int64
		err := scan(&n)
		got = append(got, n)
		return err
	})
	if err != nil || !slices.Equal(got, []int64{2, 3}) {
		t.Errorf("rows %v, %v", got, err)
	}
	stop := errors.New("enough")
	calls := 0
	err = s.Query(t.Context(), "select n from suite_row", nil, func(func(...any) error) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := s.Query(t.Context(), "select nothing from nowhere", nil, nil); err == nil {
		t.Error("a bad query went through")
	}
	if err := s.Query(t.Context(), "delete from suite_row", nil, nil); err == nil {
		t.Error("a query deleted rows")
	}
	wantRows(t, s, "x1 1", "x2 2", "x3 3")
}
