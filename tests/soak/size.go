package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/internal/chaos"
	"soma/wire"
)

// What the size soak holds the store to.
const (
	keepFor    = time.Minute // how long sessions stay while it runs
	sampleTime = 5 * time.Second
	// sessionTick is the pause between two sessions: less than a slow machine can do, so that the work is always the same.
	sessionTick = 200 * time.Millisecond
	maxWAL      = 128 << 20
	// maxGrowth is how much larger than in the second third of the time the file may be in the last: as much work as ever was
	// done, and as much removed.
	maxGrowth = 1.15
)

// sample is what the store measured at one moment.
type sample struct {
	at              time.Duration
	file, wal, free int64
	rows, steps     int64
}

// sizes writes constantly for a while, with sessions removed a minute after they ended, and says whether the file stops growing.
func sizes(ctx context.Context, length time.Duration, agents int) (clean bool, err error) {
	if length < 4*keepFor {
		return false, fmt.Errorf("it takes %s at least to see whether the file stops growing", 4*keepFor)
	}
	dir, err := os.MkdirTemp("", "soma-soak-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	bin, err := build(ctx, dir)
	if err != nil {
		return false, err
	}
	d, err := chaos.Start(bin, filepath.Join(dir, "home"), os.Environ(),
		[]string{"SOMA_RETENTION=" + keepFor.String(), "SOMA_MAX_CONCURRENT=64", "SOMA_LOG_LEVEL=warn"})
	if err != nil {
		return false, err
	}
	defer d.Kill()
	script := filepath.Join(dir, "size.yaml")
	text := "name: size\nsteps:\n" + strings.Repeat("  - {say: "+strings.Repeat("some words ", 40)+", calls: [{tool: none, arguments: {}}], usage: {input: 500, output: 100}}\n", 8) +
		"  - {say: " + strings.Repeat("a long answer ", 8000) + ", usage: {input: 900, output: 9000}}\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return false, err
	}
	if err := chaos.Again(ctx, time.Minute, func(ctx context.Context) error { _, err := d.Client.Status(ctx); return err }); err != nil {
		return false, err
	}
	fmt.Printf("soak: %s of constant writing, %d agents, sessions stay for %s\n", length, agents, keepFor)
	var steps, failed atomic.Int64
	working, enough := context.WithTimeout(ctx, length)
	defer enough()
	var wg sync.WaitGroup
	pace := time.NewTicker(sessionTick)
	defer pace.Stop()
	for range agents {
		wg.Go(func() {
			for {
				select {
				case <-pace.C:
				case <-working.Done():
					return
				}
				if err := talk(working, d, script); err == nil {
					steps.Add(9)
				} else if working.Err() == nil {
					failed.Add(1)
					fmt.Println("soak:", err)
				}
			}
		})
	}
	var all []sample
	began := time.Now()
	tick := time.NewTicker(sampleTime)
	defer tick.Stop()
	for n := 0; working.Err() == nil; n++ {
		select {
		case <-tick.C:
		case <-working.Done():
			continue
		}
		st, err := d.Client.Status(ctx)
		if err != nil {
			return false, err
		}
		s := sample{at: time.Since(began), file: st.Store.Bytes, wal: st.Store.WAL, free: st.Store.Free, steps: steps.Load()}
		for _, g := range st.Store.Groups {
			s.rows += g.Rows
		}
		all = append(all, s)
		if n%6 == 5 {
			fmt.Printf("soak: %4.0f s, %d steps, file %.1f MB, of that free %.1f MB, WAL %.1f MB, %d rows\n", s.at.Seconds(), s.steps, mb(s.file), mb(s.free), mb(s.wal), s.rows)
		}
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	asked := time.Now()
	if _, err := d.Client.Status(ctx); err != nil {
		return false, err
	}
	answered := time.Since(asked)
	file := func(s sample) int64 { return s.file }
	third := len(all) / 3
	middle, last := most(all[third:2*third], file), most(all[2*third:], file)
	wal := most(all, func(s sample) int64 { return s.wal })
	total := steps.Load()
	fmt.Printf("soak: %d steps, %.0f/s; largest WAL %.1f MB; largest file %.1f MB in the second third, %.1f MB in the last; status in %s\n",
		total, float64(total)/length.Seconds(), mb(wal), mb(middle), mb(last), answered.Round(100*time.Microsecond))
	fmt.Printf("soak: an hour like this: WAL %.1f MB, file %.1f MB\n", mb(wal), mb(last)+max(0, mb(last)-mb(middle))*3*(time.Hour-length).Seconds()/length.Seconds())
	if _, err := d.Stop(ctx); err != nil {
		return false, err
	}
	clean = total > 0 && failed.Load() == 0 && wal <= maxWAL && float64(last) <= maxGrowth*float64(middle)
	if !clean {
		fmt.Println("soak: the store does not stay within its bounds")
	}
	return clean, nil
}

func mb(n int64) float64 { return float64(n) / 1e6 }

func most(all []sample, of func(sample) int64) int64 {
	values := make([]int64, len(all))
	for i, s := range all {
		values[i] = of(s)
	}
	return slices.Max(append(values, 0))
}

// talk runs one session to its end.
func talk(ctx context.Context, d *chaos.Daemon, script string) error {
	session := ident.New(time.Now()).String()
	if _, err := d.Client.OpenSession(ctx, session, wire.OpenSession{Workspace: filepath.Dir(script), Model: "script:" + script}); err != nil {
		return err
	}
	st, err := d.Client.Admit(ctx, session, "in", wire.Input{Text: "talk"})
	if err != nil {
		return err
	}
	for {
		p, err := d.Client.Wait(ctx, st.PID, 10*time.Second)
		if err != nil || p.EndedAt != nil {
			return err
		}
	}
}
