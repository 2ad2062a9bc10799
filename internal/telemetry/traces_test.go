package telemetry_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/telemetry"
)

// span is what OTLP's JSON mapping says that a span is.
type span struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	StartTimeUnixNano, EndTimeUnixNano  string
	Attributes                          []attribute
	Events                              []struct {
		TimeUnixNano, Name string
		Attributes         []attribute
	}
	Status struct{ Code int }
}

type attribute struct {
	Key   string
	Value struct{ StringValue, IntValue *string }
}

func (s *span) attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key && a.Value.StringValue != nil {
			return *a.Value.StringValue
		}
		if a.Key == key && a.Value.IntValue != nil {
			return *a.Value.IntValue
		}
	}
	return ""
}

// spans reads strictly all that the collector got.
func (c *collector) spans(t *testing.T) []span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []span
	for i, body := range c.bodies {
		if h := c.header[i]; h.Get("Content-Type") != "application/json" || h.Get("Authorization") != "Bearer of-the-collector" {
			t.Errorf("sent with %v", h)
		}
		var r struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes []attribute }
				ScopeSpans []struct {
					Scope struct{ Name, Version string }
					Spans []span
				}
			}
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		for _, rs := range r.ResourceSpans {
			if a := rs.Resource.Attributes; len(a) != 2 || a[0].Key != "service.name" || *a[0].Value.StringValue != "soma" {
				t.Errorf("the resource is %+v", a)
			}
			for _, ss := range rs.ScopeSpans {
				all = append(all, ss.Spans...)
			}
		}
	}
	return all
}

var (
	traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)
	spanID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	digits  = regexp.MustCompile(`^[0-9]{19}$`)
)

// N-37: spans come to a collector in OTLP's JSON mapping: ids in hexadecimal, times as strings, the correlation as the trace and
// the causation as the parent; a delivery that was tried again has its attempts as events; nothing of what is said is in them.
func TestSpansAreATree(t *testing.T) {
	c := collect(t)
	w := start(t, c.traces())
	work(t, w)
	w.end(t)
	byName, traces := map[string][]*span{}, map[string][]*span{}
	all := c.spans(t)
	for i := range all {
		s := &all[i]
		byName[s.Name], traces[s.TraceID] = append(byName[s.Name], s), append(traces[s.TraceID], s)
		if !traceID.MatchString(s.TraceID) || !spanID.MatchString(s.SpanID) || s.ParentSpanID != "" && !spanID.MatchString(s.ParentSpanID) ||
			!digits.MatchString(s.StartTimeUnixNano) || !digits.MatchString(s.EndTimeUnixNano) || s.StartTimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("malformed: %+v", s)
		}
	}
	for name, want := range map[string]struct {
		n, code int
		outcome string
	}{
		"test.plain.v1":  {1, 0, "committed"},
		"test.refuse.v1": {1, 0, "refused"},
		"test.fail.v1":   {1, 2, "failed"},
		"other":          {1, 2, "refused"}, // no handler: a dead letter
		"test.relay.v1":  {1, 0, "committed"},
		"test.flaky.v1":  {1, 0, "committed"},
		"test.work.v1":   {2, 0, "committed"},
		"test.ended.v1":  {2, 0, "committed"},
	} {
		got := byName[name]
		if len(got) != want.n || got[0].Status.Code != want.code || got[0].attr("soma.outcome") != want.outcome {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	relay, flaky := byName["test.relay.v1"][0], byName["test.flaky.v1"][0]
	if flaky.ParentSpanID != relay.SpanID || flaky.TraceID != relay.TraceID || relay.ParentSpanID != "" {
		t.Errorf("no tree: %+v, %+v", relay, flaky)
	}
	if root, err := ident.Parse(relay.attr("soma.delivery")); err != nil || hex.EncodeToString(root[:]) != relay.TraceID {
		t.Errorf("the trace %s is not the correlation %s", relay.TraceID, root)
	}
	if len(flaky.Events) != 4 || flaky.Events[0].Name != "attempt" || flaky.Events[3].Name != "attempt failed" ||
		*flaky.Events[3].Attributes[0].Value.IntValue != "2" || flaky.attr("soma.attempt") != "3" || flaky.Events[0].TimeUnixNano != flaky.StartTimeUnixNano {
		t.Errorf("attempts: %+v", flaky)
	}
	for i, run := range byName["execution work"] {
		parent := byName["test.work.v1"][i]
		if run.TraceID != parent.TraceID || run.ParentSpanID != parent.SpanID || len(traces[run.TraceID]) != 3 {
			t.Errorf("execution %+v of %+v", run, parent)
		}
	}
	if n := len(byName["execution work"]); n != 2 {
		t.Errorf("%d executions", n)
	}
	for _, body := range c.bodies {
		if strings.Contains(string(body), marker) {
			t.Errorf("a span holds what a delivery says: %s", body)
		}
	}
	got, _ := scraped(t, w.telemetry)
	if got["soma_trace_spans_total{result=sent}"] != float64(len(all)) || got["soma_trace_spans_total{result=dropped}"] != 0 {
		t.Errorf("%d spans came, the counts say %v", len(all), got)
	}
}

// I-25: an inference is described by the names of the conventions for generative models.
func TestInferenceSpans(t *testing.T) {
	c := collect(t)
	tel := telemetry.New(telemetry.Options{Traces: c.traces(), Executions: []string{"inference"}})
	if err := tel.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 5)
	turn, x := ident.New(now), ident.New(now).WithAttempt(1)
	tel.Ran(telemetry.Run{ID: x, Correlation: turn, Causation: turn, Kind: "inference", Status: "done", Began: now, Took: time.Second})
	tel.Billed(telemetry.Bill{ID: x, Correlation: turn, Causation: turn, Provider: "openai", Model: "m-1", Outcome: "done", Input: 10,
		CacheRead: 5, Output: 7, Began: now, Ended: now.Add(time.Second)})
	tel.CellEnded(telemetry.Cell{ID: "c", Correlation: turn, Causation: turn, Status: "error", Ended: now.Add(3 * time.Second), Took: time.Second})
	if err := tel.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := c.spans(t)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	run, chat, cell := got[0], got[1], got[2]
	if chat.ParentSpanID != run.SpanID || chat.Name != "chat m-1" || chat.Kind != 3 || chat.attr("gen_ai.operation.name") != "chat" ||
		chat.attr("gen_ai.provider.name") != "openai" || chat.attr("gen_ai.request.model") != "m-1" ||
		chat.attr("gen_ai.usage.input_tokens") != "15" || chat.attr("gen_ai.usage.output_tokens") != "7" {
		t.Errorf("%+v", chat)
	}
	if chat.StartTimeUnixNano != "1700000000000000005" || chat.EndTimeUnixNano != "1700000001000000005" {
		t.Errorf("from %s to %s", chat.StartTimeUnixNano, chat.EndTimeUnixNano)
	}
	if cell.Name != "cell" || cell.Status.Code != 2 || cell.ParentSpanID != run.ParentSpanID || cell.StartTimeUnixNano != "1700000002000000005" {
		t.Errorf("%+v", cell)
	}
}

