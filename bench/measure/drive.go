package measure

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Result is what a closed loop achieved.
type Result struct {
	N         int
	PerSecond float64
	P50, P99  time.Duration // of one round
}

// Drive runs clients that each call op again as soon as it has returned, for d. op gets the client's number and how often
// that client has called it. The first error ends the loop and is returned.
func Drive(d time.Duration, clients int, op func(client, n int) error) (Result, error) {
	rounds := make([][]time.Duration, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	start := time.Now()
	for c := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				from := time.Now()
				if from.Sub(start) >= d {
					return
				}
				if errs[c] = op(c, n); errs[c] != nil {
					return
				}
				rounds[c] = append(rounds[c], time.Since(from))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	for c, err := range errs {
		if err != nil {
			return Result{}, fmt.Errorf("client %d: %w", c, err)
		}
	}
	all := slices.Concat(rounds...)
	if len(all) == 0 {
		return Result{}, fmt.Errorf("no round ended in %s", d)
	}
	slices.Sort(all)
	return Result{N: len(all), PerSecond: float64(len(all)) / took.Seconds(), P50: all[len(all)/2], P99: all[len(all)*99/100]}, nil
}
