package turns

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"soma/bench/floor"
	"soma/bench/measure"
	"soma/internal/neuron"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
)

// Alone is a store of one node, which takes all places as it begins.
type Alone struct{ *postgres.Store }

// Claim begins a life and takes all places.
func (s Alone) Claim(ctx context.Context, node string) (neuron.Fence, error) {
	f, err := s.Store.Claim(ctx, node)
	if err != nil {
		return f, err
	}
	taken, err := s.Take(ctx, f, neuron.AllPlaces())
	for p, t := range taken {
		f.Places[p] = t.Epoch
	}
	return f, err
}

// Shared returns the lines turns_pg_64 and its p99: the same turns on PostgreSQL, each group behind its fence, on a server of
// their own in dir that waits for the disk. The bare loop runs on the same server.
func Shared(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	if err := os.Chmod(dir, 0o711); err != nil { // the server may be another user's
		return nil, err
	}
	server, err := postgrestest.Start(ctx, dir, "shared_buffers=512MB", "max_wal_size=8GB", "wal_buffers=16MB")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	var dsn [2]string
	for i := range dsn {
		name, err := server.Create(ctx, "")
		if err != nil {
			return nil, err
		}
		dsn[i] = server.DSN(name)
	}
	bare, err := floor.OpenShared(ctx, dsn[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close(ctx)) }()
	s, err := postgres.Open(ctx, dsn[1], postgres.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e, err := Start(ctx, Alone{s}, filepath.Join(dir, "inflight"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()

	rounds, err := beside(bare, Deliver(ctx, e))
	if err != nil {
		return nil, err
	}
	return rounds.lines("turns_pg_64", fs), nil
}
