package price

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	"soma/message"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const sample = `prices:
  - {provider: p, prefix: a, valid_from: 2026-01-01, input: 1, output: 2}
  - {provider: p, prefix: a-b, valid_from: 2026-01-01, input: 3, output: 2}
  - {provider: p, model: a-b-c, valid_from: 2026-01-01, input: 5, output: 2}
  - {provider: p, model: a-b-c, valid_from: 2026-05-01, input: 7, cache_read: 0.075, cache_write: 8.75, output: 0.000000001}
  - {provider: p, model: a-b-c, valid_from: 2026-07-01, input: 11}
  - {provider: p, model: t, valid_from: 2026-01-01, input: 1, output: 0}
  - {provider: p, model: t, valid_from: 2026-01-01, above: 200000, input: 2, output: 0}
`

// K-24: the right row, exact integers, and "unknown" where no row or no class fits.
func TestCost(t *testing.T) {
	table := parse(t, sample)
	million := message.Usage{Input: 1_000_000}
	for _, c := range []struct {
		provider, model string
		at              time.Time
		u               message.Usage
		want            Cost
	}{
		{"p", "a", now, million, Cost{Nano: 1_000_000_000}},
		{"p", "a-x", now, million, Cost{Nano: 1_000_000_000}},
		{"p", "a-b-x", now, million, Cost{Nano: 3_000_000_000}},
		{"p", "a-b-c", now, million, Cost{Nano: 7_000_000_000}},
		{"p", "a-b-c", now.AddDate(0, -3, 0), million, Cost{Nano: 5_000_000_000}},
		{"p", "a-b-c", now.AddDate(0, 2, 0), million, Cost{Nano: 11_000_000_000}},
		{"p", "a-b-c", now.AddDate(-1, 0, 0), million, Cost{Unknown: true}},
		{"p", "a-b-c", now, message.Usage{Input: 1, CacheRead: 3, CacheWrite: 1, Output: 9, Reasoning: 9}, Cost{Nano: 7000 + 225 + 8750}},
		{"p", "a-b-c", now, message.Usage{Output: 499_999}, Cost{}},
		{"p", "a-b-c", now, message.Usage{Output: 500_000}, Cost{Nano: 1}},
		{"p", "a", now, message.Usage{Input: 1, CacheRead: 1}, Cost{Unknown: true}},
		{"p", "z", now, million, Cost{Unknown: true}},
		{"q", "a", now, message.Usage{}, Cost{Unknown: true}},
		{"p", "a", now, message.Usage{Input: 2, Estimated: true}, Cost{Nano: 2000, Estimated: true}},
		{"p", "t", now, message.Usage{Input: 200_000}, Cost{Nano: 200_000_000}},
		{"p", "t", now, message.Usage{Input: 200_001}, Cost{Nano: 400_002_000}},
	} {
		if got := table.Of(c.provider, c.model, c.at, c.u); got != c.want {
			t.Errorf("%s/%s at %v, %+v: %+v, want %+v", c.provider, c.model, c.at, c.u, got, c.want)
		}
	}
	user := parse(t, "prices: [{provider: p, prefix: \"\", valid_from: 2026-01-01, input: 9}]")
	if got := table.Over(user).Of("p", "a-b-c", now, million); got.Nano != 9_000_000_000 {
		t.Errorf("the person's own row: %+v", got)
	}
}

// K-24: the embedded file is good, the script costs nothing, and a model nobody lists is unknown.
func TestBuiltin(t *testing.T) {
	b := Builtin()
	for model, nano := range map[string]int64{"gpt-4o": 2500, "gpt-4o-mini-2024-07-18": 150, "gpt-5-nano": 50} {
		if got := b.Of("openai", model, now, message.Usage{Input: 1}); got != (Cost{Nano: nano}) {
			t.Errorf("%s: %+v", model, got)
		}
	}
	if got := b.Of("script", "tour", now, message.Usage{Input: 1000, Output: 5}); got != (Cost{}) {
		t.Errorf("script: %+v", got)
	}
	for _, model := range []string{"gpt-4o-realtime-preview", "gpt-4ox", "llama3"} {
		if got := b.Of("openai", model, now, message.Usage{Input: 1}); !got.Unknown {
			t.Errorf("%s: %+v", model, got)
		}
	}
}

// K-23, K-24: costs add up exactly, in any grouping, and unknown stays unknown.
func TestAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Custom(func(t *rapid.T) Cost {
			return Cost{Nano: rapid.Int64Range(0, 1e15).Draw(t, "nano"), Unknown: rapid.Bool().Draw(t, "unknown"), Estimated: rapid.Bool().Draw(t, "estimated")}
		})
		a, b, c := cost.Draw(t, "a"), cost.Draw(t, "b"), cost.Draw(t, "c")
		if a.Add(b).Add(c) != a.Add(b.Add(c)) || a.Add(b) != b.Add(a) || a.Add(b).Unknown != (a.Unknown || b.Unknown) {
			t.Fatalf("%+v %+v %+v", a, b, c)
		}
	})
}

func TestString(t *testing.T) {
	for want, c := range map[string]Cost{
		"$0.0000": {}, "$0.000000075": {Nano: 75}, "$0.0123": {Nano: 12_300_000}, "$12.5000": {Nano: 12_500_000_000},
		"~$0.0123": {Nano: 12_300_000, Estimated: true}, "unknown": {Unknown: true, Estimated: true}, "over $0.0123": {Nano: 12_300_000, Unknown: true},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	head := "prices:\n  - {provider: p, model: m, valid_from: 2026-01-01}\n  - "
	for text, want := range map[string]string{
		"prices: [":                      "x.yaml: line 1",
		"price: []":                      "x.yaml:1: want one key, prices",
		head + "{provider: p, model: m}": "x.yaml:3: valid_from is missing",
		head + "{model: m, valid_from: 2026-01-01}":                                  "x.yaml:3: provider is missing",
		head + "{provider: p, valid_from: 2026-01-01}":                               "x.yaml:3: want either model or prefix",
		head + "{provider: p, model: m, prefix: m, valid_from: 2026-01-01}":          "x.yaml:3: want either model or prefix",
		head + "{provider: p, model: m, valid_from: soon}":                           "x.yaml:3: valid_from:",
		head + "{provider: p, model: m, valid_from: 2026-01-01, input: 1e3}":         "x.yaml:3: input: \"1e3\" is no amount",
		head + "{provider: p, model: m, valid_from: 2026-01-01, output: -1}":         "x.yaml:3: output: \"-1\" is no amount",
		head + "{provider: p, model: m, valid_from: 2026-01-01, input: 1, input: 1}": "x.yaml:3: input stands twice",
		head + "{provider: p, model: m, valid_from: 2026-01-01, inputs: 1}":          "x.yaml:3: inputs: unknown field",
		head + "{provider: p, model: m, valid_from: 2026-01-01, above: x}":           "x.yaml:3: above:",
		head + "text": "x.yaml:3: want a row",
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
