// Command bench measures Soma's figures and prints one line of JSON each; docs/benchmarks.md says what they mean. It needs a
// folder on a disk and refuses one in memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"soma/bench/calls"
	"soma/bench/emit"
	"soma/bench/instance"
	"soma/bench/kernels"
	"soma/bench/library"
	"soma/bench/measure"
	"soma/bench/scale"
	"soma/bench/steps"
	"soma/bench/turns"
)

// whole bounds a run of all figures.
const whole = 20 * time.Minute

type figure struct {
	name string
	run  func(ctx context.Context, dir, fs string) ([]measure.Line, error)
}

var figures = []figure{
	{"turns_inproc", turns.Run},
	{"turns_pg", turns.Shared},
	{"emit_10", emit.Run},
	{"call_p50 calls_64", calls.Run},
	{"observer_emit_10 split_10k include_1000 session_100k_events exchange_10k exchange_100k_cpu flow_1000 flow_chain_1000 flow_chain_100k", library.Run},
	{"agent_steps", one(steps.Run)},
	{"binary_mb start", instance.Program},
	{"ps_1000 turns_socket_64 recover_first_step", instance.Daemon},
	{"takeover two_daemons", instance.Several},
	{"kernel_cold_p50 kernel_cold_p95 cell_commit_p50 kernel_rss idle_ticks", instance.Cells},
	{"cell_link_p50", one(kernels.Link)},
	{"interrupt_p95", one(instance.Interrupt)},
	{"ipykernel_cold_p50 ipykernel_cell_p50 ipykernel_rss ipykernel_print_10mb ipykernel_interrupt_p95", kernels.IPykernel},
	{"print_10mb print_10mb_once print_10mb_child", instance.Print},
	{"registered_start registered_bytes warm_10k_mb", instance.Registered},
	{"turn_disk_bytes", one(scale.File)},
	{"turn_pg_wal_bytes turn_pg_cpu turn_pg_node_cpu connection_mb beat_1000_cpu beat_1000_node_cpu sweep_row_cpu hint_cpu hint_node_cpu", scale.Shared},
}

func one(run func(ctx context.Context, dir, fs string) (measure.Line, error)) func(context.Context, string, string) ([]measure.Line, error) {
	return func(ctx context.Context, dir, fs string) ([]measure.Line, error) {
		l, err := run(ctx, dir, fs)
		return []measure.Line{l}, err
	}
}

func main() {
	dir := flag.String("dir", ".", "folder in which the databases are made, and deleted again")
	only := flag.String("only", ".", "pattern of the figures to measure")
	bare := flag.String("bare", "", "be the bare server of turns_socket_64 at this socket; the bench runs itself so")
	flag.Parse()
	if *bare != "" {
		if err := instance.ServeBare(*bare); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	if err := run(ctx, *dir, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, base, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if base, err = filepath.Abs(base); err != nil {
		return err
	}
	fs, err := measure.Disk(base)
	if err != nil {
		return err
	}
	for _, f := range figures {
		if !pattern.MatchString(f.name) {
			continue
		}
		if err := measureOne(ctx, f, base, fs); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// measureOne gives a figure a folder of its own.
func measureOne(ctx context.Context, f figure, base, fs string) error {
	dir, err := os.MkdirTemp(base, "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lines, err := f.run(ctx, dir, fs)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if err := l.Print(os.Stdout); err != nil {
			return err
		}
	}
	return nil
}