// N-37: a collector that is slow, dead or refuses delays no turn: while it does nothing at all, deliveries are handled as ever,
// spans beyond the queue are dropped and counted, and the end waits for it no longer than its bound.
func TestCollectorDelaysNoTurn(t *testing.T) {
	refuse := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "3600")
			http.Error(w, marker, status)
		}
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + dead.Addr().String()
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	for name, handler := range map[string]http.HandlerFunc{
		"slow":     func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-hang },
		"dead":     nil,
		"busy":     refuse(http.StatusServiceUnavailable),
		"refusing": refuse(http.StatusUnauthorized),
		"moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			traces := &telemetry.Traces{URL: address + "/v1/traces"}
			var asked atomic.Int64
			if handler != nil {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); handler(w, r) }))
				t.Cleanup(s.Close)
				traces.URL = s.URL + "/v1/traces"
			}
			w := start(t, traces)
			flood := ident.New(time.Now())
			began := time.Now()
			for range 10_000 {
				w.telemetry.Attempted(telemetry.Attempt{ID: flood, Correlation: flood, Kind: "test", Alias: plainType.Alias(), Outcome: telemetry.Committed, Lag: -1})
			}
			for range 50 {
				if _, err := deliver(t, w, plainType, marker); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > 5*time.Second { // a request that was waited for takes ten
				t.Errorf("50 turns took %s", took)
			}
			began = time.Now()
			w.end(t)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the end took %s", took)
			}
			if name == "slow" {
				close(hang)
			}
			if n := asked.Load(); n > 12 { // a flush sends nine at most
				t.Errorf("%d requests", n)
			}
			got, text := scraped(t, w.telemetry)
			if got["soma_turns_total{alias=test.plain.v1,kind=test,outcome=committed}"] != 10_050 {
				t.Error("turns were not counted")
			}
			if got["soma_trace_spans_total{result=dropped}"] != 10_050 || got["soma_trace_exports_total{result=failed}"] < 1 && name != "slow" {
				t.Errorf("dropped %v, failed requests %v", got["soma_trace_spans_total{result=dropped}"], got["soma_trace_exports_total{result=failed}"])
			}
			if strings.Contains(text, marker) {
				t.Error("the answer of a collector is shown")
			}
		})
	}
}

// A collector that takes a part only is believed.
func TestPartOfTheSpansIsRejected(t *testing.T) {
	for _, answer := range []string{`{"partialSuccess":{"rejectedSpans":"2","errorMessage":"no"}}`, `{"partialSuccess":{"rejectedSpans":2}}`, `not json`, `{"partialSuccess":{"rejectedSpans":"99"}}`} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, answer)
		}))
		tel := telemetry.New(telemetry.Options{Traces: &telemetry.Traces{URL: s.URL}})
		if err := tel.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		for range 3 {
			tel.Attempted(telemetry.Attempt{ID: ident.New(now), Correlation: ident.New(now), Outcome: telemetry.Committed, Lag: -1})
		}
		if err := tel.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Close()
		got, _ := scraped(t, tel)
		want := map[bool]float64{true: 2, false: 0}[strings.Contains(answer, "2")]
		if strings.Contains(answer, "99") {
			want = 3
		}
		if n := got["soma_trace_spans_total{result=rejected}"]; n != want || got["soma_trace_spans_total{result=sent}"] != 3-want {
			t.Errorf("%s: %v rejected, want %v", answer, n, want)
		}
	}
}

// A trace goes on over the end of a daemon: the ids follow from the deliveries, whoever makes the spans.
func TestSpanIDsFollowFromDeliveries(t *testing.T) {
	d := ident.New(time.Now())
	ids := map[string]bool{}
	for range 2 {
		c := collect(t)
		tel := telemetry.New(telemetry.Options{Traces: c.traces()})
		if err := tel.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		tel.Attempted(telemetry.Attempt{ID: d, Correlation: d, Outcome: telemetry.Committed, Lag: -1, Began: time.Now()})
		if err := tel.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range c.spans(t) {
			ids[s.SpanID] = true
		}
	}
	if len(ids) != 1 {
		t.Errorf("ids %v", ids)
	}
}
