package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"soma/internal/api"
	"soma/internal/binding"
	"soma/internal/config"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/evidence"
	"soma/internal/neuron/graph"
	"soma/internal/neuron/lease"
	"soma/internal/peer"
	"soma/internal/process"
	"soma/internal/process/facts"
	"soma/internal/process/retention"
	"soma/internal/pykernel/supervise"
	"soma/internal/pykernel/view"
	"soma/internal/shell"
	"soma/internal/store/postgres"
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

// daemon is one life of a running instance.
type daemon struct {
	home   config.Home
	config *config.Config
	o      Options
	log    *slog.Logger
	began  time.Time
	lock   *config.Lock

	node   string // the name of this daemon among those that share its store
	store  store
	shared *postgres.Store // the store, if it is one that daemons share
	keeper *lease.Keeper   // of the places, with shared
	peers  *peer.Peers     // the same
	doors  *doors
	engine *engine.Engine
	host   *process.Host
	stays  *retention.Keeper
	sup    *supervise.Supervisor
	router *binding.Router // of the host calls
	view   *view.View
	shells *shell.Host
	models *models
	events *events
	token  *config.TokenChecker
	// telemetry is told things and asked nothing, but by who scrapes it.
	telemetry *telemetry.Telemetry
	keeping   lifecycle.Tasks
	size      struct {
		mu    sync.Mutex
		at    time.Time
		bytes int64
	}
	// claimed is closed once the engine has its epoch, or has failed to get one.
	claimed chan struct{}

	// ctx lives as long as the OS process: parts that are stopped in order must not end at the first signal already.
	ctx   context.Context
	stop  context.CancelCauseFunc // ends run
	mu    sync.Mutex
	asked bool // to stop
	fatal error
}

// Run serves a home until ctx ends or a client asks to stop; python kernels live on. Where daemons share the store and this
// one has lost its places, it makes all its parts anew, as after a restart. Errors: *config.LockedError; *config.HomeError, also
// for a store that cannot be opened (it wraps sqlite.SchemaError) or cannot go on.
func Run(ctx context.Context, home config.Home, cfg *config.Config, o Options) (err error) {
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
	node := local
	if cfg.Store != "" {
		if node, err = home.EnsureNode(); err != nil {
			return err
		}
	}
	defer lifecycle.Headroom()()
	lives := &lives{home: home, config: cfg, o: o, lock: lock, node: node, token: home.TokenChecker()}
	lives.log = slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: cfg.LogLevel}))
	return lives.run(ctx)
}

