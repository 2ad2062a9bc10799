package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/storetest"
)

// numberedRow carries the next number of its series.
type numberedRow struct {
	series string
	n      uint64
}

func (*numberedRow) SQL() string                  { return "insert into suite_row (series, n, body) values (?, ?, '')" }
func (o *numberedRow) Args() []any                { return []any{o.series, int64(o.n)} }
func (o *numberedRow) Sequence() (string, string) { return "suite", o.series }
func (o *numberedRow) SetNumber(n uint64)         { o.n = n }

// addOne counts in a row that neurons of all places change.
type addOne struct{ series string }

var errNoSeries = errors.New("there is no such series")

func (addOne) SQL() string       { return "update suite_series set last = last + 1 where series = ?" }
func (o addOne) Args() []any     { return []any{o.series} }
func (o addOne) LockKey() string { return "series/" + o.series }
func (addOne) Guard() error      { return errNoSeries }

// at is a record of a neuron at a place, with operations.
func at(place neuron.Place, key int64, seq uint64, ops ...neuron.Op) *neuron.Record {
	id := neuron.ID{Owner: "me", Kind: "test", Key: fmt.Sprint(key)}
	return &neuron.Record{Neuron: id, Place: place, Key: key, New: seq == 1, Ops: ops, Turn: &neuron.TurnRow{
		Seq: seq, DeliveryID: ident.Named(id.Key, fmt.Sprint(seq)), Incoming: []byte(`{"alias":"test.v1"}`), OutFirst: 1}}
}

// M-04, N-36: numbers go on where the node before left them, also at a node that has had the place earlier.
func TestNumbersAfterTakeover(t *testing.T) {
	a, b := pair(t, Options{Sequences: storetest.Sequences()})
	exec(t, a, "insert into suite_series (series, last) values ('x', 0)")
	fa, fb := claimed(t, a, "a"), claimed(t, b, "b")
	var seq uint64
	commit := func(s *Store, f neuron.Fence) uint64 {
		t.Helper()
		seq++
		row := &numberedRow{series: "x"}
		if err := s.Commit(t.Context(), f, []*neuron.Record{at(9, 1, seq, row)}); err != nil {
			t.Fatal(err)
		}
		return row.n
	}
	for want := uint64(1); want < 10; {
		fa, _ = take(t, a, fa, neuron.PlacesOf(9))
		if n := commit(a, fa); n != want {
			t.Fatalf("the first node was given %d, want %d", n, want)
		}
		if err := a.Give(t.Context(), fa, neuron.PlacesOf(9)); err != nil {
			t.Fatal(err)
		}
		fb, _ = take(t, b, fb, neuron.PlacesOf(9))
		if n := commit(b, fb); n != want+1 {
			t.Fatalf("the second node was given %d, want %d", n, want+1)
		}
		if err := b.Give(t.Context(), fb, neuron.PlacesOf(9)); err != nil {
			t.Fatal(err)
		}
		want += 2
	}
}

// N-36: two nodes change the same rows at the same time, each in another order of its records: nobody waits for a deadlock.
func TestSharedRows(t *testing.T) {
	a, b := pair(t, Options{})
	exec(t, a, "insert into suite_series (series, last) values ('x', 0), ('y', 0), ('z', 0)")
	fa, _ := take(t, a, claimed(t, a, "a"), neuron.PlacesOf(1))
	fb, _ := take(t, b, claimed(t, b, "b"), neuron.PlacesOf(2))
	const rounds = 40
	var both sync.WaitGroup
	for i, node := range []struct {
		s     *Store
		f     neuron.Fence
		place neuron.Place
		order []string
	}{{a, fa, 1, []string{"x", "y", "z"}}, {b, fb, 2, []string{"z", "y", "x"}}} {
		both.Go(func() {
			for seq := range uint64(rounds) {
				var group []*neuron.Record
				for j, series := range node.order {
					group = append(group, at(node.place, int64(10*i+j+1), seq+1, addOne{series}))
				}
				if err := node.s.Commit(t.Context(), node.f, group); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	if n := number(t, a, "select count(*) from suite_series where last = 2 * 40"); n != 3 {
		t.Errorf("%d of 3 rows were changed by all", n)
	}
	if n := number(t, a, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	err := a.Commit(t.Context(), fa, []*neuron.Record{at(1, 1, rounds+1), at(1, 2, rounds+1, addOne{"none"})})
	var record *neuron.RecordError
	if !errors.As(err, &record) || record.Index != 1 || !errors.Is(err, errNoSeries) {
		t.Errorf("a shared row that is not there: %v", err)
	}
}
