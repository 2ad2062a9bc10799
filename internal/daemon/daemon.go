package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"soma/internal/api"
	"soma/internal/config"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/evidence"
	"soma/internal/neuron/graph"
	"soma/internal/process"
	"soma/internal/process/facts"
	"soma/internal/pykernel"
	"soma/internal/pykernel/supervise"
	"soma/internal/store/sqlite"
	"soma/internal/telemetry"
	"soma/wire"
)

// owner is the tenant-side identity of the one person of a home.
const owner = wire.Owner

// Deadlines of a stop: the parts get detachTime in all; ending the python kernels takes up to endTime before that.
const (
	detachTime = 5 * time.Second
	endTime    = 30 * time.Second
)

// Options say how a daemon runs.
type Options struct {
	Build string
	Log   io.Writer
	Env   config.Env
	// Environ returns the whole environment as NAME=value, like os.Environ.
	Environ func() []string
}

// daemon is one running instance.
type daemon struct {
	home   config.Home
	config *config.Config
	o      Options
	log    *slog.Logger
	began  time.Time

	store  *sqlite.Store
	engine *engine.Engine
	host   *process.Host
	sup    *supervise.Supervisor
	models *models
	events *events
	token  *config.TokenChecker
	// telemetry is told things and asked nothing, but by who scrapes it.
	telemetry *telemetry.Telemetry
	// claimed is closed once the engine has its epoch, or has failed to get one.
	claimed chan struct{}

	// ctx lives as long as the OS process: parts that are stopped in order must not end at the first signal already.
	ctx   context.Context
	stop  context.CancelCauseFunc // ends Run
	mu    sync.Mutex
	fatal error
}

// Run serves a home until ctx ends or a client asks to stop; python kernels live on. Errors: *config.LockedError;
// *config.HomeError, also for a store that cannot be opened (it wraps sqlite.SchemaError) or cannot go on.
func Run(ctx context.Context, home config.Home, cfg *config.Config, o Options) (err error) {
	d := &daemon{home: home, config: cfg, o: o, began: time.Now(), token: home.TokenChecker(), claimed: make(chan struct{})}
	d.log = slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: cfg.LogLevel}))
	if err := home.Create(); err != nil {
		return err
	}
	lock, err := home.Lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := home.EnsureToken(); err != nil {
		return err
	}
	defer lifecycle.Headroom()()
	d.ctx = context.WithoutCancel(ctx)
	asked := ctx
	ctx, d.stop = context.WithCancelCause(d.ctx)
	defer d.stop(nil)
	defer context.AfterFunc(asked, func() { d.stop(api.ErrAsked) })()
	if err := d.wire(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.store.Close()) }()
	return d.run(ctx, lock)
}

// wire makes all parts; none of them runs yet but the store.
func (d *daemon) wire(ctx context.Context) (err error) {
	sequences := append(process.Sequences(), neuron.Sequence{
		Name: pykernel.FrameSequence, Last: pykernel.FrameSequenceLast, Save: pykernel.FrameSequenceSave,
	})
	if d.store, err = sqlite.Open(ctx, d.home.Database(), sqlite.Options{Sequences: sequences, Migrations: d.migrations()}); err != nil {
		return d.unusable(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.store.Close())
		}
	}()
	table, err := prices(d.config)
	if err != nil {
		return err
	}
	d.events = newEvents()
	d.models = newModels(d.config, d.o.Env)
	d.host = process.New(process.Options{
		Owner: owner, Node: node, Reader: d.store, Models: d.models, Prices: table, Python: d.python(),
		Room: d.room, Hold: d.config.Recover == config.Hold, MaxConcurrent: d.config.MaxConcurrent, Spool: d.home.Spool(),
		Billed: d.billed, CellEnded: d.cellEnded, Live: d.events.live, Facts: map[string]string{"DaemonPID": strconv.Itoa(os.Getpid())}, Now: now, Log: d.log,
	})
	connections, err := graph.New(graph.Options{Reader: d.store})
	if err != nil {
		return err
	}
	options := engine.Options{
		Store: d.neuronStore(), Kinds: append(d.host.Kinds(), connections.Kind()), Types: append(d.host.Aliases(), graph.Aliases()...),
		Relay:    connections,
		Adapters: map[string]neuron.Adapter{process.InferenceKind: d.host.Adapter()},
		Node:     node, Now: now, Log: d.log, Committed: d.committed, Fatal: d.fail, Inflight: filepath.Join(d.home.Cache(), "inflight"),
		Generation: d.store.Generation(),
	}
	d.observe(&options)
	if d.engine, err = engine.New(options); err != nil {
		return err
	}
	d.host.Bind(d.engine)
	d.sup, err = supervise.New(supervise.Options{
		RunDir: d.home.Run(), BundleDir: d.home.Bundles(), SourceDir: d.env("SOMA_PYTHON_DIR"), Node: node, Neurons: d.engine,
		Reader: d.store, Env: d.pykernelEnv, Output: d.output, Now: now, Log: d.log, MaxLive: d.config.MaxPykernels,
		Grace: d.config.PykernelGrace, Epoch: d.epoch,
	})
	return d.unusable(err)
}

