package api

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"soma/wire"
)

// Sessions is what the routes of sessions, inputs and cells ask for. Requests arrive checked in form, with defaults filled
// in (kind, mode, timeout). All methods may be called from many goroutines; each returns when its write is committed, or
// with the context's error. A *wire.Error is answered as it is, every other error as internal. Writes repeated under the
// same id with the same body answer the same; another body is a wire.Conflict.
type Sessions interface {
	Open(ctx context.Context, id string, req wire.OpenSession) (wire.Session, error)
	Session(ctx context.Context, id string) (wire.Session, error)
	// Sessions returns at most f.Limit sessions, sorted by id.
	Sessions(ctx context.Context, f wire.SessionFilter) ([]wire.Session, error)
	Close(ctx context.Context, id string) (wire.Session, error)
	Admit(ctx context.Context, session, clientID string, in wire.Input) (wire.InputState, error)
	Input(ctx context.Context, session, clientID string) (wire.InputState, error)
	RunCell(ctx context.Context, session, clientID string, in wire.RunCell) (wire.Cell, error)
	Cell(ctx context.Context, id string) (wire.Cell, error)
	InterruptCell(ctx context.Context, id string) (wire.Cell, error)
}

// Processes is what the routes of processes ask for, under the terms of Sessions. Lists come in ascending order, at most
// f.Limit or limit items after the given one; so that a full page can be told from the last one, they are asked for one
// item more than the client wants.
type Processes interface {
	Processes(ctx context.Context, f wire.ProcessFilter) ([]wire.Process, error)
	Process(ctx context.Context, pid uint64) (wire.Process, error)
	Signal(ctx context.Context, pid uint64, clientID string, s wire.Signal) (wire.Process, error)
	Messages(ctx context.Context, pid uint64, after uint64, limit int) ([]wire.Message, error)
	Ledger(ctx context.Context, pid uint64, after string, limit int) ([]wire.LedgerRow, error)
}

// Events is where streams come from: committed rows, and what happens now.
type Events interface {
	// Generation names the database; a restored or copied one has another. It is a valid id (wire.ValidID).
	Generation() string
	// Events returns at most limit committed events of a session with a sequence above after, in order, and the sequences
	// of the first kept and of the last committed event, both 0 if there has been none. A session that is not there is a
	// wire.NotFound.
	Events(ctx context.Context, session string, after uint64, limit int) (events []wire.Event, first, last uint64, err error)
	// Subscribe begins to listen to a session, or to the committed events of all sessions if session is "".
	Subscribe(session string) Subscription
}

// Subscription is one listener: it gets committed events in order (each after its commit) and live events. What it does not
// take in time it loses, and is told so by an item that says Dropped; nobody waits for it.
//
// It is an alias, so that who fills Events can write down the same type without knowing this package.
type Subscription = interface {
	// Next returns the next item. At the end of ctx it returns ctx's error, and no item is lost by that; io.EOF says that
	// another daemon has the session now.
	Next(ctx context.Context) (wire.Item, error)
	Close()
}

// Daemon is what the routes about the daemon itself ask for.
type Daemon interface {
	Status(ctx context.Context) (wire.Status, error)
	// Stop begins to stop the daemon and returns; the answer still goes out.
	Stop(ctx context.Context, s wire.Stop) (wire.Stopped, error)
	Models(ctx context.Context) ([]wire.Model, error)
	// Ready returns why the daemon takes no work now, a *wire.Error with a code of status 503; nil: it does.
	Ready(ctx context.Context) error
}

// Evidence is what the routes of journals, dead letters and traces ask for, under the terms of Processes.
type Evidence interface {
	DeadLetters(ctx context.Context, after string, limit int) ([]wire.DeadLetter, error)
	Redrive(ctx context.Context, letter string) (wire.Redriven, error)
	Discard(ctx context.Context, letter string) (wire.Discarded, error)
	// Journal reads at most limit entries of a neuron's feed after a sequence; neuron is owner/kind/key, feed one of wire's.
	Journal(ctx context.Context, neuron, feed string, after uint64, limit int) (wire.Journal, error)
	// FollowJournal begins to follow a feed after a cursor; nothing that is kept or comes is left out but behind a reset.
	FollowJournal(neuron, feed string, after wire.Cursor) (JournalFollower, error)
	// Trace finds what led to a thing and what followed from it, by any id that a person sees.
	Trace(ctx context.Context, id string) (wire.Trace, error)
}

