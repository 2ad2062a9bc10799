package telemetry_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"soma/internal/telemetry"
)

// The table in the docs names each metric with its labels, and no other.
func TestDocsListEveryMetric(t *testing.T) {
	tel := telemetry.New(telemetry.Options{
		Sample: func() telemetry.Sample { return telemetry.Sample{} }, Traces: &telemetry.Traces{URL: "http://collector"},
		Handlers: map[string][]string{"k": {"a.v1"}},
	})
	cost := int64(1)
	tel.Attempted(telemetry.Attempt{Kind: "k", Alias: "a.v1", Outcome: telemetry.Refused, Code: "c", Dead: true})
	tel.Ran(telemetry.Run{Status: "done"})
	tel.Billed(telemetry.Bill{Provider: "p", Model: "m", Cost: &cost})
	tel.Billed(telemetry.Bill{Provider: "p", Model: "m"})
	tel.CellEnded(telemetry.Cell{Status: "ok", Ended: time.Now()})
	tel.Answered(telemetry.Request{Status: 200})
	tel.Beat(telemetry.Beat{OK: true})
	_, text := scraped(t, tel)
	is := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(soma_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? `).FindAllStringSubmatch(text, -1) {
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		is[m[1]] = strings.Join(labels, ", ")
	}
	docs, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(soma_\\w+)` \\| ([^|]*)\\|").FindAllStringSubmatch(string(docs), -1) {
		labels := strings.Split(strings.TrimSpace(m[2]), ", ")
		slices.Sort(labels)
		said[m[1]] = strings.Join(labels, ", ")
	}
	for name, labels := range is {
		if got, ok := said[name]; !ok || got != labels {
			t.Errorf("%s has the labels %q, the docs say %q (%v)", name, labels, got, ok)
		}
		delete(said, name)
	}
	for name := range said {
		t.Errorf("the docs list %s, which is not there", name)
	}
	if len(is) < 30 {
		t.Errorf("%d metrics", len(is))
	}
}
