package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// P-036: one JSON line with the fields that say something, then the output as it was printed.
func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		in   Result
		want string
	}{
		"nothing": {Result{Status: "ok", DurationMS: 3}, `{"status":"ok","duration_ms":3}`},
		"value and output": {
			Result{Status: "ok", DurationMS: 3, Value: "<b>'é'", CellID: "x", Output: Output{Head: "if a < b:\n\treturn \"x\"\n", Size: 22}},
			"{\"status\":\"ok\",\"duration_ms\":3,\"value\":\"<b>'é'\"}\nif a < b:\n\treturn \"x\"",
		},
		"whole output that was spilled": {
			Result{Status: "ok", Output: Output{Head: "a\n", Size: 2, Spill: &Spill{Path: "/o", Size: 2, Whole: true}}},
			"{\"status\":\"ok\",\"duration_ms\":0}\na",
		},
		"error": {
			Result{Status: "error", CellID: "x", Output: Output{Head: "a\n", Size: 2},
				Error: &ResultError{Type: "ValueError", Message: "no", Traceback: "Traceback\nValueError: no\n"}},
			"{\"status\":\"error\",\"duration_ms\":0,\"error\":\"ValueError\",\"cell_id\":\"x\"}\na\nTraceback\nValueError: no",
		},
		"could not run": {
			Result{Status: "not_started", CellID: "x", Error: &ResultError{Message: "the kernel ended"}},
			`{"cell_id":"x","status":"not_started","duration_ms":0,"error":{"message":"the kernel ended"}}`,
		},
		"ended without a traceback": {
			Result{Status: "unknown", CellID: "x", DurationMS: 9, Error: &ResultError{Message: "the kernel ended"}, Output: Output{Head: "a\n", Size: 2}},
			"{\"status\":\"unknown\",\"duration_ms\":9,\"error\":\"the kernel ended\",\"cell_id\":\"x\"}\na",
		},
		"repair": {
			Result{Status: "error", CellID: "x", Repair: "cells.run('x', …)", Error: &ResultError{Type: "ValueError", Message: "no", Traceback: "ValueError: no"}},
			"{\"status\":\"error\",\"duration_ms\":0,\"error\":\"ValueError\",\"repair\":\"cells.run('x', …)\"}\nValueError: no",
		},
		"images": {
			Result{Status: "ok", ImageErrors: []string{"a.png is kept in /out/a.png"}, Calls: []string{"show_image"}},
			`{"status":"ok","duration_ms":0,"image_errors":["a.png is kept in /out/a.png"]}`,
		},
		"backgrounded": {
			Result{Status: "backgrounded", CellID: "x", DurationMS: 60_000, Output: Output{Head: "a\n", Size: 2}},
			`{"status":"backgrounded","duration_ms":60000,"cell_id":"x","advice":"` + advice + "\"}\na",
		},
		"note first": {Result{Note: "names are gone", Status: "ok"}, `{"note":"names are gone","status":"ok","duration_ms":0}`},
	} {
		if got := Render(c.in); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// K-15: a large output is cut to head and tail with its true size, whether it came whole or already cut.
func TestRenderCuts(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "line %05d\n", i)
	}
	all := b.String()
	for name, out := range map[string]Output{
		"whole":     {Head: all, Size: int64(len(all))},
		"with tail": {Head: all[:100_000], Tail: all[100_000:], Size: int64(len(all))},
		"with gap":  {Head: all[:100_000], Tail: all[len(all)-60_000:], Size: int64(len(all))},
	} {
		got := Render(Result{Status: "ok", Output: out})
		if len(got) > MaxResult || len(got) < MaxResult-300 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if !strings.Contains(got, "\nline 00000\n") || !strings.HasSuffix(got, "\nline 19999") {
			t.Errorf("%s: head or tail is missing", name)
		}
		if !strings.Contains(got, `"truncated":"the output has 220000 bytes"`) {
			t.Errorf("%s: %.200s", name, got)
		}
		var from, to, size int
		at := strings.Index(got, "[bytes ")
		if _, err := fmt.Sscanf(got[at:], "[bytes %d to %d of %d are not shown]", &from, &to, &size); err != nil || size != len(all) {
			t.Fatalf("%s: %v: %.80s", name, err, got[at:])
		}
		if !strings.Contains(got, all[from-50:from]+"\n[bytes ") || !strings.Contains(got, "not shown]\n"+all[to:to+50]) {
			t.Errorf("%s: the bytes %d to %d are not what is missing", name, from, to)
		}
	}
	value := Render(Result{Status: "ok", CellID: "c", Value: strings.Repeat("v", 100_000)})
	if len(value) > MaxResult || !strings.Contains(value, `,"value_size":100000,"cell_id":"c"}`) {
		t.Errorf("long value: %d bytes, %s", len(value), value[len(value)-50:])
	}
	for want, spill := range map[string]*Spill{
		`{"status":"ok","duration_ms":0,"cell_id":"c","truncated":"the output has 1000 bytes, all in /out/\"x\""}`:       {Path: `/out/"x"`, Size: 1000, Whole: true},
		`{"status":"ok","duration_ms":0,"cell_id":"c","truncated":"the output has 1000 bytes, the first 800 in /out/x"}`: {Path: "/out/x", Size: 800},
		`{"status":"ok","duration_ms":0,"cell_id":"c","truncated":"the output has 1000 bytes"}`:                          nil,
	} {
		got, _, _ := strings.Cut(Render(Result{Status: "ok", CellID: "c", Output: Output{Head: "a", Tail: "z", Size: 1000, Spill: spill}}), "\n")
		if got != want {
			t.Errorf("spill %+v: %s", spill, got)
		}
	}
	short := Render(Result{Status: "ok", Output: Output{Head: "a", Tail: "z", Size: 1000}})
	if !strings.HasSuffix(short, "\na\n[bytes 1 to 999 of 1000 are not shown]\nz") {
		t.Errorf("short with a gap: %q", short)
	}
}

// K-15: no result, however odd, passes the cap or breaks its form.
func TestRenderAlwaysFits(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "\n", "\x00", "\"", "é", "😀", "\xff", "\u2028", "line of text\n"})
	text := func(t *rapid.T, name string, max int) string {
		return strings.Repeat(piece.Draw(t, name), rapid.IntRange(0, max).Draw(t, name+" times"))
	}
	rapid.Check(t, func(t *rapid.T) {
		r := Result{
			Note: text(t, "note", 5000), Status: text(t, "status", 500), CellID: text(t, "cell", 500), Value: text(t, "value", 20000),
			Output: Output{Head: text(t, "head", 40000), Tail: text(t, "tail", 40000)},
		}
		r.Output.Size = int64(len(r.Output.Head)+len(r.Output.Tail)) + int64(rapid.IntRange(0, 1).Draw(t, "gap"))*1_000_000
		if rapid.Bool().Draw(t, "spilled") {
			r.Output.Spill = &Spill{Path: text(t, "path", 3000), Size: 10}
		}
		for range rapid.IntRange(0, 20).Draw(t, "image errors") {
			r.ImageErrors = append(r.ImageErrors, text(t, "image error", 1000))
		}
		r.Repair = text(t, "repair", 3000)
		if rapid.Bool().Draw(t, "failed") {
			r.Error = &ResultError{Type: text(t, "type", 500), Message: text(t, "message", 5000), Traceback: text(t, "trace", 20000)}
		}
		got := Render(r)
		if len(got) > MaxResult || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		line, _, _ := strings.Cut(got, "\n")
		if !json.Valid([]byte(line)) {
			t.Fatalf("first line %q", line)
		}
	})
}
