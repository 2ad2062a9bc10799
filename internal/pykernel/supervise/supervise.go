package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/config"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
)

// Neurons is what the supervisor needs of the engine. Both methods block until the commit and are safe for concurrent use.
type Neurons interface {
	// Accept delivers d with ops in one commit: nil means that the delivery is durable and ops are committed, whatever
	// the handler still does or however a repeat was settled. Any error is tried again.
	Accept(ctx context.Context, d neuron.Delivery, ops ...neuron.Op) error
	// Write commits ops alone.
	Write(ctx context.Context, place neuron.Place, ops ...neuron.Op) error
}

// Call is one host call of a cell.
type Call struct {
	Kernel  string
	Session string
	Branch  ident.ID
	Owner   neuron.ID
	ID      string // unique for ever
	Cell    string // empty for a call that outlives its cell
	Method  string // namespace.name
	Args    json.RawMessage
}

// Host answers host calls, routed by namespace. Its methods are called from many goroutines, one per call.
type Host interface {
	// Policy says what happens to a call that an earlier daemon began and did not answer (P-020): an Idempotent one runs
	// again under the same id, any other is answered with code "unknown".
	Policy(method string) neuron.Policy
	// Call returns a JSON value or a refusal.
	Call(ctx context.Context, c Call) (json.RawMessage, *pykernel.CallError)
}

// Options configure a Supervisor. Fields without a default are required.
type Options struct {
	RunDir    string // holds one directory per live python kernel
	BundleDir string // holds the unpacked Python sources
	SourceDir string // a developer's Python tree instead of the embedded one (SOMA_PYTHON_DIR); empty: embedded
	// OutputDir takes output that outgrows memory; empty: python kernels use a temporary directory.
	OutputDir string
	// Modules are the bindings that python kernels set up, in order; Sources holds their sources, which join the embedded ones.
	Modules []string
	Sources []bundle.Module
	Node    string
	// Shared says that other nodes hold places of the store, too: Gain and Release say which python kernels are this node's.
	// Otherwise all are from Start on.
	Shared  bool
	Neurons Neurons
	Reader  neuron.Reader
	// Place is the place of a kernel's writes; nil means neuron.PlaceOf(session).
	Place func(owner neuron.ID, session string) neuron.Place
	// Epoch is the epoch of the daemon's lease, sent with each attach; nil means 1.
	Epoch func() uint64
	// Env is the whole environment of python kernels, "NAME=value" each.
	Env func() []string
	// Output takes live output: droppable, called in order per cell, must not block. May be nil.
	Output func(kernel, cell string, offset int64, text string)
	// Dial reaches a python kernel's socket; nil means config.DialSocket. Tests cut the line here.
	Dial func(ctx context.Context, socket string) (net.Conn, error)
	Host Host // nil: every host call is answered not_found
	Now  func() time.Time
	Log  *slog.Logger
	// MaxLive bounds live python kernels; 0 means 32.
	MaxLive int
	// Grace is how long an unattended kernel lives on; 0 means one hour.
	Grace time.Duration
}

// ErrOutboxFull: too many frames wait for a python kernel (P-122).
var ErrOutboxFull = errors.New("too many frames wait for the python kernel")

// Status describes one live python kernel.
type Status struct {
	ID        string
	Session   string
	Owner     neuron.ID
	Workspace string
	Python    string
	OSPID     int    // 0 until it is known
	State     string // waiting, booting, attached, detached, ending
	Cells     int    // cells that are not finished
	Since     time.Time
	Used      time.Time // when it last got a frame or finished a cell in this daemon
}

// Supervisor owns the python kernels of one node. Its methods are safe for concurrent use.
type Supervisor struct {
	opt    Options
	bundle bundle.Bundle
	tasks  lifecycle.Tasks
	hatch  chan struct{} // capacity 1: there are kernels without an owner goroutine

	mu      sync.Mutex
	kernels map[string]*kernel
	unowned []*kernel
	held    map[string]bool // kernels that hold one of the MaxLive places
	change  chan struct{}   // closed and made anew when a place or an idle kernel may be had
	closing bool            // EndAll was called
}

// New returns a supervisor that does nothing before Start. The error names a missing option or says why the Python
// sources cannot be unpacked.
func New(o Options) (*Supervisor, error) {
	for name, missing := range map[string]bool{
		"RunDir": o.RunDir == "", "BundleDir": o.BundleDir == "", "Node": o.Node == "", "Neurons": o.Neurons == nil,
		"Reader": o.Reader == nil, "Env": o.Env == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot supervise python kernels: no %s", name)
		}
	}
	if o.Place == nil {
		o.Place = place
	}
	if o.Epoch == nil {
		o.Epoch = func() uint64 { return 1 }
	}
	if o.Dial == nil {
		o.Dial = config.DialSocket
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxLive == 0 {
		o.MaxLive = 32
	}
	if o.Grace == 0 {
		o.Grace = time.Hour
	}
	s := &Supervisor{
		opt: o, hatch: make(chan struct{}, 1), kernels: map[string]*kernel{}, held: map[string]bool{},
		change: make(chan struct{}),
	}
	var err error
	if s.bundle, err = s.unpack(); err != nil {
		return nil, err
	}
	s.tasks.Report = func(name string, err error) { o.Log.Error("python kernel owner failed", "task", name, "err", err) }
	return s, nil
}

// unpack lays the sources of python kernels out, or looks whether they still lie there.
func (s *Supervisor) unpack() (bundle.Bundle, error) {
	if s.opt.SourceDir != "" {
		return bundle.UnpackTree(s.opt.SourceDir, s.opt.BundleDir, s.opt.Sources...)
	}
	return bundle.Unpack(s.opt.BundleDir, s.opt.Sources...)
}

