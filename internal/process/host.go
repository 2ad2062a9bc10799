package process

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"soma/internal/agent/model"
	"soma/internal/agent/price"
	"soma/internal/neuron"
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
	Find(name string) (Model, error)
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
	// Hold leaves interrupted processes blocked after a crash instead of resuming them (K-04).
	Hold          bool
	MaxConcurrent int // processes in Running at once
	// Spool is the folder of the answers that wait for their commit.
	Spool string
	// Live shows something that is not truth to whoever follows the session now; it must not block. kind and body are of wire.
	Live func(session, kind string, body any)
	// Facts reach script models, such as the daemon's pid.
	Facts map[string]string
	Now   func() time.Time
	Log   *slog.Logger
}

// Host runs agent processes: it gives the engine its kinds and its adapter, drives the scheduler, and answers the reads of
// the API. It is safe for concurrent use.
type Host struct {
	o       Options
	neurons Neurons
	slots   *slots
	pids    pidBlock
	live    liveTexts
	cells   liveCells
	spools  spools

	histories histories

	mu     sync.Mutex
	places map[string]neuron.Place // of process keys, as far as looked up
}

// New returns a host that is not running yet: wire its Kinds and Adapter into an engine, then Start it with that engine.
func New(o Options) *Host {
	h := &Host{o: o, places: map[string]neuron.Place{}}
	h.slots = newSlots(h)
	h.pids.host = h
	h.spools.dir = o.Spool
	return h
}

// Kinds returns the kinds of neurons that live here.
func (h *Host) Kinds() []*neuron.Kind { return []*neuron.Kind{h.sessionKind(), h.processKind()} }

// Aliases returns every alias that these neurons send or handle.
func (h *Host) Aliases() []string { return aliases }

// Adapter returns the adapter of the execution kind InferenceKind.
func (h *Host) Adapter() neuron.Adapter { return (*inference)(h) }

// Bind gives the host the engine, before that is started: recovery may already need it.
func (h *Host) Bind(n Neurons) { h.neurons = n }

// Start reserves pids and queues every process that is Ready. The engine must run; ctx bounds the start only.
func (h *Host) Start(ctx context.Context) error {
	return errors.Join(h.pids.reserve(ctx), h.slots.start(ctx))
}

// Stop ends what the host runs by itself and waits for it.
func (h *Host) Stop(ctx context.Context) error {
	return errors.Join(h.slots.stop(ctx), h.spools.close())
}
