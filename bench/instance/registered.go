package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"soma/bench/measure"
	"soma/bench/registered"
)

const (
	registeredMany = 1_000_000
	registeredFew  = 10
	registeredRuns = 7
)

// Registered returns the figures of a million registered neurons: registered_start, registered_bytes and warm_10k_mb. Two
// homes, one with the million and one with ten, are started in turns; their databases are not in memory before.
func Registered(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	many, err := registeredHome(ctx, bin, filepath.Join(dir, "many"), registeredMany)
	if err != nil {
		return nil, err
	}
	few, err := registeredHome(ctx, bin, filepath.Join(dir, "few"), registeredFew)
	if err != nil {
		return nil, err
	}
	for range registeredRuns {
		for _, h := range []*registeredAt{few, many} {
			if err := h.begin(ctx); err != nil {
				return nil, err
			}
		}
	}
	start, bare := millis("registered_start", median(many.took), registeredRuns, fs), median(few.took)
	start.Bare = bare.Seconds() * 1000
	lines = append(lines, start, measure.Line{
		Name: "registered_bytes", Value: (median(many.bytes) - median(few.bytes)) / (registeredMany - registeredFew), Unit: "bytes", N: registeredMany, FS: fs,
	})
	warm, err := registered.Warm(ctx, many.home.Database(), fs)
	return append(lines, warm), err
}

// registeredAt is a home with many neurons, and what the starts of its daemon took.
type registeredAt struct {
	*instance
	took  []time.Duration
	bytes []float64 // of memory that is the daemon's own, right after its start
}

func registeredHome(ctx context.Context, bin, dir string, n int) (*registeredAt, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	i, err := open(ctx, bin, dir)
	if err != nil {
		return nil, err
	}
	if err := i.close(ctx); err != nil {
		return nil, err
	}
	return &registeredAt{instance: i}, registered.Fill(ctx, i.home.Database(), n)
}

// begin starts the daemon on a database that is on the disk only, takes the figures, and ends it.
func (r *registeredAt) begin(ctx context.Context) (err error) {
	if err := forget(r.home.Database()); err != nil {
		return err
	}
	began := time.Now()
	if err := r.start(ctx); err != nil {
		return err
	}
	r.took = append(r.took, time.Since(began))
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return err
	}
	_, rest, ok := strings.Cut(string(status), "RssAnon:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil || !ok {
		return errors.Join(errors.New("the system does not tell how much memory a program has of its own"), err)
	}
	r.bytes = append(r.bytes, kib*1024)
	return nil
}

// forget lets the system drop what it keeps of a file in memory.
func forget(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