// Start recovers the python kernels of this node from their rows and starts to serve new ones. It is called once, before
// the engine takes work. The kernels' goroutines end when ctx does, or at Stop. Kernels are re-attached in the background;
// the error is that of a failed read.
func (s *Supervisor) Start(ctx context.Context) error {
	if err := os.MkdirAll(s.opt.RunDir, 0o700); err != nil {
		return fmt.Errorf("cannot recover python kernels: %w", err)
	}
	if s.opt.Shared {
		if err := s.sweepBundles(ctx); err != nil {
			s.opt.Log.Warn("cannot remove old python sources", "err", err)
		}
		return errors.Join(s.tasks.Go(ctx, "lost python kernels", s.tend), s.tasks.Go(ctx, "python kernels", s.serve))
	}
	found, err := s.recover(ctx, neuron.AllPlaces())
	if err != nil {
		return fmt.Errorf("cannot recover python kernels: %w", err)
	}
	for _, k := range found {
		s.kernels[k.id] = k
	}
	if err := s.sweep(s.kernels); err != nil {
		s.opt.Log.Warn("cannot remove old run directories", "err", err)
	}
	if err := s.sweepBundles(ctx); err != nil {
		s.opt.Log.Warn("cannot remove old python sources", "err", err)
	}
	s.adopt(found...)
	return s.tasks.Go(ctx, "python kernels", s.serve)
}

// serve gives each new python kernel its owner goroutine.
func (s *Supervisor) serve(ctx context.Context) error {
	for {
		s.mu.Lock()
		fresh := s.unowned
		s.unowned = nil
		s.mu.Unlock()
		for _, k := range fresh {
			err := s.tasks.Go(ctx, "python kernel "+k.id, func(ctx context.Context) error {
				defer s.forget(k)
				return k.own(ctx)
			})
			if err != nil {
				return nil // stopping
			}
		}
		select {
		case <-s.hatch:
		case <-ctx.Done():
			return nil
		}
	}
}

// adopt queues kernels for serve.
func (s *Supervisor) adopt(found ...*kernel) {
	s.mu.Lock()
	s.unowned = append(s.unowned, found...)
	s.mu.Unlock()
	select {
	case s.hatch <- struct{}{}:
	default:
	}
}

func (s *Supervisor) forget(k *kernel) {
	s.mu.Lock()
	delete(s.kernels, k.id)
	delete(s.held, k.id) // of one that was let go
	s.mu.Unlock()
	s.changed()
	k.tellWatchers()
}

func (s *Supervisor) find(id string) *kernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kernels[id]
}

// Committed takes the write operations of one commit, in commit order; those of other rooms are passed over. It does not
// block. Frames for a kernel go out from here.
func (s *Supervisor) Committed(ops []neuron.Op) {
	var born []*kernel
	for _, op := range ops {
		switch op := op.(type) {
		case *pykernel.InsertKernel:
			if k := s.insert(op); k != nil {
				born = append(born, k)
			}
		case *pykernel.AppendFrame:
			if k := s.find(op.Kernel); k != nil {
				k.append(op, false)
			} else {
				s.opt.Log.Error("frame for a python kernel that nobody owns", "kernel", op.Kernel, "frame", op.Seq)
			}
		case *pykernel.EvictKernel:
			if k := s.find(op.ID); k != nil {
				k.end(op.Reason)
			}
		case *pykernel.EndKernel:
			if k := s.find(op.ID); k != nil {
				k.end(op.Reason)
			}
		}
	}
	// Their owners begin with the first frames at hand: these say how long a boot may wait.
	if len(born) > 0 {
		s.adopt(born...)
	}
}

// insert takes a new python kernel; nil where it is not for this node or known.
func (s *Supervisor) insert(op *pykernel.InsertKernel) *kernel {
	if op.Node != s.opt.Node {
		return nil
	}
	k, err := s.newKernel(op)
	if err != nil {
		// The row is of this program's own making; its owner gets no outcome from a kernel that cannot be named.
		s.opt.Log.Error("cannot own a python kernel", "kernel", op.ID, "owner", op.Owner, "err", err)
		return nil
	}
	s.mu.Lock()
	closing := s.closing
	known := s.kernels[k.id] != nil
	if !known {
		s.kernels[k.id] = k
	}
	s.mu.Unlock()
	if known {
		return nil
	}
	if closing {
		k.end(endAllReason)
	}
	return k
}

// Room returns ErrOutboxFull when a python kernel can take no more frames for now; a caller asks before it commits one.
// A kernel that is not known yet has room.
func (s *Supervisor) Room(kernel string) error {
	if k := s.find(kernel); k != nil && k.link.Room() != nil {
		return fmt.Errorf("%w: %w", ErrOutboxFull, k.link.Room())
	}
	return nil
}

// List returns all live python kernels by age.
func (s *Supervisor) List() []Status {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.kernels))
	s.mu.Unlock()
	list := make([]Status, 0, len(all))
	for _, k := range all {
		list = append(list, k.status())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return list
}

const endAllReason = "all python kernels were ended"

// EndAll ends all python kernels of this node with their process groups and tells their owners. It returns when nothing
// is left or with ctx's error; it works between Start and Stop.
func (s *Supervisor) EndAll(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for _, k := range s.kernels {
		k.end(endAllReason)
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		left, change := len(s.kernels), s.change
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("cannot end %d python kernels: %w", left, context.Cause(ctx))
		}
	}
}

// Stop detaches: the kernels live on. It waits for all goroutines, until ctx ends.
func (s *Supervisor) Stop(ctx context.Context) error { return s.tasks.Stop(ctx) }
