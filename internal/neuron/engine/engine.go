package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/internal/feed"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/fifo"
	"soma/internal/neuron/inflight"
	"soma/internal/neuron/observe"
)

// Options are what an engine is made of. Store, Kinds and Types are needed.
type Options struct {
	Store neuron.Store
	// Kinds are all classes of neurons of this program.
	Kinds []*neuron.Kind
	// Types are the aliases of all messages that may be sent or handled. An alias listed twice or a handler of an unlisted
	// one fails in New; a turn that sends an unlisted one is settled with code Refused.
	Types []string
	// Adapters perform executions, by Execution.Kind.
	Adapters map[string]neuron.Adapter
	// Relay knows the connections between neurons; nil: there are none.
	Relay neuron.Relay
	// Busy says that a place must not be given up now, for what goes on there that the engine does not see; nil: nothing does.
	// It may be called while other calls run and must not call the engine.
	Busy func(neuron.Place) bool
	// Elsewhere is told of committed outbox rows whose places this node does not hold, after their commit: hints for the
	// nodes that do. It must not block nor call the engine.
	Elsewhere func([]neuron.Hint)
	// Leased says that this node may still believe that it holds its places; nil: it may for ever. Once it says no, nothing
	// is taken and nothing is answered from memory: the error is neuron.ErrFenced.
	Leased func() bool
	// Node is the name under which places are claimed; empty means "local".
	Node string
	// Limits; a zero field gets its default.
	Limits neuron.Limits
	// Now is the clock of everything that is stored; nil means time.Now. Waits are measured on the monotonic clock.
	Now func() time.Time
	Log *slog.Logger
	// Committed is called after each commit with its records, in commit order, by one goroutine, before watchers and
	// callers hear of it. It must not block nor keep the slice. A panic ends the engine by Fatal.
	Committed func(group []*neuron.Record)
	// Fatal is called once, from a goroutine of the engine, when the store cannot go on (fenced, outcome unknown, input or
	// output error) or Committed panicked: the program must end, and its next start recovers.
	Fatal func(error)
	// Observer is told what happens; nil: nobody is.
	Observer observe.Observer
	// Inflight is the path of a small file with the ids of the deliveries whose handlers run. It survives a kill of the
	// program, so that the next Start charges a crash to exactly these (N-45). Empty: no crash is charged.
	Inflight string
	// Generation names the life of the database in feed cursors.
	Generation string
}

// Engine runs the neurons of one daemon. Its methods are safe for concurrent use.
type Engine struct {
	store     neuron.Store
	kinds     map[string]*neuron.Kind
	types     map[string]string // alias to itself: one string for all rows
	adapters  map[string]neuron.Adapter
	heard     map[string][]*neuron.Kind // who hears an emission, by alias
	relay     neuron.Relay
	node      string
	limits    neuron.Limits
	now       func() time.Time
	log       *slog.Logger
	committed func([]*neuron.Record)
	fatal     func(error)
	observer  observe.Observer
	inflight  *inflight.File
	path      string
	journals  *feed.Hub[journal, neuron.Entry]

	loops, commits, runs lifecycle.Tasks // workers and clock; the committer; executions
	fence                atomic.Pointer[neuron.Fence]
	keys                 keys
	busy                 func(neuron.Place) bool
	elsewhere            func([]neuron.Hint)
	leased               func() bool
	kick                 chan struct{} // capacity 1: the clock looks again
	ending               chan struct{} // closed when the engine begins to stop
	broken               chan struct{} // closed when it cannot go on
	calls                *call.Tender

	// moving serializes what moves places and rows into memory. It comes before mu.
	moving      sync.Mutex
	wereRunning map[ident.ID]struct{} // rows whose handlers ran when the node's last life crashed
	crashed     bool                  // the node's last life ended without a stop
	sweeps      int

	mu       sync.Mutex
	phase    phase
	held     neuron.PlaceSet
	loading  neuron.PlaceSet // places that are being gained
	late     []ident.ID      // rows that were committed here for loading places
	away     []neuron.Hint   // rows of other nodes' places, for Options.Elsewhere
	failed   error           // why nothing can be committed any more
	runnable sync.Cond
	runq     fifo.Queue[*activation]
	warm     map[neuron.ID]*activation
	resting  list // idle activations, longest idle first
	waiting  int  // deliveries in mailboxes
	running  int  // activations on workers
	crew     crew
	waits    waits
	accepts  map[ident.ID]chan struct{}
	drain    drain
	execs    map[ident.ID]*ongoing
	newest   ident.ID         // greatest delivery id seen
	suspects map[ident.ID]int // deliveries without a row: crashes that are charged to them
	quiet    []chan struct{}  // closed when nothing is left to do
	handlers []chan struct{}  // closed when no handler runs
	turns    uint64
	groups   uint64

	pending committer
}

