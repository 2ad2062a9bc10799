package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"soma/internal/config"
	"soma/internal/store/postgres"
	"soma/internal/store/sqlite"
	"soma/internal/store/transfer"
)

// ErrNoStore: there is no store at a place that is to be read.
var ErrNoStore = errors.New("no store")

// Place is where a store is: exactly one of the three is set.
type Place struct {
	Home     string // folder of a home
	File     string // SQLite file outside of a home
	Database config.Database
}

// String names the place without a secret.
func (p Place) String() string {
	switch {
	case p.Home != "":
		return "the home " + p.Home
	case p.File != "":
		return "the file " + p.File
	}
	return p.Database.Shown()
}

// words begins a connection string such as host=… dbname=…; a file of such a name is meant by ./host=….
var words = regexp.MustCompile(`^\s*[a-z_]+\s*=`)

// Named returns the place that a person means: the URL of a database or words like host=… dbname=…, or a path; a folder is a home,
// and so is the file soma.db in one. A text that holds a password is refused: others can see arguments.
func Named(text string) (Place, error) {
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") || words.MatchString(text) {
		d := config.Database(text)
		if d.HasPassword() {
			return Place{}, errors.New("others can see the arguments of a program, so a password must not stand there: put it into the file that PGPASSFILE names (~/.pgpass), " +
				"or the whole URL into SOMA_STORE and write the word store in its place")
		}
		return Place{Database: d}, nil
	}
	path, err := filepath.Abs(text)
	if err != nil {
		return Place{}, err
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir(), errors.Is(err, fs.ErrNotExist) && filepath.Ext(path) == "":
		return Place{Home: path}, nil
	case filepath.Base(path) == "soma.db":
		return Place{Home: filepath.Dir(path)}, nil
	}
	return Place{File: path}, nil
}

// source is an opened store that is read.
type source interface {
	transfer.Source
	Close() error
}

// target is an opened store that is filled.
type target interface {
	transfer.Target
	Close() error
}

// hold takes the lock of a home, so that no daemon runs on it until release is called. Other places have none.
func (p Place) hold(create bool) (release func() error, err error) {
	if p.Home == "" {
		return func() error { return nil }, nil
	}
	home, err := config.HomeAt(p.Home)
	if err != nil {
		return nil, err
	}
	if create {
		if err := home.Create(); err != nil {
			return nil, err
		}
	}
	lock, err := home.Lock()
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

// path is the SQLite file, "" with a database server.
func (p Place) path() (string, error) {
	if p.Home == "" {
		return p.File, nil
	}
	home, err := config.HomeAt(p.Home)
	return home.Database(), err
}

// read opens the store for reading.
func (p Place) read(ctx context.Context) (source, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	if path == "" {
		s, err := postgres.OpenSnapshot(ctx, p.Database.Reveal())
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := sqlite.OpenSnapshot(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has %w", p, ErrNoStore)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// fill opens or makes the store to be filled.
func (p Place) fill(ctx context.Context) (target, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	if path == "" {
		c, err := postgres.OpenCopy(ctx, p.Database.Reveal())
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	c, err := sqlite.OpenCopy(ctx, path)
	if err != nil {
		return nil, err
	}
	return c, nil
}
