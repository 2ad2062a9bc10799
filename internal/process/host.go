package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"soma/ident"
	"soma/internal/agent/model"
	"soma/internal/agent/price"
	"soma/internal/agent/tool"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/process/history"
	"soma/internal/process/live"
	"soma/internal/process/pids"
	"soma/internal/process/recent"
	"soma/internal/process/shown"
	"soma/internal/process/spool"
	"soma/wire"
)

// Neurons is what the host needs of the engine.
type Neurons interface {
	// Deliver runs the delivery's turn and returns after its commit: nil also for a duplicate, *neuron.Refusal when the
	// neuron refused, another error when the attempt failed and may be repeated under the same id.
	Deliver(ctx context.Context, d neuron.Delivery) error
	// Write commits operations without a turn.
	Write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error
}

// Model is a model as found under the name that a process carries.
type Model struct {
	Vendor   string // openai, script, …: the provider family
	Model    string // the provider's own name of it
	Provider model.Provider
}

// Models finds a model by the name that a person chose.
type Models interface {
	// Find returns the model; the error is a *wire.Error with code no_model or unprocessable.
	Find(ctx context.Context, name string) (Model, error)
}

// Options are what the host is made of; all fields are required but where noted.
type Options struct {
	Owner  string // the tenant-side identity of this home
	Node   string
	Reader neuron.Reader
	Models Models
	Prices *price.Table
	// Python is the interpreter of sessions that name none, empty when none was found.
	Python string
	// Room says why a python kernel takes no more frames for now; nil, like a nil error, means that it takes them.
	Room func(kernel string) error
	// Hold leaves interrupted processes blocked after a crash instead of resuming them (K-04).
	Hold          bool
	MaxConcurrent int // processes in Running at once
	// Shared says that other nodes hold places of the store, too: which are held here Gain and Release say. Otherwise all are
	// from Start on.
	Shared bool
	// NodeOf names the node that holds a place, "" where nobody does; nil: there is one node only.
	NodeOf func(neuron.Place) string
	// Spool is the folder of the answers that wait for their commit.
	Spool string
	// Live shows something that is not truth to whoever follows the session now; it must not block. kind and body are of wire.
	Live func(session, kind string, body any)
	// Billed and CellEnded are told of each committed ledger row and of each cell that has ended, in commit order, for diagnosis;
	// they must not block. nil: nobody is told.
	Billed    func(Bill)
	CellEnded func(CellEnd)
	// Facts reach script models, such as the daemon's pid.
	Facts map[string]string
	// Rules are what the bindings of the python namespace say to the model, each rule once.
	Rules string
	// Background is after what time an agent's cell goes on in the background; 0: never.
	Background time.Duration
	Now        func() time.Time
	Log        *slog.Logger
}

// Host runs agent processes: it gives the engine its kinds and its adapter, drives the scheduler, and answers the reads of
// the API. It is safe for concurrent use.
type Host struct {
	o       Options
	neurons Neurons
	slots   *slots
	pids    pids.Block
	live    live.Texts
	cells   cells.Live
	spools  spool.Slots
	places  places
	shown   shown.Processes
	tools   *tool.Registry

	histories history.Branches
	texts     *recent.Map[inputKey, string] // of inputs, as committed
	states    *recent.Map[ident.PID, decoded]
}

// Bounds of what is remembered, in entries and in bytes of one.
const (
	maxTexts     = 8192
	maxTextSize  = 1 << 10
	maxStates    = 1024
	maxStateSize = 8 << 10
)

type inputKey struct{ session, clientID string }

// New returns a host that is not running yet: wire its Kinds and Adapter into an engine, then Start it with that engine.
func New(o Options) *Host {
	h := &Host{
		o: o, places: places{known: recent.New[string, neuron.Place](maxPlaces)}, texts: recent.New[inputKey, string](maxTexts),
		states: recent.New[ident.PID, decoded](maxStates), tools: newTools(o.Rules),
	}
	h.slots = newSlots(h)
	h.spools.Dir = o.Spool
	return h
}

// Kinds returns the kinds of neurons that live here.
func (h *Host) Kinds() []*neuron.Kind { return []*neuron.Kind{h.sessionKind(), h.processKind()} }

// Aliases returns every alias that these neurons send or handle.
func (h *Host) Aliases() []string { return aliases }

// Adapter returns the adapter of the execution kind InferenceKind.
func (h *Host) Adapter() neuron.Adapter { return (*inference)(h) }

// Bind gives the host the engine, before that is started: recovery may already need it.
func (h *Host) Bind(n Neurons) {
	h.neurons = n
	h.pids.Reader, h.pids.Write = h.o.Reader, n.Write
}

// Load finds what an earlier daemon left beside the store and in it. It comes before the engine's start.
func (h *Host) Load(ctx context.Context) error {
	h.places.find = func(pid ident.PID) (session string, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		row, err := findProcess(h.rows(ctx), pid)
		if err != nil || row == nil {
			return "", err
		}
		return row.session, nil
	}
	keep := map[ident.ID]bool{}
	err := h.rows(ctx).Query(`select id, attempt from execution where kind = ?`, []any{InferenceKind}, func(scan func(...any) error) error {
		var b []byte
		var attempt uint16
		if err := scan(&b, &attempt); err != nil {
			return err
		}
		id, err := ident.FromBytes(b)
		keep[id.WithAttempt(attempt)] = true
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read the running inferences: %w", err)
	}
	return h.spools.Load(keep)
}

// lookupTime bounds a read that nobody gives a context.
const lookupTime = 5 * time.Second

// Start begins to give out slots, and without Shared takes all places over and reserves pids. The engine must run; ctx bounds
// the start only.
func (h *Host) Start(ctx context.Context) error {
	if h.o.Shared {
		return h.slots.start(ctx)
	}
	return errors.Join(h.Gain(ctx, neuron.AllPlaces()), h.pids.Reserve(ctx, neuron.PlaceOf(h.o.Node)), h.slots.start(ctx))
}

// Stop ends what the host runs by itself and waits for it.
func (h *Host) Stop(ctx context.Context) error {
	return errors.Join(h.slots.stop(ctx), h.spools.Close())
}

// Committed takes an operation of a committed record, in commit order. It does not block.
func (h *Host) Committed(op neuron.Op) {
	switch op := op.(type) {
	case *insertInput:
		if op.mode == wire.InputWake {
			crash.Point(crash.WakeCommitted)
		} else if len(op.text) <= maxTextSize {
			h.texts.Put(inputKey{op.session, op.clientID}, op.text)
		}
		h.shown.Inputs(op.session)
	case *moveInput:
		h.shown.Inputs(op.session)
	case *endInput:
		h.shown.Inputs(op.session)
	case *insertMessage:
		h.histories.Committed(op.branch, op.seq, op.said, op.size)
	case *Update:
		if !op.endedAt.IsZero() {
			h.histories.Forget(op.branch)
		}
		h.shown.Changed(op.PID)
		h.slots.update(op)
	case *cells.Insert:
		h.cells.Committed(op)
	case *cells.End:
		h.cells.Committed(op)
		h.cellEnded(op)
	case *insertLedger:
		h.spools.Release(op.id)
		h.billed(op)
	case *MarkRemoving:
		h.histories.Forget(op.branch)
		h.shown.Inputs(op.Session)
	case *DropSession:
		h.shown.Forget(op.ID)
	}
}