// unusable says of a fault in what the home holds that it is the home's; nil stays nil.
func (d *daemon) unusable(err error) error {
	if err == nil {
		return nil
	}
	return &config.HomeError{Home: d.home.Dir(), Err: err}
}

// now is the clock of all that is stored: what is shown when it happens then equals what is read from its row later.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// node is the name of this home's one daemon.
const node = "local"

// run starts the parts in the order in which they need each other, serves, and stops them in reverse.
func (d *daemon) run(ctx context.Context, lock *config.Lock) error {
	if err := d.telemetry.Start(d.ctx); err != nil {
		return err
	}
	defer d.stopPart("telemetry", d.telemetry.Stop)
	if err := d.host.Load(d.ctx); err != nil {
		return d.unusable(err)
	}
	if err := d.sup.Start(d.ctx); err != nil {
		close(d.claimed)
		return d.unusable(fmt.Errorf("cannot attach python kernels: %w", err))
	}
	defer d.stopPart("python kernels", d.sup.Stop)
	err := d.engine.Start(d.ctx)
	close(d.claimed) // also after a failure: who waits for the epoch goes on and is stopped
	if err != nil {
		return d.unusable(fmt.Errorf("cannot start the engine: %w", err))
	}
	defer d.stopPart("engine", d.engine.Stop)
	if err := d.host.Start(d.ctx); err != nil {
		return d.unusable(fmt.Errorf("cannot start processes: %w", err))
	}
	defer d.stopPart("processes", d.host.Stop)
	server, err := api.New(api.Options{
		Sessions: d.sessions(), Processes: d.host, Events: eventsOf{d.events, d.host, d.store.Generation()}, Daemon: d,
		Evidence: evidence.New(evidence.Options{
			Engine: d.engine, Reader: d.store, Domain: &facts.Facts{Owner: owner, Reader: d.store}, Generation: d.store.Generation(),
		}),
		Authorize: d.authorize, Metrics: d.telemetry.Metrics, Observe: d.answered, Build: d.o.Build, Log: d.log,
	})
	if err != nil {
		return err
	}
	listener, err := config.ListenSocket(d.home.Socket())
	if err != nil {
		return d.unusable(err)
	}
	d.log.Info("serving", "pid", os.Getpid(), "socket", d.home.Socket(), "build", d.o.Build, "started_in", time.Since(d.began))
	group := lifecycle.Group{Grace: detachTime}
	group.Add("api", func(ctx context.Context) error { return server.Serve(ctx, listener) })
	if watch, err := lock.Watch(listener); err != nil {
		d.log.Warn("a removed home will not be noticed", "error", err)
	} else {
		group.Add("home", func(ctx context.Context) error { d.lost(watch.Wait(ctx)); return nil })
	}
	err = group.Run(ctx)
	d.log.Info("stopping", "why", context.Cause(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(err, d.fatal)
}

// epoch is what an attach to a python kernel carries, so that a kernel refuses a daemon whose claim is older. Attaching begins
// before the engine has its claim, and waits for it here.
func (d *daemon) epoch() uint64 {
	<-d.claimed
	return d.engine.Epoch()
}

func (d *daemon) stopPart(name string, stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(d.ctx, detachTime)
	defer cancel()
	began := time.Now()
	if err := stop(ctx); err != nil {
		d.log.Error("cannot stop a part in time; it is left", "part", name, "error", err)
		return
	}
	d.log.Info("shutdown", "part", name, "took", time.Since(began))
}

// lost ends the daemon when its home was taken away under it, with an error as the reason; nil is none.
func (d *daemon) lost(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	if d.fatal == nil {
		d.fatal = err
	}
	d.mu.Unlock()
	d.stop(errors.New("the home was taken away")) // how is the last line of the log
}

// fail ends the daemon when the store cannot go on: the restart is the tested path.
func (d *daemon) fail(err error) {
	d.log.Error("the store cannot go on", "error", err)
	d.mu.Lock()
	d.fatal = d.unusable(err)
	d.mu.Unlock()
	d.stop(err)
}

func (d *daemon) authorize(token string) api.Access {
	ok, err := d.token.Check(token)
	if err != nil {
		d.log.Error("cannot check the token", "error", err)
	}
	if !ok {
		return api.Nobody
	}
	return api.Admin
}

func (d *daemon) env(name string) string {
	v, _ := d.o.Env(name)
	return v
}
