package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	kills := flag.Int("kills", 200, "kills of daemon and python kernels")
	agents := flag.Int("agents", 4, "agents that work at once")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random kills")
	what := flag.String("what", "kills", "kills: of daemon and python kernels; size: whether the store stops growing under constant work")
	length := flag.Duration("for", 5*time.Minute, "how long the size is watched")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var clean bool
	var err error
	switch *what {
	case "kills":
		clean, err = run(ctx, *kills, *agents, *seed)
	case "size":
		clean, err = sizes(ctx, *length, 4**agents)
	default:
		err = fmt.Errorf("there is no soak %q", *what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if !clean {
		os.Exit(1)
	}
}

// tally is what the soak found.
type tally struct {
	daemonKills, kernelKills, finished, cells, unknown, resumed atomic.Int64

	mu            sync.Mutex
	lost, doubled []string
}

func (t *tally) lose(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, fmt.Sprintf(format, args...))
}

func (t *tally) double(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubled = append(t.doubled, fmt.Sprintf(format, args...))
}

func run(ctx context.Context, kills, agents int, seed uint64) (clean bool, err error) {
	dir, err := os.MkdirTemp("", "soma-soak-")
	if err != nil {
		return false, err
	}
	keep := true
	defer func() {
		if !keep {
			_ = os.RemoveAll(dir)
		}
	}()
	bin := filepath.Join(dir, "soma")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/soma").CombinedOutput(); err != nil {
		return false, fmt.Errorf("cannot build: %w\n%s", err, out)
	}
	fmt.Printf("soak: %d kills, %d agents, seed %d, home %s\n", kills, agents, seed, filepath.Join(dir, "home"))
	d, err := newDaemon(bin, filepath.Join(dir, "home"))
	if err != nil {
		return false, err
	}
	defer d.kill()
	script, err := writeScript(dir)
	if err != nil {
		return false, err
	}
	t := &tally{}
	working, enough := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range agents {
		wg.Go(func() {
			for n := 0; working.Err() == nil; n++ {
				// A session that was begun is followed to its end, also when the kills are over.
				work(ctx, d, t, script, filepath.Join(dir, fmt.Sprintf("work-%d-%d", i, n)))
			}
		})
	}
	err = killAtRandom(ctx, d, t, kills, rand.New(rand.NewPCG(seed, seed)))
	enough()
	wg.Wait()
	if err != nil {
		return false, err
	}
	left, err := d.stop(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range append(t.lost, t.doubled...) {
		fmt.Println("soak:", s)
	}
	fmt.Printf("soak: kills %d (daemon %d, python kernels %d), sessions %d, cells %d, results unknown %d, crash loops resumed %d\n",
		t.daemonKills.Load()+t.kernelKills.Load(), t.daemonKills.Load(), t.kernelKills.Load(), t.finished.Load(), t.cells.Load(), t.unknown.Load(), t.resumed.Load())
	fmt.Printf("soak: lost %d, doubled %d, left over %d\n", len(t.lost), len(t.doubled), len(left))
	clean = len(t.lost)+len(t.doubled)+len(left) == 0 && t.finished.Load() > 0
	keep = !clean
	return clean, nil
}

// killAtRandom kills the daemon three times out of four, else one of its python kernels, and starts the daemon again.
func killAtRandom(ctx context.Context, d *daemon, t *tally, kills int, r *rand.Rand) error {
	for n := 0; n < kills; {
		select {
		case <-time.After(time.Duration(50+r.IntN(700)) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if r.IntN(4) == 0 {
			if !d.killKernel(ctx, r) {
				continue
			}
			t.kernelKills.Add(1)
		} else {
			d.kill()
			t.daemonKills.Add(1)
			if err := d.start(); err != nil {
				return err
			}
		}
		if n++; n%20 == 0 {
			fmt.Printf("soak: %d kills, %d sessions, %d cells\n", n, t.finished.Load(), t.cells.Load())
		}
	}
	return nil
}
