package telemetry

import (
	"cmp"
	"context"
	"log/slog"

	"soma/internal/lifecycle"
)

// Options say what is described. The lists bound the labels: what is in none of them is counted as "other".
type Options struct {
	Build string
	// Handlers are the aliases that each kind handles.
	Handlers map[string][]string
	// Executions are the kinds of executions.
	Executions []string
	// Routes are the routes of the API, as method and pattern.
	Routes []string
	// Sample is asked at each scrape, and must not block; nil: nothing of it is shown.
	Sample func() Sample
	// Traces is where spans are sent to; nil: none are made.
	Traces *Traces
	Log    *slog.Logger
}

// Telemetry counts and traces. Its methods are safe for concurrent use; but for Start, Stop and Metrics none of them blocks,
// and none fails: what finds no room is dropped and counted.
type Telemetry struct {
	metrics  *metrics
	exporter *exporter // nil: no traces
	tasks    lifecycle.Tasks
}

// New returns a telemetry that counts. Spans wait for Start.
func New(o Options) *Telemetry {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{metrics: newMetrics(o)}
	if o.Traces != nil {
		t.exporter = newExporter(*o.Traces, o.Build, o.Log, t.metrics)
	}
	return t
}

// Start begins to send spans, if any are asked for. The error is that of a telemetry that was stopped.
func (t *Telemetry) Start(ctx context.Context) error {
	if t.exporter == nil {
		return nil
	}
	return t.tasks.Go(context.WithoutCancel(ctx), "traces", t.exporter.run)
}

// Stop sends what waits, for two seconds at most, and ends.
func (t *Telemetry) Stop(ctx context.Context) error { return t.tasks.Stop(ctx) }

// Metrics returns everything that is counted in the Prometheus text format, with its content type. Errors: a sample that
// contradicts itself.
func (t *Telemetry) Metrics() (kind string, text []byte, err error) { return t.metrics.text() }

// Attempted counts an attempt and, once its delivery is settled, traces the delivery.
func (t *Telemetry) Attempted(a Attempt) {
	s := t.metrics.seriesOf(a.Kind, a.Alias)
	t.metrics.attempt(&a, s)
	if t.exporter != nil {
		a.Code = t.code(a)
		t.exporter.attempt(&a, s.turnKey)
	}
}

func (t *Telemetry) code(a Attempt) string {
	if a.Outcome != Refused {
		return ""
	}
	return t.metrics.codes.of(a.Code)
}

// Grouped counts a commit.
func (t *Telemetry) Grouped(g Group) { t.metrics.group(g) }

// Ran counts and traces a run of an execution.
func (t *Telemetry) Ran(r Run) {
	r.Kind = among(r.Kind, t.metrics.runKinds...)
	r.Status = among(r.Status, "done", "failed", "unknown", "stopped")
	t.metrics.run(&r)
	if t.exporter != nil {
		t.exporter.offer(runSpan(&r))
	}
}

// Billed counts and traces an attempt at an inference.
func (t *Telemetry) Billed(b Bill) {
	if t.metrics.models.of(cmp.Or(b.Provider, "unknown")+"@"+b.Model) == other || !plain(b.Model) {
		b.Provider, b.Model = other, other
	}
	b.Outcome = among(b.Outcome, "done", "failed", "superseded", "cancelled", "lost")
	t.metrics.bill(&b)
	if t.exporter != nil {
		t.exporter.offer(billSpan(&b))
	}
}

// CellEnded counts and traces a cell.
func (t *Telemetry) CellEnded(c Cell) {
	c.Status = among(c.Status, "ok", "error", "interrupted", "timed_out", "unknown", "not_started")
	t.metrics.cell(&c)
	if t.exporter != nil {
		t.exporter.offer(cellSpan(&c))
	}
}

// Answered counts a request.
func (t *Telemetry) Answered(r Request) { t.metrics.request(r) }

// Beat counts a beat of the lease.
func (t *Telemetry) Beat(b Beat) { t.metrics.beat(b) }
