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
		"error": {
			Result{Status: "error", CellID: "x", Output: Output{Head: "a\n", Size: 2},
				Error: &ResultError{Type: "ValueError", Message: "no", Traceback: "Traceback\nValueError: no\n"}},
			"{\"status\":\"error\",\"duration_ms\":0,\"error\":\"ValueError\",\"cell_id\":\"x\"}\na\nTraceback\nValueError: no",
		},
		"could not run": {
			Result{Status: "unknown", CellID: "x", Error: &ResultError{Message: "the kernel ended"}},
			`{"status":"unknown","duration_ms":0,"error":"the kernel ended","cell_id":"x"}`,
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
		if !strings.Contains(got, `"output_size":220000`) {
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
	value := Render(Result{Status: "ok", Value: strings.Repeat("v", 100_000)})
	if len(value) > MaxResult || !strings.Contains(value, `,"value_size":100000}`) {
		t.Errorf("long value: %d bytes, %s", len(value), value[len(value)-50:])
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
