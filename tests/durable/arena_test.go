package durable_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// one is an arena of one node.
type one struct {
	make func(ctx context.Context) (neuron.Store, error)
}

func (one) nodes() int                                              { return 1 }
func (o one) open(ctx context.Context, _ int) (neuron.Store, error) { return o.make(ctx) }
func (one) take(context.Context, int, neuron.Store, neuron.Fence, neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error) {
	panic("one node has all places")
}
func (one) free(context.Context, int, neuron.Store, neuron.Fence, neuron.PlaceSet) error {
	panic("one node keeps all places")
}

// shared are two nodes on the fake.
type shared struct{ s *neurontest.Store }

func (shared) nodes() int                                        { return 2 }
func (a shared) open(context.Context, int) (neuron.Store, error) { return a.s, nil }
func (a shared) take(_ context.Context, _ int, _ neuron.Store, f neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error) {
	return a.s.Take(f.Node, places), nil
}

func (a shared) free(_ context.Context, _ int, _ neuron.Store, f neuron.Fence, places neuron.PlaceSet) error {
	a.s.Free(f.Node, places)
	return nil
}

// server are two nodes on one database of PostgreSQL, with a lease so short that a place may always be taken.
type server struct{ dsn string }

func (server) nodes() int { return 2 }
func (a server) open(ctx context.Context, _ int) (neuron.Store, error) {
	return counter.Open(ctx, a.dsn, modelLimits(), time.Microsecond)
}

func (a server) take(ctx context.Context, _ int, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error) {
	taken, err := s.(*postgres.Store).Take(ctx, f, places)
	if err == nil && len(taken) != places.Len() {
		err = fmt.Errorf("%d of %d places taken", len(taken), places.Len())
	}
	return taken, err
}

func (a server) free(ctx context.Context, _ int, s neuron.Store, f neuron.Fence, places neuron.PlaceSet) error {
	return s.(*postgres.Store).Give(ctx, f, places)
}

func checks(t *testing.T, n int) {
	t.Helper()
	if err := flag.Set("rapid.checks", fmt.Sprint(n)); err != nil {
		t.Fatal(err)
	}
}

// N-33, N-13, N-17, N-20, N-06 to N-11: random programs of deliveries, sends, emissions, alarms, executions, refusals and failures, with
// restarts and kills, come to what the model says: nothing lost, nothing doubled, in order, without gaps, tallied, and done.
func TestModelOnTheFake(t *testing.T) {
	checks(t, 60)
	checkModel(t, []fate{none, stop, kill}, func() arena {
		s := neurontest.New(modelLimits())
		return one{func(context.Context) (neuron.Store, error) { return s, nil }}
	})
}

// N-36: the same at two nodes between which places move.
func TestModelOfMoves(t *testing.T) {
	checks(t, 60)
	checkModel(t, []fate{none, stop, kill, give, give, steal}, func() arena { return shared{neurontest.NewShared(modelLimits())} })
}

// N-33, N-35: the same on SQLite.
func TestModelOnSQLite(t *testing.T) {
	checks(t, 15)
	n := 0
	dir := t.TempDir()
	checkModel(t, []fate{none, stop, kill}, func() arena {
		n++
		dsn := "sqlite:" + filepath.Join(dir, fmt.Sprint(n, ".db"))
		return one{func(ctx context.Context) (neuron.Store, error) { return counter.Open(ctx, dsn, modelLimits(), 0) }}
	})
}

// N-36, N-35: the same on PostgreSQL.
func TestModelOnPostgreSQL(t *testing.T) {
	checks(t, 15)
	dsn := postgrestest.Database(t)
	checkModel(t, []fate{none, stop, kill, give, give, steal}, func() arena { return server{dsn} })
}
