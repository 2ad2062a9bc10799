package supervise

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/pykernel"
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
	Kernel string
	Owner  neuron.ID
	ID     string // unique for ever
	Cell   string
	Method string // namespace.name
	Args   []byte // JSON
}

// Host answers host calls, routed by namespace. Its methods are called from many goroutines, one per call.
type Host interface {
	// Policy says what happens to a call that an earlier daemon began and did not answer (P-020): an Idempotent one runs
	// again under the same id, any other is answered with code "unknown".
	Policy(method string) neuron.Policy
	// Call returns a JSON value or a refusal.
	Call(ctx context.Context, c Call) ([]byte, *pykernel.CallError)
}

// Options configure a Supervisor. Fields without a default are required.
type Options struct {
	RunDir    string // holds one directory per live python kernel
	BundleDir string // holds the unpacked Python sources
	SourceDir string // a developer's Python tree instead of the embedded one (SOMA_PYTHON_DIR); empty: embedded
	Node      string
	Neurons   Neurons
	Reader    neuron.Reader
	// Place is the place of a kernel's writes; nil means neuron.PlaceOf(session).
	Place func(owner neuron.ID, session string) neuron.Place
	// Epoch is the epoch of the daemon's lease, sent with each attach; nil means 1.
	Epoch func() uint64
	// Env is the whole environment of python kernels, "NAME=value" each.
	Env func() []string
	// Output takes live output: droppable, called in order per cell, must not block. May be nil.
	Output func(kernel, cell string, offset int64, text string)
	Host   Host // nil: every host call is answered not_found
	Now    func() time.Time
	Log    *slog.Logger
	// MaxLive bounds live python kernels; 0 means 32.
	MaxLive int
	// Grace is how long an unattended kernel lives on; 0 means one hour.
	Grace time.Duration
}

// ErrOutboxFull: too many frames wait for a python kernel (P-122).
var ErrOutboxFull = errors.New("too many frames wait for the python kernel")

// Status describes one live python kernel.
type Status struct {
	ID      string
	Session string
	Owner   neuron.ID
	OSPID   int    // 0 until it is known
	State   string // waiting, booting, attached, detached, ending
	Cells   int    // cells that are not finished
	Since   time.Time
}

// Supervisor owns the python kernels of one node. Its methods are safe for concurrent use.
type Supervisor struct {
	opt   Options
	tasks lifecycle.Tasks
}

// New returns a supervisor that does nothing before Start. The error names a missing option or says why the Python
// sources cannot be unpacked.
func New(o Options) (*Supervisor, error) { return &Supervisor{opt: o}, nil }

// Start recovers the python kernels of this node from their rows and starts to serve new ones. It is called once, before
// the engine takes work. The kernels' goroutines end when ctx does, or at Stop. Kernels are re-attached in the background;
// the error is that of a failed read.
func (s *Supervisor) Start(ctx context.Context) error { return nil }

// Committed takes the write operations of one commit, in commit order; those of other rooms are passed over. It does not
// block. Frames for a kernel go out from here.
func (s *Supervisor) Committed(ops []neuron.Op) {}

// Room returns ErrOutboxFull when a python kernel can take no more frames for now; a caller asks before it commits one.
// A kernel that is not known yet has room.
func (s *Supervisor) Room(kernel string) error { return nil }

// List returns all live python kernels by age.
func (s *Supervisor) List() []Status { return nil }

// EndAll ends all python kernels of this node with their process groups and tells their owners. It returns when nothing
// is left or with ctx's error; it works between Start and Stop.
func (s *Supervisor) EndAll(ctx context.Context) error { return nil }

// Stop detaches: the kernels live on. It waits for all goroutines, until ctx ends.
func (s *Supervisor) Stop(ctx context.Context) error { return s.tasks.Stop(ctx) }
