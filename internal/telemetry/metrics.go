package telemetry

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Buckets, in seconds but for groups. They are few: each is a series of every kind and alias.
var (
	turnBuckets    = []float64{.0005, .001, .0025, .005, .01, .025, .1, .5, 2.5, 10, 45}
	commitBuckets  = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 2.5}
	groupBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}
	longBuckets    = []float64{.01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	requestBuckets = []float64{.0005, .001, .0025, .005, .01, .05, .25, 1, 5, 30}
)

// metrics are the counts since the start. What the hot path needs is looked up in tables that do not change.
type metrics struct {
	registry *prometheus.Registry

	turns       map[turnKey]*turnSeries
	refusals    *prometheus.CounterVec
	dead        *prometheus.CounterVec
	codes       *names
	lag         map[string]prometheus.Observer // by kind
	commits     [2]prometheus.Counter          // applied, failed
	groups      prometheus.Histogram
	commitTime  prometheus.Histogram
	runs        *prometheus.CounterVec
	runTime     *prometheus.HistogramVec
	runKinds    []string
	cells       *prometheus.CounterVec
	cellTime    prometheus.Histogram
	models      *names
	inferences  *prometheus.CounterVec
	infer       *prometheus.HistogramVec
	tokens      *prometheus.CounterVec
	cost        *prometheus.CounterVec
	unpriced    *prometheus.CounterVec
	routes      map[string]bool
	requests    *prometheus.CounterVec
	requestTime *prometheus.HistogramVec
	answered    sync.Map // requestKey to *requestSeries
	spans       *prometheus.CounterVec
	exports     *prometheus.CounterVec
	beats       *prometheus.CounterVec
	beatTime    prometheus.Histogram
	places      *prometheus.CounterVec
}

type turnKey struct{ kind, alias string }

// turnSeries are the series of one kind and alias.
type turnSeries struct {
	turnKey
	committed, refused, retried, failed, duplicate prometheus.Counter
	took                                           prometheus.Observer
}

func (s *turnSeries) outcome(name string) prometheus.Counter {
	switch name {
	case Committed:
		return s.committed
	case Refused:
		return s.refused
	case Retried:
		return s.retried
	case Duplicate:
		return s.duplicate
	}
	return s.failed
}

type requestKey struct {
	route  string
	status int
}

type requestSeries struct {
	count prometheus.Counter
	took  prometheus.Observer // nil for a stream
}

func newMetrics(o Options) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), turns: map[turnKey]*turnSeries{}, codes: newNames(maxCodes), models: newNames(maxModels),
		lag: map[string]prometheus.Observer{}, runKinds: o.Executions, routes: map[string]bool{},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.Sample != nil {
		m.registry.MustRegister(newSampler(o.Sample))
	}
	m.counter("soma_build_info", "The build that runs; always 1.", "version").WithLabelValues(o.Build).Inc()
	m.addTurns(o.Handlers)
	commits := m.counter("soma_commits_total", "Transactions of the committer by result.", "result")
	m.commits = [2]prometheus.Counter{commits.WithLabelValues("applied"), commits.WithLabelValues("failed")}
	m.groups = m.single("soma_commit_records", "Records in one transaction.", groupBuckets)
	m.commitTime = m.single("soma_commit_duration_seconds", "Time of one transaction with its fsync.", commitBuckets)
	m.runs = m.counter("soma_executions_total", "Ended runs of executions by status.", "kind", "status")
	m.runTime = m.histogram("soma_execution_duration_seconds", "Time of one run of an execution.", longBuckets, "kind")
	m.cells = m.counter("soma_cells_total", "Cells that have ended, by status.", "status")
	m.cellTime = m.single("soma_cell_duration_seconds", "Time that a cell ran.", longBuckets)
	m.inferences = m.counter("soma_inferences_total", "Attempts at an inference by outcome.", "provider", "model", "outcome")
	m.infer = m.histogram("soma_inference_duration_seconds", "Time of one attempt at an inference.", longBuckets, "provider", "model")
	m.tokens = m.counter("soma_inference_tokens_total", "Tokens by class.", "provider", "model", "class")
	m.cost = m.counter("soma_inference_cost_dollars_total", "Cost where the price is known.", "provider", "model")
	m.unpriced = m.counter("soma_inference_unpriced_total", "Attempts whose price nobody knows.", "provider", "model")
	m.requests = m.counter("soma_api_requests_total", "Answered requests by route and status.", "route", "code")
	m.requestTime = m.histogram("soma_api_request_duration_seconds", "Time of one request that is no stream.", requestBuckets, "route")
	for _, r := range o.Routes {
		m.routes[r] = true
	}
	m.beats = m.counter("soma_lease_beats_total", "Beats of the lease by result.", "result")
	m.beatTime = m.single("soma_lease_beat_duration_seconds", "Time of one beat of the lease.", requestBuckets)
	m.places = m.counter("soma_places_total", "Places that came to this node or went from it.", "change")
	m.spans = m.counter("soma_trace_spans_total", "Spans by what became of them.", "result")
	m.exports = m.counter("soma_trace_exports_total", "Requests to the collector of traces by result.", "result")
	if o.Traces != nil {
		for _, r := range []string{"sent", "rejected", "dropped"} {
			m.spans.WithLabelValues(r)
		}
	}
	return m
}

