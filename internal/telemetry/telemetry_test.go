package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/telemetry"
)

// N-37: a scrape, read by the official parser, tells of turns by kind, alias and outcome, refusals by code, retries, dead
// letters, drains, executions, commits and the store.
func TestScrapeTellsWhatHappened(t *testing.T) {
	w := start(t, nil)
	work(t, w)
	got, text := scraped(t, w.telemetry)
	for key, want := range map[string]float64{
		"soma_turns_total{alias=test.plain.v1,kind=test,outcome=committed}":            1,
		"soma_turns_total{alias=test.plain.v1,kind=test,outcome=duplicate}":            1,
		"soma_turns_total{alias=test.refuse.v1,kind=test,outcome=refused}":             1,
		"soma_turns_total{alias=test.fail.v1,kind=test,outcome=failed}":                1,
		"soma_turns_total{alias=test.relay.v1,kind=test,outcome=committed}":            1,
		"soma_turns_total{alias=test.flaky.v1,kind=test,outcome=retried}":              2,
		"soma_turns_total{alias=test.flaky.v1,kind=test,outcome=committed}":            1,
		"soma_turns_total{alias=test.work.v1,kind=test,outcome=committed}":             2,
		"soma_turns_total{alias=test.ended.v1,kind=test,outcome=committed}":            2,
		"soma_turns_total{alias=other,kind=test,outcome=refused}":                      1, // no handler
		"soma_turn_duration_seconds{alias=test.flaky.v1,kind=test}":                    3,
		"soma_refusals_total{code=not_now,kind=test}":                                  1,
		"soma_refusals_total{code=no_handler,kind=test}":                               1,
		"soma_dead_letters_total{code=no_handler,kind=test}":                           1,
		"soma_executions_total{kind=work,status=done}":                                 1,
		"soma_executions_total{kind=work,status=failed}":                               1,
		"soma_execution_duration_seconds{kind=work}":                                   2,
		"soma_outbox_rows{state=waiting}":                                              0,
		"soma_outbox_rows{state=alarm}":                                                0,
		"soma_activations_warm":                                                        2,
		"soma_store_bytes":                                                             4096,
		"soma_feed_drops_total":                                                        3,
		"soma_build_info{version=b1}":                                                  1,
		"soma_commits_total{result=failed}":                                            0,
		"soma_turns_total{alias=neuron.delivery_ended.v1,kind=test,outcome=committed}": 0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", key, v, ok, want)
		}
	}
	groups := got["soma_commits_total{result=applied}"]
	if groups != float64(w.Stats().Groups) || groups != got["soma_commit_duration_seconds"] || groups != got["soma_commit_records"] ||
		got["soma_commit_records sum"] < groups || got["soma_commit_duration_seconds sum"] <= 0 {
		t.Errorf("commits: %v of %d", groups, w.Stats().Groups)
	}
	// The outcome of an execution has an outbox row where its neuron was busy.
	if n := got["soma_outbox_lag_seconds{kind=test}"]; n < 3 || n > 5 {
		t.Errorf("the lag of %v drained rows", n)
	}
	if got["go_goroutines"] < 1 || got["process_open_fds"] < 1 {
		t.Error("nothing of the program itself is told")
	}
	if _, ok := got["soma_places_held"]; ok {
		t.Error("what is not known is shown")
	}
	if strings.Contains(text, marker) {
		t.Errorf("the scrape holds what a delivery says:\n%s", text)
	}
	if strings.Contains(text, "soma_trace_") {
		t.Error("traces are told of that nobody asked for")
	}
}

