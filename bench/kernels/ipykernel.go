package kernels

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"soma/bench/measure"
)

//go:embed ipykernel.py
var ipykernel string

// debian's interpreter is the one that its package of ipykernel is for.
const debian = "/usr/bin/python3"

// Rounds of ipykernel's figures: enough for a median, few enough for a kernel that needs a second to start.
const (
	peerWarm       = 300
	peerCold       = 5
	peerPrints     = 5
	peerInterrupts = 20
)

// IPykernel returns the figures of ipykernel with its own client where that is installed, none where it is not: the start to
// the first reply, `1+1`, 10 MB in lines, resident memory after a warm run, and the interrupt of a loop.
func IPykernel(ctx context.Context, dir, fs string) ([]measure.Line, error) {
	if exec.CommandContext(ctx, debian, "-c", "import ipykernel, jupyter_client").Run() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	args := []string{"-c", ipykernel}
	for _, n := range []int{peerWarm, peerCold, peerPrints, peerInterrupts} {
		args = append(args, strconv.Itoa(n))
	}
	cmd := exec.CommandContext(ctx, debian, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "JUPYTER_RUNTIME_DIR="+dir, "IPYTHONDIR="+dir)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot measure ipykernel: %w", err)
	}
	var m struct{ Cold, Warm, RSS, Print, Interrupt float64 }
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("cannot read what ipykernel has measured: %w", err)
	}
	return []measure.Line{
		{Name: "ipykernel_cold_p50", Value: m.Cold * 1e3, Unit: "ms", N: peerCold, FS: fs},
		{Name: "ipykernel_cell_p50", Value: m.Warm * 1e6, Unit: "us", N: peerWarm, FS: fs},
		{Name: "ipykernel_rss", Value: m.RSS / 1e6, Unit: "MB", N: 1, FS: fs},
		{Name: "ipykernel_print_10mb", Value: m.Print, Unit: "MB/s", N: peerPrints, FS: fs},
		{Name: "ipykernel_interrupt_p95", Value: m.Interrupt * 1e3, Unit: "ms", N: peerInterrupts, FS: fs},
	}, nil
}
