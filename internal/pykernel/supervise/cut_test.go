package supervise_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/internal/config"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// cuts makes every connection end at another place: after each number of whole units in either direction, with and
// without half of the next one.
type cuts struct {
	mu   sync.Mutex
	made int
	off  bool
}

func (c *cuts) dial(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := config.DialSocket(ctx, socket)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return conn, nil
	}
	n := c.made
	c.made++
	return pykerneltest.NewCutter(conn, pykerneltest.Cut{
		Direction: pykerneltest.Direction(n % 2), Half: n/2%2 == 1, After: n / 4 % 9,
	}), nil
}

func (c *cuts) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// P-210, P-014, P-017, P-020, P-023, P-123: with a cut at every frame in both directions and restarts of the daemon in between, each
// cell runs once, and each outcome, host call, trace, end of a job and cell in the background is committed once.
func TestCutsAtEveryFrame(t *testing.T) {
	t.Parallel()
	const wanted = 200
	var c cuts
	host := newHost()
	h := pykerneltest.New(t, func(o *supervise.Options) { probed(o); o.Dial, o.Host = c.dial, host })
	file := filepath.Join(h.Workspace, "lines")
	code := func(i int) string {
		code := fmt.Sprintf("with open(%q, 'a') as f: f.write('%d\\n')\nprint('out %d')\n", file, i, i)
		switch i % 6 {
		case 1:
			code += fmt.Sprintf("p = probe.start('j%d', 'true')\nprobe.end('j%[1]d', p, wake=True)\n", i)
		case 2:
			code += "import asyncio\nawait asyncio.sleep(0.1)\n"
		case 4:
			code += fmt.Sprintf("probe.api.send('trace', {'cell': probe.api.cell(), 'changes': [{'path': '%d', 'kind': 'created', 'diff': '', 'truncated': False}]})\n", i)
		}
		if i%3 == 0 {
			return code + call("test.echo", fmt.Sprint(i)) + "\nint(r)"
		}
		return code + fmt.Sprint(i)
	}
	kernel, cell := h.Open("a", code(0))
	cells := []string{cell}
	for c.count() < wanted {
		for range 4 {
			if i := len(cells); i%6 == 2 {
				cells = append(cells, h.RunBehind("a", kernel, code(i), time.Minute, 5*time.Millisecond))
			} else {
				cells = append(cells, h.Run("a", kernel, code(i), time.Minute))
			}
		}
		switch n := len(cells); {
		case n%40 == 1:
			h.Restart()
		case n%8 == 1:
			h.Outcome(cells[n-3])
		}
		h.Outcome(cells[len(cells)-1])
	}
	var want strings.Builder
	behind := 0
	for i, cell := range cells {
		m := h.Outcome(cell)
		value(t, m, fmt.Sprint(i))
		if m.Output.Head != fmt.Sprintf("out %d\n", i) || string(h.Content(m.Content)) != m.Output.Head {
			t.Errorf("output of cell %d: %+v", i, m.Output)
		}
		if n := h.Outcomes(cell); n != 1 {
			t.Errorf("cell %d has %d outcomes", i, n)
		}
		fmt.Fprintf(&want, "%d\n", i)
		switch i % 6 {
		case 1:
			job := fmt.Sprintf("j%d", i)
			if all := h.JobEnded(job); len(all) != 1 || *all[0].ExitCode != 0 {
				t.Errorf("the end of job %s was told as %+v", job, all)
			}
		case 2:
			told := h.BackgroundedTimes(cell)
			if behind += told; told > 1 || m.Background != (told == 1) {
				t.Errorf("cell %d was told %d times, and ended as %+v", i, told, m)
			}
		case 4:
			h.Until("the trace of a cell", func() bool { return h.Count(`select count(*) from cell_trace where cell = ?`, cell) == 1 })
		}
	}
	if behind == 0 {
		t.Error("no cell went on in the background")
	}
	if n := h.Count(`select count(*) from job where state <> 'exited'`); n != 0 {
		t.Errorf("%d jobs have not ended", n)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want.String() {
		t.Errorf("the cells ran as %q, want %q", got, want.String())
	}
	host.mu.Lock()
	defer host.mu.Unlock()
	// A restart may have come while a call ran; this host's calls may run again.
	if calls := (len(cells) + 2) / 3; len(host.ran) != calls {
		t.Errorf("%d host calls, want %d", len(host.ran), calls)
	}
	t.Logf("%d connections were cut, %d cells", c.count(), len(cells))
}
