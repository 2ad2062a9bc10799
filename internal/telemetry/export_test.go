package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"soma/ident"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// requests notes when a collector was asked.
type requests struct {
	mu   sync.Mutex
	at   []time.Time
	well bool
}

// add notes a request and reports whether the collector is well.
func (r *requests) add() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return r.well
}

// heal makes the collector well and returns when it was asked until now.
func (r *requests) heal() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.well = true
	return slices.Clone(r.at)
}

// N-37: a collector that fails for an hour gets few requests, whatever is offered meanwhile, and once it is well again it gets
// the traces again.
func TestNoRetryStorm(t *testing.T) {
	for name, fails := range map[string]roundTrip{
		"dead":    func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"busy":    func(r *http.Request) (*http.Response, error) { return answer(r, 503, ""), nil },
		"wrong":   func(r *http.Request) (*http.Response, error) { return answer(r, 404, ""), nil },
		"hanging": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel := New(Options{Traces: &Traces{URL: "http://collector"}, Log: slog.New(slog.DiscardHandler)})
				var log requests
				tel.exporter.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					if log.add() {
						return answer(r, 200, ""), nil
					}
					return fails(r)
				})
				if err := tel.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				offer := func(d time.Duration) {
					for range d / time.Second {
						id := ident.New(time.Now())
						for range 20 {
							tel.Attempted(Attempt{ID: id, Correlation: id, Outcome: Committed, Lag: -1})
						}
						<-time.After(time.Second)
					}
					synctest.Wait()
				}
				offer(time.Hour)
				asked := log.heal()
				if n := len(asked); n < 50 || n > 150 {
					t.Errorf("%d requests in an hour", n)
				}
				for i := 10; i < len(asked); i++ {
					if gap := asked[i].Sub(asked[i-1]); gap < pauseMax/2 {
						t.Errorf("request %d came %s after the one before", i, gap)
					}
				}
				offer(5 * time.Minute)
				if n := len(log.heal()) - len(asked); n < 40 {
					t.Errorf("%d requests once the collector is well", n)
				}
				if err := tel.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A collector that says when it wants to be asked again is asked then, within a bound.
func TestRetryAfter(t *testing.T) {
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, "36000": pauseMax, "-5": 0, "soon": 0} {
		synctest.Test(t, func(t *testing.T) {
			tel := New(Options{Traces: &Traces{URL: "http://collector"}})
			var log requests
			tel.exporter.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				if log.add() {
					return answer(r, 200, ""), nil
				}
				log.heal()
				return answer(r, 429, after), nil
			})
			if err := tel.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := ident.New(time.Now())
			tel.Attempted(Attempt{ID: id, Correlation: id, Outcome: Committed})
			<-time.After(3 * time.Minute)
			synctest.Wait()
			asked := log.heal()
			if len(asked) != 2 {
				t.Fatalf("asked %d times", len(asked))
			}
			if gap := asked[1].Sub(asked[0]); gap < want || gap > want+pauseMin {
				t.Errorf("%s: asked again after %s, want %s", after, gap, want)
			}
			if err := tel.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is remembered of attempts is bounded.
func TestAttemptsAreBounded(t *testing.T) {
	tel := New(Options{Traces: &Traces{URL: "http://collector"}})
	for i := range 3 * triedPending {
		id := ident.Named("x", fmt.Sprint(i))
		for n := range 50 {
			tel.Attempted(Attempt{ID: id, Correlation: id, Number: n, Outcome: Retried})
		}
	}
	if n := len(tel.exporter.tried); n != triedPending {
		t.Errorf("%d deliveries are remembered", n)
	}
	for _, events := range tel.exporter.tried {
		if len(events) > triesKept+1 {
			t.Fatalf("%d events of one delivery", len(events))
		}
	}
}

func answer(r *http.Request, status int, after string) *http.Response {
	h := http.Header{}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: r}
}