// phase is where the engine is in its life.
type phase uint8

const (
	created phase = iota
	started
	stopping
	stopped
)

// New checks the wiring and returns an engine that does not run yet. All mistakes are joined in the error.
func New(o Options) (*Engine, error) {
	e := &Engine{
		store: o.Store, kinds: map[string]*neuron.Kind{}, types: map[string]string{}, adapters: o.Adapters, relay: o.Relay, node: o.Node,
		busy: o.Busy, elsewhere: o.Elsewhere, leased: o.Leased, limits: withDefaults(o.Limits), now: o.Now, log: o.Log, committed: o.Committed, fatal: o.Fatal, observer: o.Observer, path: o.Inflight,
		journals: feed.NewHub[journal, neuron.Entry](o.Generation), kick: make(chan struct{}, 1), ending: make(chan struct{}), broken: make(chan struct{}),
		waits: waits{by: map[ident.ID]*hold{}, on: map[neuron.ID]neuron.ID{}},
		warm:  map[neuron.ID]*activation{}, accepts: map[ident.ID]chan struct{}{}, execs: map[ident.ID]*ongoing{},
	}
	e.runnable.L = &e.mu
	e.pending.arrived.L = &e.pending.mu
	e.drain.init()
	e.calls = call.NewTender(desk{e}, func(err error) { e.log.Error("cannot look after calls without an end", "error", err) })
	e.keys.next = 1
	if e.node == "" {
		e.node = "local"
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if e.store == nil {
		errs = append(errs, errors.New("no store"))
	}
	for _, alias := range append(append(call.Aliases(), endedAlias), o.Types...) {
		if _, ok := e.types[alias]; ok || alias == "" {
			errs = append(errs, fmt.Errorf("type %q is listed twice or empty", alias))
		}
		e.types[alias] = alias
	}
	for _, k := range o.Kinds {
		if _, ok := e.kinds[k.Name]; ok || k.Name == neuron.ClientKind || (neuron.ID{Owner: "o", Kind: k.Name, Key: "k"}).Check() != nil {
			errs = append(errs, fmt.Errorf("kind %q is listed twice, reserved or no name", k.Name))
		}
		e.kinds[k.Name] = k
		errs = append(errs, k.Check()...)
		for _, alias := range k.Aliases() {
			if _, ok := e.types[alias]; !ok {
				errs = append(errs, fmt.Errorf("kind %s handles %s, which is not listed", k.Name, alias))
			}
		}
	}
	e.heard = broadcasters(e.kinds)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("cannot wire the engine: %w", err)
	}
	return e, nil
}

func withDefaults(l neuron.Limits) neuron.Limits {
	d := neuron.DefaultLimits()
	l.PayloadBytes = or(l.PayloadBytes, d.PayloadBytes)
	l.JournalEntries = or(l.JournalEntries, d.JournalEntries)
	l.JournalBytes = or(l.JournalBytes, d.JournalBytes)
	l.CheckpointTurn = or(l.CheckpointTurn, d.CheckpointTurn)
	l.DedupeWindow = or(l.DedupeWindow, d.DedupeWindow)
	l.AttemptTime = or(l.AttemptTime, d.AttemptTime)
	l.Attempts = or(l.Attempts, d.Attempts)
	l.Horizon = or(l.Horizon, d.Horizon)
	l.Crashes = or(l.Crashes, d.Crashes)
	l.Depth = or(l.Depth, d.Depth)
	l.Receivers = or(l.Receivers, d.Receivers)
	l.Waiting = or(l.Waiting, d.Waiting)
	l.BackoffMin = or(l.BackoffMin, d.BackoffMin)
	l.BackoffMax = or(l.BackoffMax, d.BackoffMax)
	l.GroupRecords = or(l.GroupRecords, d.GroupRecords)
	l.GroupBytes = or(l.GroupBytes, d.GroupBytes)
	l.Mailbox = or(l.Mailbox, d.Mailbox)
	l.Warm = or(l.Warm, d.Warm)
	l.IdleAfter = or(l.IdleAfter, d.IdleAfter)
	return l
}

func or[T int | time.Duration](v, d T) T {
	if v > 0 {
		return v
	}
	return d
}

// workers is how many handlers run at once.
func workers() int { return max(2, runtime.GOMAXPROCS(0)) }

// PlaceOf returns the place of a neuron, held here or not.
func (e *Engine) PlaceOf(id neuron.ID) neuron.Place { return e.placeOf(id) }

// placeOf returns the place of a neuron; one of a kind that this program does not know is placed by its text.
func (e *Engine) placeOf(id neuron.ID) neuron.Place {
	if k := e.kinds[id.Kind]; k != nil {
		return k.PlaceOf(id)
	}
	return neuron.PlaceOf(id.String())
}
