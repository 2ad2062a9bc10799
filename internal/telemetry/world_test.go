package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/observe"
	"soma/internal/store/sqlite"
	"soma/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// marker stands in everything that must not come out.
const marker = "MARKER-7f3a"

type note struct {
	Text string `json:"text"`
}

var (
	plainType  = neuron.NewType[note]("test.plain.v1")
	refuseType = neuron.NewType[note]("test.refuse.v1")
	failType   = neuron.NewType[note]("test.fail.v1")
	relayType  = neuron.NewType[note]("test.relay.v1")
	flakyType  = neuron.NewType[note]("test.flaky.v1")
	workType   = neuron.NewType[note]("test.work.v1")
	endType    = neuron.NewType[neuron.Ended]("test.ended.v1")
)

func aliases() []string {
	return []string{plainType.Alias(), refuseType.Alias(), failType.Alias(), relayType.Alias(), flakyType.Alias(), workType.Alias(),
		endType.Alias(), "test.unhandled.v1"}
}

// observer is what the daemon makes of a telemetry.
type observer struct{ to *telemetry.Telemetry }

func (o observer) Attempted(a observe.Attempt) { o.to.Attempted(telemetry.Attempt(a)) }
func (o observer) Grouped(g observe.Group)     { o.to.Grouped(telemetry.Group(g)) }
func (o observer) Ran(r observe.Run)           { o.to.Ran(telemetry.Run(r)) }

type adapter struct{}

func (adapter) Run(_ context.Context, x neuron.Execution) (json.RawMessage, error) {
	if strings.Contains(string(x.Input), "fail") {
		return nil, errors.New("the work failed: " + marker)
	}
	return json.RawMessage(`"` + marker + `"`), nil
}

func (adapter) Recover(context.Context, neuron.Execution) (json.RawMessage, bool, error) {
	return nil, false, nil
}

// world is a real engine on a real store that a telemetry observes.
type world struct {
	*engine.Engine
	telemetry *telemetry.Telemetry
}

func start(t testing.TB, traces *telemetry.Traces) *world {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	k := neuron.NewKind("test")
	flaky := map[string]int{}
	var mu sync.Mutex
	neuron.Handle(k, plainType, func(*neuron.Turn, note) error { return nil })
	neuron.Handle(k, refuseType, func(*neuron.Turn, note) error { return neuron.SettleAs("not_now", errors.New("no: "+marker)) })
	neuron.Handle(k, failType, func(*neuron.Turn, note) error { return errors.New("broken: " + marker) })
	neuron.Handle(k, flakyType, func(t *neuron.Turn, _ note) error {
		mu.Lock()
		defer mu.Unlock()
		key := t.Delivery().ID.String()
		if flaky[key]++; flaky[key] < 3 {
			return errors.New("broken: " + marker)
		}
		return nil
	})
	neuron.Handle(k, relayType, func(t *neuron.Turn, n note) error { return neuron.Send(t, id("flaky"), flakyType, n) })
	neuron.Handle(k, workType, func(t *neuron.Turn, n note) error {
		t.Start(neuron.Execution{Kind: "work", Policy: neuron.Once, Input: json.RawMessage(`"` + n.Text + `"`), Then: endType.Alias()})
		return nil
	})
	neuron.Handle(k, endType, func(*neuron.Turn, neuron.Ended) error { return nil })
	w := &world{}
	w.telemetry = telemetry.New(telemetry.Options{
		Build: "b1", Handlers: map[string][]string{"test": append(k.Aliases(), engine.SystemAliases()...)}, Executions: []string{"work"},
		Routes: []string{"GET /x"}, Traces: traces,
		Sample: func() telemetry.Sample {
			s := w.Stats()
			return telemetry.Sample{Warm: s.Warm, Outbox: s.Outbox - s.Dormant, Alarms: s.Dormant, Places: -1, StoreBytes: 4096, FeedDrops: 3}
		},
	})
	if err := w.telemetry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Engine, err = engine.New(engine.Options{
		Store: store, Kinds: []*neuron.Kind{k}, Types: aliases(), Adapters: map[string]neuron.Adapter{"work": adapter{}},
		Limits: neuron.Limits{BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond}, Observer: observer{w.telemetry},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.end(t) })
	return w
}

// end stops both; it may be called again.
func (w *world) end(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := errors.Join(w.Stop(ctx), w.telemetry.Stop(ctx)); err != nil {
		t.Error(err)
	}
}

func id(key string) neuron.ID { return neuron.ID{Owner: "me", Kind: "test", Key: key + marker} }

func deliver(t testing.TB, w *world, typ neuron.Type[note], text string) (neuron.Delivery, error) {
	t.Helper()
	d, err := typ.New(id("a"), note{text}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return d, w.Deliver(t.Context(), d)
}

func quiet(t testing.TB, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.Quiet(ctx); err != nil {
		t.Fatalf("not quiet: %v, %+v", err, w.Stats())
	}
}

// work lets everything happen that is told of.
func work(t testing.TB, w *world) {
	t.Helper()
	d, err := deliver(t, w, plainType, marker)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Deliver(t.Context(), d); err != nil { // a repeat
		t.Fatal(err)
	}
	var refusal *neuron.Refusal
	if _, err := deliver(t, w, refuseType, marker); !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	if _, err := deliver(t, w, failType, marker); err == nil || errors.As(err, &refusal) {
		t.Fatal(err)
	}
	if _, err := deliver(t, w, neuron.NewType[note]("test.unhandled.v1"), marker); !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	if _, err := deliver(t, w, relayType, marker); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{marker, "fail " + marker} {
		if _, err := deliver(t, w, workType, text); err != nil {
			t.Fatal(err)
		}
	}
	quiet(t, w)
}

// scraped are the samples of a scrape, read by the parser that scrapers use: name{label="value",…} to value.
func scraped(t testing.TB, w *telemetry.Telemetry) (map[string]float64, string) {
	t.Helper()
	kind, text, err := w.Metrics()
	if err != nil || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Fatal(kind, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for name, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s says nothing of itself", name)
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := name
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				all[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				all[key] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				all[key] = float64(m.GetHistogram().GetSampleCount())
				all[key+" sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return all, string(text)
}

// collector is a real HTTP server that takes traces.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	header []http.Header
}

func collect(t testing.TB) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies, c.header = append(c.bodies, body), append(c.header, r.Header.Clone())
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) traces() *telemetry.Traces {
	return &telemetry.Traces{URL: c.URL + "/v1/traces", Header: http.Header{"Authorization": {"Bearer of-the-collector"}}}
}
