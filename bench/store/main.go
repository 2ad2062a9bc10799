// Store measures the commit of the SQLite engine alone, without the engine of neurons above it: groups of 64 records with
// one turn each, against the bare loop in the same folder, in turns.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"soma/bench/floor"
	"soma/bench/measure"
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/sqlite"
)

func main() {
	seconds := flag.Int("seconds", 6, "measured seconds for each of the two")
	neurons := flag.Int("neurons", 1000, "neurons that the turns are spread over")
	dir := flag.String("dir", ".", "folder in which the databases are made, and deleted again")
	flag.Parse()
	if err := run(*dir, *seconds, *neurons); err != nil {
		fmt.Fprintln(os.Stderr, "bench/store:", err)
		os.Exit(1)
	}
}

const group = 64

func run(base string, seconds, neurons int) error {
	fs, err := measure.Disk(base)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(base, "bench-store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	bare, err := floor.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer bare.Close()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "soma.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	w := &work{store: s, actors: make([]actor, neurons)}
	if w.fence, err = s.Claim(ctx, "bench"); err != nil {
		return err
	}
	var ours, theirs total
	for range seconds {
		r, err := bare.Run(time.Second, group)
		if err != nil {
			return err
		}
		theirs.add(r, 1)
		if r, err = measure.Drive(time.Second, 1, func(_, _ int) error { return w.commit(ctx) }); err != nil {
			return err
		}
		ours.add(r, group)
		fmt.Fprintf(os.Stderr, "bare %.0f/s, commit %.0f/s p50 %s p99 %s\n", theirs.rate, ours.rate, r.P50, r.P99)
	}
	return measure.Line{Name: "store_commit_64", Value: ours.mean(), Unit: "turns/s", Bare: theirs.mean(), N: ours.n, FS: fs}.Print(os.Stdout)
}

type total struct {
	n, runs   int
	sum, rate float64
}

func (t *total) add(r measure.Result, per int) {
	t.n += r.N * per
	t.runs++
	t.rate = r.PerSecond * float64(per)
	t.sum += t.rate
}

func (t *total) mean() float64 { return t.sum / float64(t.runs) }

type actor struct {
	in, out uint64
}

type work struct {
	store  neuron.Store
	fence  neuron.Fence
	actors []actor
	next   int
}

var body = json.RawMessage(`"` + string(make200()) + `"`)

func make200() []byte {
	b := make([]byte, 198)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

func (w *work) commit(ctx context.Context) error {
	records := make([]*neuron.Record, group)
	now := time.Now()
	for i := range records {
		a := &w.actors[w.next%len(w.actors)]
		key := int64(w.next%len(w.actors)) + 1
		w.next++
		id := neuron.ID{Owner: "me", Kind: "bench", Key: fmt.Sprint(key)}
		d := ident.New(now)
		b, err := json.Marshal(neuron.Entry{Delivery: neuron.Delivery{ID: d, Alias: "bench.in.v1", Payload: body, Target: id, Correlation: d, At: now}})
		if err != nil {
			return err
		}
		r := &neuron.Record{Place: neuron.PlaceOf(id.String()), Neuron: id, Key: key, New: a.in == 0}
		a.in++
		r.Turn = &neuron.TurnRow{Seq: a.in, DeliveryID: d, Incoming: b, OutFirst: a.out + 1}
		if a.in%64 == 0 {
			r.Checkpoint = &neuron.Checkpoint{InSeq: a.in, OutSeq: a.out, Tallies: neuron.Tallies{In: map[string]uint64{"bench.in.v1": a.in}}}
		}
		records[i] = r
	}
	return w.store.Commit(ctx, w.fence, records)
}
