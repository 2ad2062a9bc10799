package samples

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"soma/client"
	"soma/internal/config"
	"soma/wire"
)

// marked is said, computed and printed, and must be in no metric and no span.
const marked = "MARKER-91c4"

const spoken = `
pace: 1ms
steps:
- say: MARKER-91c4 is what I look at.
  calls:
  - python: |
      print("MARKER-91c4")
      1/0  # MARKER-91c4
- error: {attempts: [1], class: retryable, message: MARKER-91c4 is busy, status: 503, retry_after: 10ms}
  say: MARKER-91c4, the end.
`

// N-37: a daemon that is told to sends traces, and one agent turn is one tree in them: its input, dispatches, executions,
// inferences, answers and cells; the metrics of the same daemon tell of the same. Nothing that was said is in either.
func TestOneAgentTurnIsOneTree(t *testing.T) {
	var mu sync.Mutex
	var sent []string
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, string(body))
		_, _ = io.WriteString(w, "{}")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key="+marked)
	d := start(t, spoken)
	token := func() (string, error) {
		secret, err := d.home.ReadToken()
		return secret.Reveal(), err
	}
	c, err := client.New(client.Options{Token: token, Dial: func(ctx context.Context) (net.Conn, error) { return config.DialSocket(ctx, d.home.Socket()) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.OpenSession(t.Context(), marked, wire.OpenSession{Workspace: d.workspace, Model: "played"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admit(t.Context(), s.ID, marked, wire.Input{Text: marked}); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Wait(t.Context(), s.PID, 30*time.Second); err != nil || p.ExitCode == nil || *p.ExitCode != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	metrics, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := d.command("stop", "--kernels").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := <-d.exited; err != nil {
		t.Fatal(err)
	}

	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(metrics)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"soma_inferences_total": 3, "soma_cells_total": 1, "soma_executions_total": 3, "soma_places_held": 256,
	} {
		var sum float64
		for _, m := range families[name].GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		if sum != want {
			t.Errorf("%s is %v, want %v", name, sum, want)
		}
	}

	mu.Lock()
	defer mu.Unlock()
	for _, text := range append(sent, string(metrics)) {
		for _, secret := range []string{marked, d.workspace, d.home.Dir()} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is shown in %s", secret, text)
			}
		}
	}
	type span struct{ TraceID, SpanID, ParentSpanID, Name string }
	traces, spans := map[string][]span{}, map[string]span{}
	for _, body := range sent {
		var r struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
		}
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.ResourceSpans[0].ScopeSpans[0].Spans {
			traces[s.TraceID], spans[s.SpanID] = append(traces[s.TraceID], s), s
		}
	}
	found := false
	for _, trace := range traces {
		names, roots := map[string]int{}, 0
		for _, s := range trace {
			names[s.Name]++
			if s.ParentSpanID == "" {
				roots++
			} else if p, ok := spans[s.ParentSpanID]; !ok || p.TraceID != s.TraceID {
				t.Errorf("%s has the parent %q", s.Name, s.ParentSpanID)
			}
		}
		if names["agent.admit.v1"] == 0 {
			continue
		}
		found = true
		for name, n := range map[string]int{"agent.admit.v1": 1, "execution inference": 3, "agent.answer.v1": 3, "cell": 1, "pykernel.cell_ended.v1": 1} {
			if names[name] != n {
				t.Errorf("%d times %s, want %d: %v", names[name], name, n, names)
			}
		}
		chats := 0
		for name, n := range names {
			if strings.HasPrefix(name, "chat ") {
				chats += n
			}
		}
		if roots != 1 || chats != 3 || names["agent.dispatch.v1"] < 2 {
			t.Errorf("%d roots, %d inferences: %v", roots, chats, names)
		}
	}
	if !found {
		t.Errorf("no trace of the input in %v", traces)
	}
}
