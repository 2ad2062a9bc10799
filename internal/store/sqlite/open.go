package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/counter"
	"soma/internal/store/schema"
	"soma/internal/store/window"
)

//go:embed migrations/*.sql
var embedded embed.FS

// Migrations returns the migrations of this build, files NNNN_name.sql.
func Migrations() fs.FS {
	sub, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// Options change how a store is opened; the zero value is what the daemon uses, apart from Sequences.
type Options struct {
	// Sequences are all classes of counters that Numbered operations may name.
	Sequences []neuron.Sequence
	// Readers is the number of reading connections, 0 means 4.
	Readers int
	// Limits gives the windows of journals and dedupe; the zero value means neuron.DefaultLimits().
	Limits neuron.Limits
	// Migrations replaces Migrations(); tests add a later one.
	Migrations fs.FS
	// Now stamps node rows; nil means time.Now.
	Now func() time.Time
}

const (
	// minVersion is the first SQLite without the fault that can damage a WAL when a checkpoint runs beside a commit.
	minVersion = "3.51.3"
	// maxStatements bounds the cached statements of one side.
	maxStatements = 512
	// busyTimeout is the wait for another connection's lock, in milliseconds.
	busyTimeout = 5000
)

// Store is one open database. It is safe for concurrent use.
type Store struct {
	path       string
	options    Options
	generation string
	reads      *sql.DB
	queries    statements
	checkpoint *checkpointer

	mu      sync.Mutex // guards what follows: the writing side
	w       *writer
	pos     int64 // last turn.pos
	counts  *counter.Counters
	past    past
	scratch []byte // for bodies: a statement copies what it is given
	failed  error  // set once: the store refuses every later commit
	closed  bool
}

var _ neuron.Store = (*Store)(nil)

// Open opens or makes the database at path, whose folder exists, brings it to this build's schema and starts the
// checkpointing goroutine, which Close ends. The files get mode 0600. Errors: *SchemaError for a home of another schema,
// *schema.SealedError for a backup or the rest of a copy, *VersionError for a SQLite that is too old.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	if options.Readers <= 0 {
		options.Readers = 4
	}
	if options.Limits == (neuron.Limits{}) {
		options.Limits = neuron.DefaultLimits()
	}
	if options.Migrations == nil {
		options.Migrations = Migrations()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	s, err := open(ctx, path, options)
	if err != nil {
		return nil, fmt.Errorf("cannot open the store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string, options Options) (_ *Store, err error) {
	migrations, err := schema.Load(options.Migrations)
	if err != nil {
		return nil, err
	}
	if err := private(path); err != nil {
		return nil, err
	}
	// fdatasync keeps all that a commit needs and spares the journal of the file system the timestamps. Where a system has
	// none the call changes nothing, so its error is of no interest.
	_, _ = sqlite.Fdatasync(true)
	s := &Store{path: path, options: options, past: past{enough: pastBatch}}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
		switch code(err) & 0xff {
		case lib.SQLITE_NOTADB:
			err = schema.Foreign(len(migrations))
		case lib.SQLITE_CORRUPT:
			err = fmt.Errorf("%w: restore a backup with soma restore --replace, or use another home", err)
		}
	}()
	durable := "synchronous(full)"
	if crash.Off(crash.FsyncOff) {
		durable = "synchronous(off)"
	}
	conn, err := connect(ctx, path, durable, "cache_size(-32768)",
		fmt.Sprintf("journal_size_limit(%d)", walBytes))
	if err != nil {
		return nil, err
	}
	s.w = newWriter(conn)
	if err := checkVersion(ctx, s.w); err != nil {
		return nil, err
	}
	if err := unsealed(ctx, s.w); err != nil {
		return nil, err
	}
	if err := migrate(ctx, s.w, migrations); err != nil {
		return nil, err
	}
	if s.generation, err = s.w.text(ctx, "select value from meta where name = 'generation'"); err != nil {
		return nil, err
	}
	if s.pos, err = s.w.number(ctx, "select coalesce(max(pos), 0) from turn"); err != nil {
		return nil, err
	}
	if s.counts, err = counter.New(options.Sequences); err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(dsn(path, "query_only(1)", "cache_size(-8192)"))
	if err != nil {
		return nil, err
	}
	s.reads = sql.OpenDB(connector)
	s.reads.SetMaxOpenConns(options.Readers)
	s.reads.SetMaxIdleConns(options.Readers)
	s.queries.db = s.reads
	err = s.queries.prepare(ctx, append(window.Texts(), selectRow, selectTurns)...)
	if err != nil {
		return nil, err
	}
	aside, err := connect(ctx, path, durable)
	if err != nil {
		return nil, err
	}
	s.checkpoint = startCheckpointer(context.WithoutCancel(ctx), aside)
	return s, nil
}

// Generation names the database from its creation on: a cursor of another generation means nothing here.
func (s *Store) Generation() string { return s.generation }

// Close waits for running calls, ends the checkpointing goroutine and closes the database. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.checkpoint != nil {
		errs = append(errs, s.checkpoint.stop())
	}
	if s.reads != nil {
		errs = append(errs, s.queries.close(), s.reads.Close())
	}
	if s.w != nil {
		errs = append(errs, s.w.close()) // the last connection: SQLite empties the WAL
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot close the store: %w", err)
	}
	return nil
}

// private makes the file before SQLite does, which gives its companions the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(0o600)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func dsn(path string, pragmas ...string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	q := url.Values{}
	for _, p := range append([]string{fmt.Sprintf("busy_timeout(%d)", busyTimeout), "wal_autocheckpoint(0)"}, pragmas...) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

func connect(ctx context.Context, path string, pragmas ...string) (driver.Conn, error) {
	c, err := sqlite.NewConnector(dsn(path, pragmas...))
	if err != nil {
		return nil, err
	}
	return c.Connect(ctx)
}

// VersionError reports a SQLite older than the store needs.
type VersionError struct{ Found, Need string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("SQLite %s is too old: %s or later is needed", e.Found, e.Need)
}

func checkVersion(ctx context.Context, w *writer) error {
	v, err := w.text(ctx, "select sqlite_version()")
	if err != nil {
		return err
	}
	if older(v, minVersion) {
		return &VersionError{Found: v, Need: minVersion}
	}
	return nil
}

// older compares dotted versions part by part; a part that is no number counts as 0.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return x < y
		}
	}
	return false
}
