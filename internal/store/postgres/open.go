package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/internal/neuron"
	"soma/internal/store/counter"
)

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
	// Now is for ids that the store itself makes; nil means time.Now. Times of nodes are the server's.
	Now func() time.Time
	// Lease is how long a node keeps its places without a beat, 0 means 15 s.
	Lease time.Duration

	sealed bool // a store that no daemon may use is opened, too
}

const (
	// minVersion is the oldest server that is tested.
	minVersion = 15
	// readTime bounds a query, commitTime a commit from its first byte to the answer; the server ends what takes longer.
	readTime   = 30 * time.Second
	commitTime = 30 * time.Second
	// lockTime bounds the wait for a row that another node has locked, controlTime all that concerns leases and hints.
	lockTime    = 5 * time.Second
	controlTime = 15 * time.Second
	// patience is how long a commit waits for a server that is away before it gives up: a node whose commits wait
	// longer has lost its places.
	patience = 15 * time.Second
)

// errForm stands for the parser's error, which shows the password.
var errForm = errors.New("the connection string cannot be read: want a postgres:// URL or words like host=… dbname=…")

// Store is one open database. It is safe for concurrent use.
type Store struct {
	options    Options
	limits     neuron.Limits
	generation string
	peers      string        // secret
	tag        string        // of this store among those that give hints
	patience   time.Duration // patience
	texts      texts
	reads      *sql.DB
	listener   *pgconn.Config
	control    line // leases
	hints      line // notifications

	mu     sync.Mutex // guards what follows: the committing side
	writer line
	counts *counter.Counters
	places *neuron.Epochs // of the last commit
	failed error          // set once: the store refuses every later commit
}

var (
	_ neuron.Store  = (*Store)(nil)
	_ neuron.Window = (*Store)(nil)
)

// Open connects to the database that dsn names (a URL or key=value words; what it leaves out comes from PGHOST, PGPASSFILE
// and the like), brings it to this build's schema and returns the store. Errors: *SchemaError for a database of another
// schema or program, *schema.SealedError for the rest of a copy, *VersionError for a server that is too old, those of the connection.
func Open(ctx context.Context, dsn string, options Options) (*Store, error) {
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
	if options.Lease <= 0 {
		options.Lease = 15 * time.Second
	}
	s, err := open(ctx, dsn, options)
	if err != nil {
		return nil, fmt.Errorf("cannot open the PostgreSQL store: %w", err)
	}
	return s, nil
}

// Reach connects to the database that dsn names and hangs up. Errors: those of the connection.
func Reach(ctx context.Context, dsn string) error {
	base, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return errForm
	}
	c, err := connect(ctx, configured(base, nil))
	if err != nil {
		return err
	}
	newSession(c).hangUp()
	return nil
}

func open(ctx context.Context, dsn string, options Options) (_ *Store, err error) {
	base, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, errForm
	}
	s := &Store{options: options, limits: options.Limits, tag: newTag(), patience: patience}
	if s.counts, err = counter.New(options.Sequences); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, base); err != nil {
		return nil, err
	}
	s.listener = configured(base, nil)
	s.writer.config = configured(base, map[string]string{
		"synchronous_commit": "on", "default_transaction_isolation": "read committed",
		"statement_timeout": millis(commitTime), "lock_timeout": millis(lockTime),
	})
	s.control.config = configured(base, map[string]string{
		"default_transaction_isolation": "read committed", "statement_timeout": millis(controlTime),
	})
	s.hints.config = configured(base, map[string]string{"statement_timeout": millis(controlTime)})
	s.reads = sql.OpenDB(&connector{configured(base, map[string]string{
		"default_transaction_read_only": "on", "statement_timeout": millis(readTime),
	}), &s.texts})
	s.reads.SetMaxOpenConns(options.Readers)
	s.reads.SetMaxIdleConns(options.Readers)
	return s, nil
}

// plans are settings of the planner. Statements are few and simple, so each is planned once and none is worth compiling. They
// find rows by keys: a plan made while a table is new, before the server has counted its rows, would read it whole for ever.
var plans = map[string]string{
	"plan_cache_mode": "force_generic_plan", "jit": "off",
	"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
}

// configured copies the settings of a connection and adds those of the session.
func configured(base *pgconn.Config, session map[string]string) *pgconn.Config {
	c := base.Copy()
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "soma"
	}
	c.RuntimeParams["client_encoding"] = "UTF8"
	maps.Copy(c.RuntimeParams, plans)
	maps.Copy(c.RuntimeParams, session)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = patience
	}
	return c
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Generation names the database from its creation on: a cursor of another generation means nothing here.
func (s *Store) Generation() string { return s.generation }

// PeerSecret is what the nodes of this database show each other, 64 hex digits. It must not be logged nor shown.
func (s *Store) PeerSecret() string { return s.peers }

// Close waits for running calls and closes all connections. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writer.close()
	s.control.close()
	s.hints.close()
	if err := s.reads.Close(); err != nil {
		return fmt.Errorf("cannot close the store: %w", err)
	}
	return nil
}

// VersionError reports a server older than the store needs.
type VersionError struct{ Found, Need string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("PostgreSQL %s is too old: %s or later is needed", e.Found, e.Need)
}