// Retention is what the routes about what stays and what goes ask for, under the terms of Processes.
type Retention interface {
	// Remove removes a session with all that is its own, or says how far that is; what was begun goes on by itself.
	Remove(ctx context.Context, session string, r wire.Remove) (wire.Removal, error)
	Removal(ctx context.Context, session string) (wire.Removal, error)
	// Prune removes up to r.Limit old sessions; more says that there may be more after the last.
	Prune(ctx context.Context, r wire.Prune) (list []wire.Pruned, more bool, err error)
	// Spent returns what was asked of each model and what it cost, removed sessions included.
	Spent(ctx context.Context) ([]wire.Spent, error)
}

// Shells is what the routes of shell commands ask for, under the terms of Sessions.
type Shells interface {
	Run(ctx context.Context, session, id string, req wire.RunShell) (wire.ShellCommand, error)
	Command(ctx context.Context, session, id string) (wire.ShellCommand, error)
	Interrupt(ctx context.Context, session, id string) (wire.ShellCommand, error)
	// Output returns at most limit bytes from offset on.
	Output(ctx context.Context, session, id string, offset int64, limit int) (wire.ShellPage, error)
}

// JournalFollower is one follower of a journal, an alias for the same reason as Subscription.
type JournalFollower = interface {
	Next(ctx context.Context) (wire.JournalItem, error)
	Close()
}

// Options are the parts of a Server. All are needed, but those that say otherwise.
type Options struct {
	Sessions  Sessions
	Processes Processes
	Events    Events
	Pykernels Pykernels
	Shells    Shells
	Evidence  Evidence
	Retention Retention
	Daemon    Daemon
	// Authorize returns what the bearer of a token may do, Nobody if the token is not valid. It is called for each request
	// and at each heartbeat of a stream, compares in constant time, and knows a new token at once.
	Authorize func(token string) Access
	// Metrics returns what GET /metrics shows, with its content type; nil: nothing is counted.
	Metrics func() (kind string, text []byte, err error)
	// Observe is told of each request that was answered; it must not block. nil: nobody is told.
	Observe func(Answered)
	// Refusal returns what an error of the rooms behind the API is for the client; nil: a failure of the daemon's own. It may be nil.
	Refusal func(err error) *wire.Error
	// Build goes into every answer.
	Build string
	// Log gets failures of the daemon's own, never a token, query or body.
	Log *slog.Logger
	// Exposed is the person's word that a TCP listener may be reached from other machines, and Hosts are the names
	// ("example.org:7621") under which it may be asked. Both are for TCP only and may be left out.
	Exposed bool
	Hosts   []string
	// TLS is how a TCP listener is spoken to; nil: in the clear, which Exposed must allow for other machines.
	TLS *tls.Config
	// Peers are the other daemons of the store; nil: this one answers for everything.
	Peers Peers
}

// Server answers requests. It is safe for use from many goroutines and may serve several listeners.
type Server struct {
	Options
	mux       *http.ServeMux
	uid       uint32        // whose OS processes may speak to the Unix socket
	timeout   time.Duration // of a handler
	heartbeat time.Duration
	reading   time.Duration // how long a body may take to come
	writing   time.Duration // how long a stream's reader may block a write
	streams   atomic.Int64
	listeners atomic.Int64 // of the streams those of other daemons' hints
	most      int64        // streams at one time
}

// New returns a server. The error names a missing part.
func New(o Options) (*Server, error) {
	if o.Sessions == nil || o.Processes == nil || o.Events == nil || o.Pykernels == nil || o.Shells == nil || o.Evidence == nil || o.Retention == nil || o.Daemon == nil || o.Authorize == nil || o.Log == nil {
		return nil, errors.New("cannot make the API: a part is missing")
	}
	s := &Server{
		Options: o, mux: http.NewServeMux(), uid: uint32(os.Geteuid()),
		timeout: defaultTimeout, heartbeat: wire.Heartbeat, reading: bodyLimit, writing: writeLimit, most: maxStreams,
	}
	s.register(routes())
	return s, nil
}
