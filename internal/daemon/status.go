package daemon

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"soma/internal/pykernel"
	"soma/wire"
)

// Status tells what runs, for GET /v1/status.
func (d *daemon) Status(ctx context.Context) (wire.Status, error) {
	counts, err := d.host.Counts(ctx)
	if err != nil {
		return wire.Status{}, err
	}
	kernels := []wire.Kernel{}
	for _, k := range d.sup.List() {
		kernels = append(kernels, wire.Kernel{
			ID: k.ID, Session: k.Session, PID: k.OSPID, State: k.State, Cells: k.Cells, UsedAt: k.Used,
			Workspace: k.Workspace, Python: k.Python, Node: d.shownNode(),
		})
	}
	if kernels, err = d.otherKernels(ctx, kernels); err != nil {
		return wire.Status{}, err
	}
	store, err := d.sizes(ctx, d.storeStatus())
	if err != nil {
		return wire.Status{}, err
	}
	return wire.Status{
		PID: os.Getpid(), Socket: d.home.Socket(), Home: d.home.Dir(), Version: d.o.Build, Wire: wire.Version,
		Generation: d.store.Generation(), StartedAt: d.began.UTC(), Store: store, Kernels: kernels, Processes: counts,
		Models: d.models.names(), ProviderEnv: d.models.variables,
		URL: d.doors.url, Node: d.shownNode(), Nodes: d.nodes(),
	}, nil
}

// shownNode is the id of this node among others, "" where there are none.
func (d *daemon) shownNode() string {
	if d.shared == nil {
		return ""
	}
	return d.node
}

// otherKernels adds the python kernels that live at other nodes.
func (d *daemon) otherKernels(ctx context.Context, list []wire.Kernel) ([]wire.Kernel, error) {
	if d.shared == nil {
		return list, nil
	}
	err := d.store.Query(ctx, `select id, session, node, state, os_pid, workspace, python, used_at,
(select count(*) from cell c where c.kernel = kernel.id and c.state = 'started') from kernel where state in ('booting', 'running', 'ending') and node <> ? order by id limit 1000`,
		[]any{d.node}, func(scan func(...any) error) error {
			var k wire.Kernel
			var used int64
			err := scan(&k.ID, &k.Session, &k.Node, &k.State, &k.PID, &k.Workspace, &k.Python, &used, &k.Cells)
			if k.State == string(pykernel.Running) {
				k.State = "attached"
			}
			k.UsedAt = time.UnixMicro(used).UTC()
			list = append(list, k)
			return err
		})
	return list, err
}

// sizeTime is how long the measured size of a database is good for.
const sizeTime = 5 * time.Second

// databaseSize is the size of the shared database in bytes, 0 where it cannot be told.
func (d *daemon) databaseSize() (n int64) {
	d.size.mu.Lock()
	defer d.size.mu.Unlock()
	if !d.size.at.IsZero() && time.Since(d.size.at) < sizeTime {
		return d.size.bytes
	}
	ctx, cancel := context.WithTimeout(d.ctx, sizeTime)
	defer cancel()
	err := d.store.Query(ctx, `select pg_database_size(current_database())`, nil, func(scan func(...any) error) error { return scan(&n) })
	if err == nil {
		d.size.at, d.size.bytes = time.Now(), n
	}
	return n
}

func (d *daemon) storeStatus() wire.StoreStatus {
	if d.shared != nil {
		return wire.StoreStatus{Engine: "postgres", Path: d.config.Store.Shown(), Bytes: d.databaseSize()}
	}
	path := d.home.Database()
	return wire.StoreStatus{Engine: "sqlite", Path: path, Bytes: size(path), WAL: size(path + "-wal")}
}

// sizes adds to the size of the store what it holds, and the files beside it.
func (d *daemon) sizes(ctx context.Context, s wire.StoreStatus) (wire.StoreStatus, error) {
	var at time.Time
	if s.Groups, at = d.stays.Sizes(); !at.IsZero() {
		s.SizedAt = &at
	}
	s.Files = map[string]int64{"run": under(d.home.Run()), "spool": under(d.home.Spool()), "logs": size(d.home.DaemonLog()) + size(d.home.DaemonLog()+".1")}
	own, ok := d.store.(interface {
		FreeBytes(ctx context.Context) (int64, error)
	})
	if !ok {
		return s, nil
	}
	var err error
	s.Free, err = own.FreeBytes(ctx)
	return s, err
}

// under sums the sizes of the files below a folder, of which there are few; what goes meanwhile counts nothing.
func under(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Stop begins to stop the daemon; with Kernels it first ends the python kernels.
func (d *daemon) Stop(ctx context.Context, s wire.Stop) (wire.Stopped, error) {
	stopped := wire.Stopped{PID: os.Getpid()}
	if s.Kernels {
		ctx, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		stopped.Kernels = len(d.sup.List())
		if err := d.sup.EndAll(ctx); err != nil {
			d.log.Error("cannot end all python kernels", "error", err)
			return stopped, wire.Errorf(wire.Internal, "cannot end all python kernels: %v", err).Do("see soma status and try again")
		}
	}
	d.ask()
	return stopped, nil
}
