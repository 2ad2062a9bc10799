package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/neurontest"
	"soma/internal/store/fault"
	"soma/tests/durable/counter"
)

// keptOpen lets several lives use one wrapped store.
type keptOpen struct{ *fault.Store }

func (keptOpen) Close() error { return nil }

// faulty are programs' stores of which one call fails.
func faulty(s neuron.Store, m fault.Method, nth int, f fault.Fault) (arena, *fault.Store) {
	w := fault.Wrap(s)
	w.At(m, nth, f)
	return one{func(context.Context) (neuron.Store, error) { return keptOpen{w}, nil }}, w
}

// N-33, N-08: whichever call of the store fails, or loses its answer after it was carried out, programs come to what the model says.
func TestStoreFaults(t *testing.T) {
	checks(t, 1)
	program := programs([]fate{none, stop}, 1).Filter(func(p []phase) bool { return len(p) > 2 && len(p[0].Roots)*len(p[1].Roots) > 3 })
	faults := map[string]fault.Fault{
		"error":             {Before: errFault},
		"answer lost":       {After: errFault},
		"timeout, not done": {Before: errors.Join(errFault, neuron.ErrOutcomeUnknown)},
		"timeout, done":     {After: errors.Join(errFault, neuron.ErrOutcomeUnknown)},
		"store failed":      {Before: errors.Join(errFault, neuron.ErrStoreFailed)},
	}
	methods := map[fault.Method][]int{
		fault.Claim: {1}, fault.Commit: {1, 2, 3, 5, 9}, fault.Neuron: {1, 3}, fault.ReserveKeys: {1}, fault.Settled: {1, 4},
		fault.Outbox: {1}, fault.Executions: {1},
	}
	met := 0
	for m, calls := range methods {
		for name, f := range faults {
			for _, nth := range calls {
				t.Run(fmt.Sprintf("%s/%s/%d", m, name, nth), func(t *testing.T) {
					t.Parallel()
					rapid.Check(t, func(rt *rapid.T) {
						a, w := faulty(neurontest.New(modelLimits()), m, nth, f)
						play(rt, t.Context(), a, fmt.Sprint("owner", owners.Add(1)), program.Draw(rt, "program"))
						if w.Calls(m) < nth {
							rt.Fatalf("the call did not come: %d", w.Calls(m))
						}
					})
				})
				met++
			}
		}
	}
	t.Logf("%d faults", met)
}

// small makes a disk of 2 MiB at the folder, in a mount namespace of its own; it returns what runs programs there.
func small(t *testing.T, folder string) (via []string) {
	t.Helper()
	keeper := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-ec",
		fmt.Sprintf("mkdir %[1]s\nmount -t tmpfs -o size=2m,mode=0700 none %[1]s\necho ready\nexec cat", folder))
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	keeper.Stderr = &errs
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = keeper.Wait() })
	word := make([]byte, len("ready\n"))
	if _, err := out.Read(word); err != nil {
		t.Fatalf("cannot make a small disk: %v: %s", err, errs.String())
	}
	return []string{"nsenter", "--target", fmt.Sprint(keeper.Process.Pid), "--user", "--mount", "--preserve-credentials", "--"}
}

// N-33: a disk that fills up under load ends the node, which says why; with room again everything that was acknowledged is there,
// and nothing twice.
func TestDiskFillsUp(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "disk")
	s := setup{name: "a", via: small(t, folder)}
	there := func(text string) {
		t.Helper()
		args := append(s.via[1:len(s.via):len(s.via)], "sh", "-ec", text)
		if out, err := exec.CommandContext(t.Context(), s.via[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", text, err, out)
		}
	}
	s.dsn = "sqlite:" + filepath.Join(folder, "soma.db")
	there(fmt.Sprintf("head -c 600000 /dev/zero > %s/ballast", folder))
	p := start(t, s)
	type deed struct {
		id  ident.ID
		key string
		sum int64
	}
	var mu sync.Mutex
	var acked, open []deed
	var wg sync.WaitGroup
	var last string
	for c := range 4 {
		wg.Go(func() {
			for n := range 1000 {
				d := deed{id: ident.New(time.Now()), key: fmt.Sprint("k", (c+n)%3)}
				sum, err := p.ask(t.Context(), request{Op: "add", ID: d.id, Key: d.key, Add: counter.Add{By: 1, Pad: strings.Repeat("x", 5000)}})
				mu.Lock()
				if err != nil {
					open = append(open, d)
					last = err.Error()
					mu.Unlock()
					return
				}
				d.sum = sum
				acked = append(acked, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	p.wait()
	lost, _ := p.event("lost", 1)
	if !strings.Contains(lost.Error, "disk is full") || p.cmd.ProcessState.ExitCode() != 1 || len(acked) == 0 {
		t.Fatalf("after %d deeds the node ended with %v, lost by %q; its last answer was %q", len(acked), p.cmd.ProcessState, lost.Error, last)
	}
	there(fmt.Sprintf("rm %s/ballast", folder))
	p = start(t, s)
	want := map[string]int64{}
	for _, d := range append(acked, open...) {
		sum, err := p.ask(t.Context(), request{Op: "add", ID: d.id, Key: d.key, Add: counter.Add{By: 1}})
		if err != nil || d.sum != 0 && sum != d.sum {
			t.Fatalf("a deed that had come to %d comes to %d, %v", d.sum, sum, err)
		}
		want[d.key]++
	}
	for key, n := range want {
		if sum, err := p.ask(t.Context(), request{Op: "add", ID: ident.New(time.Now()), Key: key}); err != nil || sum != n {
			t.Errorf("%s has come to %d, %v, want %d", key, sum, err, n)
		}
	}
	t.Logf("%d acknowledged before the disk was full, %d not", len(acked), len(open))
	p.stop()
}
