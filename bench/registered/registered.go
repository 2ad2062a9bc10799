// Package registered measures what many neurons cost that are registered: it fills a database with the rows that their turns
// leave, and measures how much memory activations of them take.
//
// It wires the real engine and the real store.
package registered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"soma/bench/measure"
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/store/sqlite"
)

// group is how many neurons one transaction registers.
const group = 8192

type message struct {
	Text string `json:"text"`
}

var noted = neuron.NewType[message]("bench.noted.v1")

func id(n int) neuron.ID {
	return neuron.ID{Owner: "me", Kind: "bench", Key: fmt.Sprintf("registered %07d", n)}
}

// Fill registers n neurons at the database of path, as if each had handled its first delivery: the store itself writes the
// rows, many neurons in a transaction. The next life of a node claims the places anew.
func Fill(ctx context.Context, path string, n int) (err error) {
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fence, err := s.Claim(ctx, "bench")
	if err != nil {
		return err
	}
	key, _, err := s.ReserveKeys(ctx)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(message{strings.Repeat("x", 180)})
	if err != nil {
		return err
	}
	for from := 0; from < n; from += group {
		var records []*neuron.Record
		now := time.Now()
		for i := from; i < min(n, from+group); i++ {
			d := neuron.Delivery{ID: ident.New(now), Alias: noted.Alias(), Payload: payload, Target: id(i), At: now}
			d.Correlation = d.ID
			body, err := neuron.EncodeEntry(&neuron.Entry{Delivery: d})
			if err != nil {
				return err
			}
			records = append(records, &neuron.Record{
				Place: neuron.PlaceOf(d.Target.String()), Neuron: d.Target, Key: key, New: true,
				Turn: &neuron.TurnRow{Seq: 1, DeliveryID: d.ID, Incoming: body, OutFirst: 1},
			})
			key++
		}
		if err := s.Commit(ctx, fence, records); err != nil {
			return err
		}
	}
	return nil
}

const (
	warm    = 10_000
	clients = 64
)

// Warm returns the line warm_10k_mb: the heap that activations take which were read from the database of path, of neurons
// without state.
func Warm(ctx context.Context, path, fs string) (line measure.Line, err error) {
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	k := neuron.NewKind("bench")
	neuron.Handle(k, noted, func(*neuron.Turn, message) error { return nil })
	e, err := engine.New(engine.Options{Store: s, Kinds: []*neuron.Kind{k}, Types: []string{noted.Alias()}, Limits: neuron.Limits{
		Warm: 2 * warm, IdleAfter: time.Hour,
	}})
	if err != nil {
		return line, err
	}
	if err := e.Start(ctx); err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()
	if err := touch(ctx, e, warm, warm+clients); err != nil { // statements, buffers, goroutines
		return line, err
	}
	before := heap()
	if err := touch(ctx, e, 0, warm); err != nil {
		return line, err
	}
	if n := e.Stats().Warm; n != warm+clients {
		return line, fmt.Errorf("%d activations are warm, not %d", n, warm+clients)
	}
	return measure.Line{Name: "warm_10k_mb", Value: (heap() - before) / 1e6, Unit: "MB", N: warm, FS: fs}, nil
}

// touch sends a delivery to each of the neurons.
func touch(ctx context.Context, e *engine.Engine, from, to int) error {
	var wg sync.WaitGroup
	errs := make([]error, clients)
	for c := range clients {
		wg.Go(func() {
			for n := from + c; n < to && errs[c] == nil; n += clients {
				errs[c] = engine.Fire(ctx, e, id(n), noted, message{"wake up"})
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// heap is how many bytes live.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools let go of what they hold at the second one
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
