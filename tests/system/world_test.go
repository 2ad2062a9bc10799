//go:build crash

package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/client"
	"soma/internal/config"
	"soma/wire"
)

// within bounds one run of the scripted work with its deaths.
const within = 2 * time.Minute

// world is a home with its daemon, the provider that its model is played by, and the works that run in it.
type world struct {
	bin      string
	home     config.Home
	dir      string // holds the workspaces and images
	provider *provider
	client   *client.Client
	hits     string // the file of crash points that were passed
	env      []string
	// died is called after each death of the daemon, before the next one is started.
	died func(context.Context) error
	// again is the environment of the daemon after the first death.
	again []string

	mu      sync.Mutex
	daemon  *daemon
	daemons []*daemon // all of them
	deaths  int
	works   []*work
}

// newWorld makes a home; no daemon runs yet. settings are lines for its config.
func newWorld(t *testing.T, bin string, settings ...string) *world {
	t.Helper()
	dir := t.TempDir()
	home, err := config.HomeAt(filepath.Join(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Create(); err != nil {
		t.Fatal(err)
	}
	w := &world{bin: bin, home: home, dir: dir, provider: newProvider(t, script), hits: filepath.Join(dir, "hits")}
	text := "python: " + python + "\nmodels:\n- {name: played, type: openai, base_url: " + w.provider.url + ", model: scripted}\n"
	if err := os.WriteFile(home.ConfigFile(), []byte(text+strings.Join(settings, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if w.client, err = dial(home); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.Close)
	endAll(t, dir)
	w.env = environ(home, "SOMA_CRASH_HITS="+w.hits)
	return w
}

// start starts a daemon, with more in its environment, and waits until it listens.
func (w *world) start(ctx context.Context, more ...string) error {
	d, err := startDaemon(w.bin, append(w.env[:len(w.env):len(w.env)], more...))
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.daemon, w.daemons = d, append(w.daemons, d)
	w.mu.Unlock()
	return d.serves(ctx)
}

func (w *world) current() *daemon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.daemon
}

// keep makes a request until a daemon has answered it, and starts the next daemon when one was lost.
func (w *world) keep(ctx context.Context, request func() error) error {
	for {
		d := w.current()
		err := request()
		if !errors.Is(err, client.ErrLost) {
			return err
		}
		if err := w.revive(ctx, d); err != nil {
			return err
		}
	}
}

// revive waits for the end of a daemon that was lost, looks at what it left, and starts the next one without a crash point.
func (w *world) revive(ctx context.Context, lost *daemon) error {
	killed, err := lost.gone(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemon != lost { // another work was quicker
		return nil
	}
	w.deaths++
	if !killed {
		return fmt.Errorf("the daemon ended by itself (%v):\n%s", lost.cmd.ProcessState, lost.text())
	}
	if err := w.autopsy(ctx); err != nil {
		return fmt.Errorf("what the crash has left is wrong: %w", err)
	}
	if w.died != nil {
		if err := w.died(ctx); err != nil {
			return err
		}
	}
	next, err := startDaemon(w.bin, append(w.env[:len(w.env):len(w.env)], w.again...))
	if err != nil {
		return err
	}
	w.daemon, w.daemons, w.again = next, append(w.daemons, next), nil
	if err := next.serves(ctx); err != nil {
		if killed, _ := next.gone(ctx); killed {
			return nil // the next request finds it dead
		}
		return err
	}
	for _, k := range w.works {
		if err := k.stillThere(ctx); err != nil && !errors.Is(err, client.ErrLost) {
			return err
		}
	}
	return nil
}

// autopsy checks the image of a crash: it is consistent, and all that anybody has seen or that has run is in it.
func (w *world) autopsy(ctx context.Context) error {
	m, err := takeImage(w.home, w.dir)
	if err != nil || m == nil {
		return err
	}
	defer m.close()
	if err := m.consistent(ctx); err != nil {
		return err
	}
	for _, k := range w.works {
		if err := k.committed(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the daemon and the python kernels by the program's own command and checks that nothing is left.
func (w *world) stop(ctx context.Context) error {
	d := w.current()
	cmd := exec.CommandContext(ctx, w.bin, "stop", "--kernels")
	cmd.Env = w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		select {
		case <-d.exited: // it died while it was asked
			if err := w.revive(ctx, d); err != nil {
				return err
			}
			return w.stop(ctx)
		default:
			return fmt.Errorf("cannot stop the daemon: %w: %s\n%s", err, out, d.text())
		}
	}
	killed, err := d.gone(ctx)
	if err != nil {
		return err
	}
	if killed { // at a point on the way to its end
		if err := w.revive(ctx, d); err != nil {
			return err
		}
		return w.stop(ctx)
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the stopped daemon ended with exit code %d:\n%s", code, d.text())
	}
	for _, d := range w.daemons {
		for line := range strings.Lines(d.text()) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic") {
				return fmt.Errorf("a daemon says: %s", line)
			}
		}
	}
	left, err := processesOf(w.dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("after stop --kernels there are processes of the home: %v", left)
	}
	return err
}

// passed counts the hits of each crash point by all daemons of this home.
func (w *world) passed() (map[string]int, error) {
	text, err := os.ReadFile(w.hits)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	count := map[string]int{}
	for _, name := range strings.Fields(string(text)) {
		count[name]++
	}
	return count, err
}

// same compares events by their JSON.
func same(a, b wire.Event) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
