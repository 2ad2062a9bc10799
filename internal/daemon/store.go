package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"soma/internal/neuron"
	"soma/internal/process"
	"soma/internal/pykernel"
	"soma/internal/store/postgres"
	"soma/internal/store/schema"
	"soma/internal/store/sqlite"
)

// store is what the daemon needs of either engine of storage.
type store interface {
	neuron.Store
	neuron.Window
	Generation() string
	TableSizes(ctx context.Context) ([]neuron.TableSize, error)
}

// open opens the store that the settings name. With PostgreSQL the daemon is one of several.
func (d *daemon) open(ctx context.Context) error {
	sequences := append(process.Sequences(), neuron.Sequence{
		Name: pykernel.FrameSequence, Last: pykernel.FrameSequenceLast, Save: pykernel.FrameSequenceSave,
	})
	if d.config.Store == "" {
		if err := d.wasShared(); err != nil {
			return d.homeFault(err)
		}
		s, err := sqlite.Open(ctx, d.home.Database(), sqlite.Options{Sequences: sequences, Migrations: d.migrations()})
		if err != nil {
			return d.unusable(err)
		}
		d.store = s
		return nil
	}
	s, err := postgres.Open(ctx, d.config.Store.Reveal(), postgres.Options{Sequences: sequences, Migrations: d.migrations(), Lease: d.lease()})
	if err != nil {
		return d.unusable(err)
	}
	d.store, d.shared = s, s
	return nil
}

// wasShared refuses to begin an empty store in a home whose daemon was one of several: a start without the settings that it had would
// show a person nothing of what there is.
func (d *daemon) wasShared() error {
	if _, err := os.Stat(d.home.NodeFile()); err != nil {
		return nil
	}
	if _, err := os.Stat(d.home.Database()); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("its daemon was one of several on a database, and the settings name none: set SOMA_STORE, or store: in %s; to begin anew in the home, remove %s",
		d.home.ConfigFile(), d.home.NodeFile())
}

// testLease shortens the lease for tests.
const testLease = "SOMA_TEST_LEASE"

// lease is how long this daemon keeps its places without a beat, 0 for the default.
func (d *daemon) lease() time.Duration {
	t, err := time.ParseDuration(d.env(testLease))
	if err != nil {
		return 0
	}
	return t
}

// unusable says of a fault in what is stored whose it is: the home's, or the database's that the settings name; nil stays nil.
func (d *daemon) unusable(err error) error {
	if err == nil || d.config.Store == "" {
		return d.homeFault(err)
	}
	return fmt.Errorf("cannot use the database %s: %w", d.config.Store.Shown(), err)
}

// final reports whether an error of the shared store stays when it is opened again.
func final(err error) bool {
	var known *postgres.SchemaError
	var version *postgres.VersionError
	var sealed *schema.SealedError
	return errors.As(err, &known) || errors.As(err, &version) || errors.As(err, &sealed)
}