// N-37: what is no turn: inferences, cells, requests, the lease.
func TestOtherCounts(t *testing.T) {
	tel := telemetry.New(telemetry.Options{Routes: []string{"GET /x", "GET /events"}})
	now, cost := time.Now(), int64(2_500_000_000)
	bill := telemetry.Bill{Provider: "openai", Model: "m-1", Outcome: "done", Input: 10, CacheRead: 3, Output: 7, Cost: &cost, Began: now, Ended: now.Add(time.Second)}
	tel.Billed(bill)
	bill.Cost, bill.Outcome = nil, "what "+marker
	tel.Billed(bill)
	tel.CellEnded(telemetry.Cell{Status: "ok", Ended: now, Took: 2 * time.Second})
	tel.CellEnded(telemetry.Cell{Status: marker, Ended: now})
	tel.Answered(telemetry.Request{Route: "GET /x", Status: 200, Took: time.Second})
	tel.Answered(telemetry.Request{Route: "GET /events", Status: 200, Took: time.Hour, Stream: true})
	tel.Answered(telemetry.Request{Route: "/" + marker, Status: 404})
	tel.Beat(telemetry.Beat{OK: true, Took: time.Millisecond, Taken: 256})
	tel.Beat(telemetry.Beat{Lost: 6})
	got, text := scraped(t, tel)
	for key, want := range map[string]float64{
		"soma_inferences_total{model=m-1,outcome=done,provider=openai}":           1,
		"soma_inferences_total{model=m-1,outcome=other,provider=openai}":          1,
		"soma_inference_tokens_total{class=input,model=m-1,provider=openai}":      20,
		"soma_inference_tokens_total{class=cache_read,model=m-1,provider=openai}": 6,
		"soma_inference_tokens_total{class=output,model=m-1,provider=openai}":     14,
		"soma_inference_cost_dollars_total{model=m-1,provider=openai}":            2.5,
		"soma_inference_unpriced_total{model=m-1,provider=openai}":                1,
		"soma_inference_duration_seconds{model=m-1,provider=openai} sum":          2,
		"soma_cells_total{status=ok}":                                             1,
		"soma_cells_total{status=other}":                                          1,
		"soma_cell_duration_seconds sum":                                          2,
		"soma_api_requests_total{code=200,route=GET /x}":                          1,
		"soma_api_requests_total{code=200,route=GET /events}":                     1,
		"soma_api_requests_total{code=404,route=other}":                           1,
		"soma_api_request_duration_seconds{route=GET /x} sum":                     1,
		"soma_api_request_duration_seconds{route=GET /events}":                    0,
		"soma_lease_beats_total{result=ok}":                                       1,
		"soma_lease_beats_total{result=failed}":                                   1,
		"soma_places_total{change=taken}":                                         256,
		"soma_places_total{change=lost}":                                          6,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", key, v, ok, want)
		}
	}
	if strings.Contains(text, marker) {
		t.Errorf("the scrape holds the marker:\n%s", text)
	}
}

// N-37: labels are bounded by what is wired, whatever comes in from outside.
func TestLabelsAreBounded(t *testing.T) {
	tel := telemetry.New(telemetry.Options{
		Handlers: map[string][]string{"k": {"a.v1"}}, Executions: []string{"work"}, Routes: []string{"GET /x"},
	})
	fill := func(n int) int {
		// First, while there is room for names.
		for _, secret := range []string{"/home/me/" + marker, "../" + marker, "~/" + marker, "a " + marker, marker + "\n", "x" + strings.Repeat(marker, 100)} {
			tel.Attempted(telemetry.Attempt{Kind: secret, Alias: secret, Outcome: telemetry.Refused, Code: secret})
			tel.Billed(telemetry.Bill{Provider: "openai", Model: secret})
			tel.Billed(telemetry.Bill{Provider: secret, Model: "m"})
		}
		for i := range n {
			name := fmt.Sprintf("x%d", i)
			tel.Attempted(telemetry.Attempt{Kind: name, Alias: name, Outcome: telemetry.Refused, Code: name, Dead: true, Lag: 1})
			tel.Attempted(telemetry.Attempt{Kind: "k", Alias: "a.v1", Outcome: telemetry.Refused, Code: name, Dead: true})
			tel.Attempted(telemetry.Attempt{Kind: "k", Alias: "a.v1", Outcome: name, Lag: -1})
			tel.Ran(telemetry.Run{Kind: name, Status: name})
			tel.Billed(telemetry.Bill{Provider: name, Model: name, Outcome: name})
			tel.CellEnded(telemetry.Cell{ID: name, Status: name})
			tel.Answered(telemetry.Request{Route: "GET /" + name, Status: 1000 + i})
		}
		_, text := scraped(t, tel)
		if strings.Contains(text, marker) {
			t.Errorf("the scrape holds a text of somebody's:\n%s", text)
		}
		lines := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "soma_") {
				lines++
			}
		}
		return lines
	}
	few := fill(200)
	if many := fill(5000); many != few || few > 3000 {
		t.Errorf("%d series after a few hundred names, %d after thousands", few, many)
	}
}

// What every turn pays makes no garbage.
func TestCountingAllocatesNothing(t *testing.T) {
	tel := telemetry.New(telemetry.Options{Handlers: map[string][]string{"k": {"a.v1"}}})
	a := telemetry.Attempt{ID: ident.New(time.Now()), Kind: "k", Alias: "a.v1", Outcome: telemetry.Committed, Took: time.Millisecond, Lag: 1}
	if n := testing.AllocsPerRun(1000, func() { tel.Attempted(a); tel.Grouped(telemetry.Group{Records: 3, Took: 1}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAttempted is what a turn pays for being counted.
func BenchmarkAttempted(b *testing.B) {
	tel := telemetry.New(telemetry.Options{Handlers: map[string][]string{"k": {"a.v1"}}})
	a := telemetry.Attempt{ID: ident.New(time.Now()), Kind: "k", Alias: "a.v1", Outcome: telemetry.Committed, Took: time.Millisecond, Lag: -1}
	for b.Loop() {
		tel.Attempted(a)
	}
}