// addTurns makes the series of all kinds and aliases, and of what is in no list.
func (m *metrics) addTurns(handlers map[string][]string) {
	count := m.counter("soma_turns_total", "Attempts at deliveries by outcome.", "kind", "alias", "outcome")
	took := m.histogram("soma_turn_duration_seconds", "Time of one attempt, until its record is committed or it has failed.", turnBuckets, "kind", "alias")
	lag := m.histogram("soma_outbox_lag_seconds", "Time from when an outbox row was due until its attempt began.", turnBuckets, "kind")
	m.refusals = m.counter("soma_refusals_total", "Settled refusals by code.", "kind", "code")
	m.dead = m.counter("soma_dead_letters_total", "Deliveries that became dead letters by code.", "kind", "code")
	series := func(kind, alias string) *turnSeries {
		of := func(outcome string) prometheus.Counter { return count.WithLabelValues(kind, alias, outcome) }
		return &turnSeries{
			turnKey: turnKey{kind, alias}, committed: of(Committed), refused: of(Refused), retried: of(Retried), failed: of(Failed),
			duplicate: of(Duplicate), took: took.WithLabelValues(kind, alias),
		}
	}
	add := func(kind string, aliases ...string) {
		m.lag[kind] = lag.WithLabelValues(kind)
		for _, alias := range aliases {
			m.turns[turnKey{kind, alias}] = series(kind, alias)
		}
	}
	add(other, other)
	for kind, aliases := range handlers {
		add(kind, append(aliases, other)...)
	}
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *metrics) single(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// seriesOf returns the series of a kind and alias; its names are labels.
func (m *metrics) seriesOf(kind, alias string) *turnSeries {
	for _, key := range [...]turnKey{{kind, alias}, {kind, other}} {
		if s := m.turns[key]; s != nil {
			return s
		}
	}
	return m.turns[turnKey{other, other}]
}

func (m *metrics) attempt(a *Attempt, s *turnSeries) {
	s.outcome(a.Outcome).Inc()
	s.took.Observe(a.Took.Seconds())
	if a.Lag >= 0 {
		m.lag[s.kind].Observe(a.Lag.Seconds())
	}
	if a.Outcome == Refused {
		code := m.codes.of(a.Code)
		m.refusals.WithLabelValues(s.kind, code).Inc()
		if a.Dead {
			m.dead.WithLabelValues(s.kind, code).Inc()
		}
	}
}

func (m *metrics) group(g Group) {
	if g.Failed {
		m.commits[1].Inc()
		return
	}
	m.commits[0].Inc()
	m.groups.Observe(float64(g.Records))
	m.commitTime.Observe(g.Took.Seconds())
}

func (m *metrics) run(r *Run) {
	m.runs.WithLabelValues(r.Kind, r.Status).Inc()
	if !r.Recovered && r.Status != "unknown" {
		m.runTime.WithLabelValues(r.Kind).Observe(r.Took.Seconds())
	}
}

func (m *metrics) cell(c *Cell) {
	m.cells.WithLabelValues(c.Status).Inc()
	m.cellTime.Observe(c.Took.Seconds())
}

func (m *metrics) bill(b *Bill) {
	m.inferences.WithLabelValues(b.Provider, b.Model, b.Outcome).Inc()
	m.infer.WithLabelValues(b.Provider, b.Model).Observe(max(0, b.Ended.Sub(b.Began).Seconds()))
	for _, t := range []struct {
		class string
		n     int64
	}{{"input", b.Input}, {"cache_read", b.CacheRead}, {"cache_write", b.CacheWrite}, {"output", b.Output}, {"reasoning", b.Thought}} {
		m.tokens.WithLabelValues(b.Provider, b.Model, t.class).Add(float64(max(0, t.n)))
	}
	if b.Cost == nil {
		m.unpriced.WithLabelValues(b.Provider, b.Model).Inc()
		return
	}
	m.cost.WithLabelValues(b.Provider, b.Model).Add(float64(max(0, *b.Cost)) / 1e9)
}

func (m *metrics) request(r Request) {
	if !m.routes[r.Route] {
		r.Route = other
	}
	key := requestKey{r.Route, r.Status}
	if r.Status < 100 || r.Status > 599 {
		key.status = 0
	}
	found, ok := m.answered.Load(key)
	if !ok {
		s := &requestSeries{count: m.requests.WithLabelValues(key.route, strconv.Itoa(key.status)), took: m.requestTime.WithLabelValues(key.route)}
		found, _ = m.answered.LoadOrStore(key, s)
	}
	s := found.(*requestSeries)
	s.count.Inc()
	if !r.Stream {
		s.took.Observe(r.Took.Seconds())
	}
}

func (m *metrics) beat(b Beat) {
	result := "ok"
	if !b.OK {
		result = "failed"
	}
	m.beats.WithLabelValues(result).Inc()
	m.beatTime.Observe(b.Took.Seconds())
	m.places.WithLabelValues("taken").Add(float64(b.Taken))
	m.places.WithLabelValues("given").Add(float64(b.Given))
	m.places.WithLabelValues("lost").Add(float64(b.Lost))
}

// text gathers everything and writes it in the text format.
func (m *metrics) text() (kind string, body []byte, err error) {
	families, err := m.registry.Gather()
	if err != nil {
		return "", nil, fmt.Errorf("cannot gather the metrics: %w", err)
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var b bytes.Buffer
	e := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return "", nil, fmt.Errorf("cannot write the metrics: %w", err)
		}
	}
	return string(format), b.Bytes(), nil
}
