package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"soma/ident"
)

// Traces says where spans are sent to.
type Traces struct {
	// URL takes POST requests of OTLP/HTTP, such as http://localhost:4318/v1/traces.
	URL string
	// Header is sent with each request and never logged.
	Header http.Header
}

// Bounds of the way to the collector.
const (
	queuedSpans  = 4096 // beyond them spans are dropped
	batchSpans   = 512  // in one request
	batchTime    = 5 * time.Second
	requestTime  = 10 * time.Second // of one request
	maxAnswer    = 64 << 10         // bytes of an answer that are read
	batchTries   = 3                // before a batch is dropped
	pauseMin     = time.Second      // after a request that failed; doubles
	pauseMax     = time.Minute
	flushTime    = 2 * time.Second // of what is sent at the end
	triedPending = 1024            // deliveries whose failed attempts are remembered
	triesKept    = 8               // of one delivery
)

// exporter sends spans in batches. offer and attempt may be called from any goroutine; the rest belongs to run.
type exporter struct {
	traces  Traces
	build   string
	log     *slog.Logger
	metrics *metrics
	client  *http.Client
	queue   chan span

	sent, dropped, rejected prometheus.Counter
	exported, failed        prometheus.Counter

	mu    sync.Mutex
	tried map[ident.ID][]event // failed attempts of deliveries that are tried again

	pause time.Duration // 0: the last request went well
	next  time.Time     // no request before it
}

func newExporter(t Traces, build string, log *slog.Logger, m *metrics) *exporter {
	x := &exporter{
		traces: t, build: build, log: log, metrics: m, queue: make(chan span, queuedSpans), tried: map[ident.ID][]event{},
		sent: m.spans.WithLabelValues("sent"), dropped: m.spans.WithLabelValues("dropped"), rejected: m.spans.WithLabelValues("rejected"),
		exported: m.exports.WithLabelValues("ok"), failed: m.exports.WithLabelValues("failed"),
	}
	x.client = &http.Client{
		Timeout: requestTime,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		// The header may hold a credential, which belongs to this one address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return x
}

// offer queues a span, or drops it.
func (x *exporter) offer(s span) {
	if s.trace.IsZero() {
		return
	}
	select {
	case x.queue <- s:
	default:
		x.dropped.Inc()
	}
}

// attempt remembers an attempt that failed and will be repeated, and offers the span of a delivery that is settled.
func (x *exporter) attempt(a *Attempt, names turnKey) {
	if a.Outcome == Duplicate {
		return
	}
	x.mu.Lock()
	tries := x.tried[a.ID]
	if a.Outcome == Retried {
		if len(tries) == 0 && len(x.tried) >= triedPending {
			for id := range x.tried { // any one: it loses its events, not its span
				delete(x.tried, id)
				break
			}
		}
		if len(tries) < triesKept {
			number := attribute{key: "soma.attempt", number: int64(a.Number)}
			x.tried[a.ID] = append(tries, event{"attempt", a.Began, []attribute{number}}, event{"attempt failed", a.Began.Add(a.Took), []attribute{number}})
		}
		x.mu.Unlock()
		return
	}
	if a.Outcome != Failed {
		delete(x.tried, a.ID)
	}
	x.mu.Unlock()
	if a.Outcome == Failed {
		tries = nil
	}
	x.offer(turnSpan(a, names, tries))
}

// run sends what is queued until ctx ends, and then what is left.
func (x *exporter) run(ctx context.Context) error {
	defer x.client.CloseIdleConnections()
	batch := make([]span, 0, batchSpans)
	timer := time.NewTimer(batchTime)
	defer timer.Stop()
	for {
		full := false
		select {
		case s := <-x.queue:
			if batch = append(batch, s); len(batch) == 1 {
				timer.Reset(batchTime)
			}
			full = len(batch) == batchSpans
		case <-timer.C:
			full = len(batch) > 0
		case <-ctx.Done():
			x.flush(ctx, batch)
			return nil
		}
		if full && x.send(ctx, batch) {
			clear(batch)
			batch = batch[:0]
		}
	}
}

// send sends a batch, again after a pause where that may help. It returns false when ctx has ended before the batch was sent
// or dropped.
func (x *exporter) send(ctx context.Context, batch []span) bool {
	for try := 1; ; try++ {
		if !x.rest(ctx) {
			return false
		}
		again, err := x.post(ctx, batch)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !again || try == batchTries {
			x.dropped.Add(float64(len(batch)))
			return true
		}
	}
}

// rest waits until the next request may be made.
func (x *exporter) rest(ctx context.Context) bool {
	wait := time.Until(x.next)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// flush sends what is left when the daemon ends, unless the collector was failing anyway.
func (x *exporter) flush(ctx context.Context, batch []span) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	for {
		for len(batch) < batchSpans && len(x.queue) > 0 {
			batch = append(batch, <-x.queue)
		}
		if len(batch) == 0 {
			return
		}
		if x.pause > 0 {
			x.dropped.Add(float64(len(batch)))
		} else if _, err := x.post(ctx, batch); err != nil {
			x.dropped.Add(float64(len(batch)))
		}
		batch = batch[:0]
	}
}

// post makes one request. again reports whether the same request may do better later.
func (x *exporter) post(ctx context.Context, batch []span) (again bool, err error) {
	body, err := encodeSpans(x.build, batch)
	if err != nil { // names and numbers
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.traces.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for name, values := range x.traces.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "soma/"+x.build)
	answer, err := x.client.Do(request)
	if err != nil {
		x.fails(ctx, 0, err)
		return true, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 502 && answer.StatusCode <= 504:
		err, again = fmt.Errorf("the collector answered %d", answer.StatusCode), true
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		err = fmt.Errorf("the collector answered %d", answer.StatusCode)
	case err != nil: // it has taken the spans, whatever it wanted to say
		err = nil
	}
	if err != nil {
		after, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		x.fails(ctx, time.Duration(min(max(after, 0), int(pauseMax/time.Second)))*time.Second, err)
		return again, err
	}
	n := min(max(rejected(text), 0), len(batch))
	x.rejected.Add(float64(n))
	x.sent.Add(float64(len(batch) - n))
	x.exported.Inc()
	if x.pause > 0 {
		x.log.Info("traces are taken again")
	}
	x.pause, x.next = 0, time.Time{}
	return false, nil
}

// fails counts a request that failed and puts off the next one, at least by what the collector asks for.
func (x *exporter) fails(ctx context.Context, after time.Duration, err error) {
	x.failed.Inc()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // cut off by the end
	}
	if x.pause == 0 {
		x.log.Warn("traces are not taken; they are dropped once the queue is full", "error", err)
	}
	x.pause = min(max(pauseMin, 2*x.pause), pauseMax)
	wait := x.pause/2 + rand.N(x.pause/2+1)
	x.next = time.Now().Add(max(wait, after))
}