// wire makes all parts; none of them runs yet but the store.
func (d *daemon) wire(ctx context.Context) (err error) {
	if err := d.open(ctx); err != nil {
		return err
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
	d.shells = shell.New(shell.Options{
		Owner: owner, Reader: d.store, Dir: filepath.Join(d.home.Output(), "shell"), Env: d.pykernelEnv, Now: now, Log: d.log,
	})
	if err := d.bind(); err != nil {
		return err
	}
	d.host = process.New(process.Options{
		Owner: owner, Node: d.node, Shared: d.shared != nil, NodeOf: d.nodeOf(), Reader: d.store, Models: d.models, Prices: table, Python: d.python(),
		Room: d.room, Hold: d.config.Recover == config.Hold, MaxConcurrent: d.config.MaxConcurrent, Spool: d.home.Spool(),
		Billed: d.billed, CellEnded: d.cellEnded, Live: d.events.live, Facts: map[string]string{"DaemonPID": strconv.Itoa(os.Getpid())}, Now: now, Log: d.log,
		Rules: d.router.Rules(), Background: time.Duration(d.config.CellBackgroundSeconds) * time.Second,
	})
	connections, err := graph.New(graph.Options{Reader: d.store})
	if err != nil {
		return err
	}
	options := engine.Options{
		Store: d.neuronStore(), Kinds: append(d.host.Kinds(), connections.Kind(), d.shells.Neuron()),
		Types:    slices.Concat(d.host.Aliases(), graph.Aliases(), d.shells.Aliases()),
		Relay:    connections,
		Adapters: map[string]neuron.Adapter{process.InferenceKind: d.host.Adapter(), shell.Kind: d.shells.Adapter()},
		Node:     d.node, Now: now, Log: d.log, Committed: d.committed, Fatal: d.fail, Inflight: filepath.Join(d.home.Cache(), "inflight"),
		Generation: d.store.Generation(),
	}
	if d.shared != nil {
		d.keep()
		options.Busy, options.Elsewhere, options.Leased = d.busy, d.keeper.Elsewhere, d.keeper.Leased
	}
	d.observe(&options)
	if d.engine, err = engine.New(options); err != nil {
		return err
	}
	d.host.Bind(d.engine)
	d.shells.Bind(d.engine)
	d.stays = retention.New(retention.Options{
		Owner: owner, Reader: d.store, Neurons: d.engine, Sessions: d.host, Holds: d.holds, Keep: d.config.Retention, RunDir: d.home.Run(),
		OutputDir: d.home.Output(), Beside: []string{shell.Kind}, Forget: d.shells.ForgetSession,
		Sizes: d.store.TableSizes, Now: now, Log: d.log,
	})
	if d.shared != nil {
		d.peers = peer.New(peer.Options{
			Node: d.node, Secret: d.shared.PeerSecret(), Table: d.keeper.Table, Holds: d.holds, Hint: d.events.hint, Missed: d.events.missed, Log: d.log,
		})
	}
	d.sup, err = supervise.New(supervise.Options{
		RunDir: d.home.Run(), BundleDir: d.home.Bundles(), SourceDir: d.env("SOMA_PYTHON_DIR"), Node: d.node, Shared: d.shared != nil, Neurons: d.engine,
		Reader: d.store, Env: d.pykernelEnv, Output: d.output, Now: now, Log: d.log, MaxLive: d.config.MaxPykernels,
		Grace: time.Duration(d.config.KernelGraceSeconds) * time.Second, Epoch: d.epoch, Host: routes{d.router}, Modules: d.router.Modules(), Sources: d.router.Sources(), OutputDir: d.home.Output(),
	})
	d.view = d.viewed()
	return d.homeFault(err)
}

// homeFault says of a fault in what the home holds that it is the home's; nil stays nil.
func (d *daemon) homeFault(err error) error {
	if err == nil {
		return nil
	}
	return &config.HomeError{Home: d.home.Dir(), Err: err}
}

// now is the clock of all that is stored: what is shown when it happens then equals what is read from its row later.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// local is the name of a home's one daemon.
const local = "local"

// run starts the parts in the order in which they need each other, serves, and stops them in reverse. serving is called when
// everything is there to be served.
func (d *daemon) run(ctx context.Context, serving func() error) error {
	if err := d.telemetry.Start(d.ctx); err != nil {
		return err
	}
	defer d.stopPart("telemetry", d.telemetry.Stop)
	if err := d.host.Load(d.ctx); err != nil {
		return d.unusable(err)
	}
	defer d.stopPart("places", d.leave)
	if err := d.sup.Start(d.ctx); err != nil {
		close(d.claimed)
		return d.homeFault(fmt.Errorf("cannot attach python kernels: %w", err))
	}
	defer d.stopPart("python kernels", d.sup.Stop)
	err := d.engine.Start(d.ctx)
	close(d.claimed) // also after a failure: who waits for the epoch goes on and is stopped
	if err != nil {
		d.mu.Lock()
		d.fatal = err // there is nothing to give back
		d.mu.Unlock()
		return d.unusable(err)
	}
	defer d.stopPart("engine", d.engine.Stop)
	if err := d.host.Start(d.ctx); err != nil {
		return d.unusable(fmt.Errorf("cannot start processes: %w", err))
	}
	defer d.stopPart("processes", d.host.Stop)
	if d.shared != nil {
		if err := d.peers.Start(d.ctx); err != nil {
			return err
		}
		defer d.stopPart("other daemons", d.peers.Stop)
		if err := d.keeping.Go(d.ctx, "places", func(ctx context.Context) error {
			_ = d.keeper.Run(ctx, places{d}) // why it ended the engine has told
			return nil
		}); err != nil {
			return err
		}
	}
	if err := d.shells.Start(d.ctx); err != nil {
		return err
	}
	defer d.stopPart("shell output", d.shells.Stop)
	if err := d.stays.Start(d.ctx); err != nil {
		return err
	}
	defer d.stopPart("retention", d.stays.Stop)
	if err := serving(); err != nil {
		return err
	}
	server, err := d.server()
	if err != nil {
		return err
	}
	d.log.Info("serving", "pid", os.Getpid(), "socket", d.home.Socket(), "url", d.doors.url, "node", d.node, "build", d.o.Build, "started_in", time.Since(d.began))
	group := lifecycle.Group{Grace: detachTime}
	d.doors.serve(&group, server)
	if watch, err := d.lock.Watch(d.doors.socket); err != nil {
		d.log.Warn("a removed home will not be noticed", "error", err)
	} else {
		group.Add("home", func(ctx context.Context) error { d.lost(watch.Wait(ctx)); return nil })
	}
	err = group.Run(ctx)
	d.log.Info("stopping", "why", context.Cause(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.anew() {
		d.doors.close()
	}
	return errors.Join(err, d.fatal)
}

// refusal tells clients which failures of a store pass.
func refusal(err error) *wire.Error {
	if errors.Is(err, neuron.ErrStoreAway) {
		return wire.Errorf(wire.Unavailable, "cannot reach the database").Do("try again: what was committed is kept, and the work goes on when it is back")
	}
	if errors.Is(err, neuron.ErrStoreFailed) { // another daemon, or this one's next start, answers
		return wire.Errorf(wire.Unavailable, "the daemon cannot write to its store, and ends").Do("see soma logs --daemon: what was committed is kept")
	}
	return nil
}

// server makes what answers requests.
func (d *daemon) server() (*api.Server, error) {
	o := api.Options{
		Sessions: d.sessions(), Processes: d.host, Pykernels: d.view, Shells: d.shells, Daemon: d, Retention: d.stays,
		Events: eventsOf{d.events, d.host, d.store.Generation(), func(session string) bool { return d.holds(neuron.PlaceOf(session)) }},
		Evidence: evidence.New(evidence.Options{
			Engine: d.engine, Reader: d.store, Domain: &facts.Facts{Owner: owner, Reader: d.store}, Generation: d.store.Generation(),
		}),
		Authorize: d.authorize, Metrics: d.telemetry.Metrics, Observe: d.answered, Refusal: refusal, Build: d.o.Build, Log: d.log,
		TLS: d.doors.tls, Hosts: d.doors.hosts,
	}
	if d.shared != nil {
		o.Peers = peersOf{d}
	}
	return api.New(o)
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

// ask begins to stop the daemon because somebody wants that.
func (d *daemon) ask() {
	d.mu.Lock()
	d.asked = true
	d.mu.Unlock()
	d.stop(api.ErrAsked)
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

// fail ends this life of the daemon when the store cannot go on: the restart is the tested path.
func (d *daemon) fail(err error) {
	level := slog.LevelError
	if d.shared != nil && errors.Is(err, neuron.ErrFenced) {
		level = slog.LevelWarn
	}
	d.log.Log(d.ctx, level, "the store cannot go on", "error", err)
	d.mu.Lock()
	d.fatal = d.unusable(err)
	d.mu.Unlock()
	d.stop(err)
}

func (d *daemon) authorize(token string) api.Access {
	if d.peers != nil && d.peers.Is(token) {
		return api.Peer
	}
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
