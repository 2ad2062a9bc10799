package daemon

import (
	"context"
	"os"

	"soma/internal/api"
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
			Workspace: k.Workspace, Python: k.Python,
		})
	}
	return wire.Status{
		PID: os.Getpid(), Socket: d.home.Socket(), Home: d.home.Dir(), Version: d.o.Build, Wire: wire.Version,
		Generation: d.store.Generation(), StartedAt: d.began.UTC(), Store: d.storeStatus(), Kernels: kernels, Processes: counts,
		Models: d.models.names(), ProviderEnv: d.models.variables,
	}, nil
}

func (d *daemon) storeStatus() wire.StoreStatus {
	path := d.home.Database()
	return wire.StoreStatus{Engine: "sqlite", Path: path, Bytes: size(path), WAL: size(path + "-wal")}
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
	d.stop(api.ErrAsked)
	return stopped, nil
}
