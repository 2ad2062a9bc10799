package notebook

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"soma/internal/cli/exit"
	"soma/wire"
)

// sample has what notebooks of several programs have: fields that nobody knows, numbers and letters in spellings of their own, sources
// of both kinds, old outputs.
const sample = `{
    "cells": [
        {"cell_type": "markdown", "id": "a1", "metadata": {"zeta": 1, "alpha": [ ]}, "source": ["# Title\n", "%no magic here\n"], "attachments": {}},
        {"cell_type": "code", "execution_count": 7, "id": "a2", "metadata": {"collapsed": false, "tags": ["x", "y"]},
         "outputs": [{"name": "stdout", "output_type": "stream", "text": ["old\n"]}], "source": ["x = 40\n", "print('caf\u00e9')\n", "x + 2"]},
        {"cell_type": "raw", "id": "a3", "metadata": {}, "source": "!raw"},
        {"cell_type": "code", "id": "a4", "metadata": {}, "source": "", "execution_count": null, "outputs": []},
        {"source": "1/0", "metadata": {}, "id": "a5", "cell_type": "code", "future": {"n": 1.50e+2, "s": "\ud83d\ude00 \ud800 <&>"}}
    ],
    "metadata": {"kernelspec": {"display_name": "P", "language": "python", "name": "python3"}, "unknown": -0.0},
    "nbformat": 4, "nbformat_minor": 5
}
`

func parsed(t *testing.T, content string) *Notebook {
	t.Helper()
	n, err := Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func python(t *testing.T, program string, input string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", program)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// What is not touched stays as it was: python's json finds the same values in the same order, and the file is laid out as python lays
// notebooks out.
func TestRoundTrip(t *testing.T) {
	out := string(parsed(t, sample).Bytes())
	const compare = `
import json, sys
before, after = json.load(sys.stdin)
pairs = lambda text: json.loads(text, object_pairs_hook=lambda p: ("object", p), parse_float=str, parse_int=str)
assert pairs(before) == pairs(after), after
# the layout, where spellings are python's own
assert after.count("\n") == json.dumps(json.loads(after), indent=1).count("\n") + 1
assert [len(l) - len(l.lstrip()) for l in after.splitlines()] == [len(l) - len(l.lstrip()) for l in json.dumps(json.loads(after), indent=1).splitlines()]
`
	both, err := json.Marshal([]string{sample, out})
	if err != nil {
		t.Fatal(err)
	}
	python(t, compare, string(both))
	if again := string(parsed(t, out).Bytes()); again != out {
		t.Errorf("written again it is another:\n%s", again)
	}
	if !strings.HasSuffix(out, "}\n") || strings.HasSuffix(string(parsed(t, strings.TrimSpace(sample)).Bytes()), "\n") {
		t.Error("the end of the file is not what it was")
	}
	for _, spelling := range []string{`"caf\u00e9`, `1.50e+2`, `\ud800 <&>`, `-0.0`} {
		if !strings.Contains(sample, strings.TrimPrefix(spelling, `"`)) || !strings.Contains(out, strings.TrimPrefix(spelling, `"`)) {
			t.Errorf("%s is spelled in another way", spelling)
		}
	}
}

// required are the keys that the schema of format 4 asks for, and all that it allows in outputs.
const required = `
import base64, json, sys
nb = json.load(sys.stdin)
assert {"metadata", "nbformat", "nbformat_minor", "cells"} <= set(nb)
keys = {"stream": {"output_type", "name", "text"}, "display_data": {"output_type", "data", "metadata"},
        "execute_result": {"output_type", "data", "metadata", "execution_count"}, "error": {"output_type", "ename", "evalue", "traceback"}}
lines = lambda v: isinstance(v, str) or isinstance(v, list) and all(isinstance(s, str) for s in v)
for cell in nb["cells"]:
    assert {"id", "cell_type", "metadata", "source"} <= set(cell) and lines(cell["source"])
    if cell["cell_type"] != "code": continue
    assert cell["execution_count"] is None or type(cell["execution_count"]) is int
    for o in cell["outputs"]:
        assert set(o) == keys[o["output_type"]] and list(o) == sorted(o), o
        if o["output_type"] == "stream": assert o["name"] in ("stdout", "stderr") and lines(o["text"])
        if "data" in o: assert all(lines(v) for v in o["data"].values()) and o["metadata"] == {}
        if o["output_type"] == "error": assert all(type(v) is str for v in (o["ename"], o["evalue"], *o["traceback"]))
        if o["output_type"] == "execute_result": assert o["execution_count"] == cell["execution_count"]
json.dump([[c["execution_count"], c["outputs"]] for c in nb["cells"] if c["cell_type"] == "code"], sys.stdout)
`

func TestOutputs(t *testing.T) {
	n := parsed(t, sample)
	value := "42\n  'é'"
	n.Put(0, 1, Result{
		Cell: wire.Cell{Status: "ok", Value: &value, Shown: wire.Shown{ImageErrors: []string{"too large"}}}, Output: "café\nno end", Lost: 2048,
		Images: []Image{{"image/png", []byte("\x89PNG\x00")}},
	})
	n.Put(1, 2, Result{Cell: wire.Cell{Status: "ok"}})
	n.Put(2, 3, Result{Cell: wire.Cell{Status: "error", Error: &wire.CellFault{Type: "E", Message: "m", Traceback: "Traceback\n  x\nE: m\n"}}})
	const want = `[[1, [{"name": "stdout", "output_type": "stream", "text": ["caf\u00e9\n", "no end"]}, ` +
		`{"name": "stderr", "output_type": "stream", "text": ["2.0 kB of output were not kept\n"]}, ` +
		`{"data": {"image/png": "iVBORwA="}, "metadata": {}, "output_type": "display_data"}, ` +
		`{"name": "stderr", "output_type": "stream", "text": ["too large\n"]}, ` +
		`{"data": {"text/plain": ["42\n", "  'é'"]}, "execution_count": 1, "metadata": {}, "output_type": "execute_result"}]], ` +
		`[2, []], [3, [{"ename": "E", "evalue": "m", "output_type": "error", "traceback": ["Traceback", "  x", "E: m"]}]]]`
	if got := python(t, required, string(n.Bytes())); strings.ReplaceAll(got, `\u00e9`, "é") != strings.ReplaceAll(want, `\u00e9`, "é") {
		t.Errorf("%s", got)
	}
	n.Put(0, 4, Result{Cell: wire.Cell{Status: "timed_out", Note: "after 1 s"}})
	if got := python(t, required, string(n.Bytes())); !strings.HasPrefix(got, `[[4, [{"ename": "timed_out", "evalue": "after 1 s", "output_type": "error", "traceback": ["timed_out: after 1 s"]}]]`) {
		t.Errorf("%s", got)
	}
}

func TestRefused(t *testing.T) {
	cell := func(source string) string {
		return `{"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "markdown", "source": "!x"}, {"cell_type": "code", "source": "1"}, {"cell_type": "code", "source": ` + source + `}]}`
	}
	for content, want := range map[string]string{
		"":                             "it is no JSON: line 1: unexpected end",
		"{\n\"cells\": [\n}":           "it is no JSON: line 3: invalid character '}'",
		sample[:len(sample)-9]:         "it is no JSON",
		"\xef\xbb\xbf" + sample:        "it is no JSON",
		"\xff":                         "it is not UTF-8",
		"[]":                           "it is no notebook: it has no nbformat",
		`"x"`:                          "it is no notebook: it has no nbformat",
		`{"nbformat": 4}`:              "it is no notebook: it has no list of cells",
		`{"nbformat": 4, "cells": {}}`: "it is no notebook: it has no list of cells",
		`{"nbformat": 3, "worksheets": [{"cells": []}]}`:                                 "its format is 3, not 4; jupyter nbconvert --to notebook converts it",
		`{"nbformat": {}, "cells": []}`:                                                  "its format is not a number, not 4",
		`{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "R"}}}`:    "its language is R, not python",
		`{"nbformat": 4, "cells": [], "metadata": {"language_info": {"name": "julia"}}}`: "its language is julia, not python",
		cell(`"x = 1\n%matplotlib inline"`):                                              `code cell 2, line 2: "%matplotlib inline" is no python but a command of IPython`,
		cell(`["%%bash\n", "ls"]`):                                                       `code cell 2, line 1: "%%bash"`,
		cell(`["  !pip install x"]`):                                                     `code cell 2, line 1: "!pip install x"`,
		cell(`7`):                                                                        "code cell 2: its source is neither a text nor a list of texts",
		cell(`["a", 7]`):                                                                 "code cell 2: its source is neither",
		strings.Repeat("[", 20000) + strings.Repeat("]", 20000):                          "it is no JSON",
		`{"nbformat": 4, "cells": [` + strings.Repeat(" ", MaxFile) + `]}`:               "it is longer than 64 MiB",
	} {
		n, err := Parse([]byte(content))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, %v, want %q", content, n, err, want)
		}
	}
	if n, err := Parse([]byte(cell(`"'''\n%a\n!b\n'''"`))); err != nil || len(n.Codes()) != 2 {
		t.Errorf("a text that looks like a command: %v", err)
	}
}

// A file that was changed while its cells ran stays as it is; one that was not is replaced whole, with its mode, behind its link.
func TestWriting(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "real.ipynb"), filepath.Join(dir, "link.ipynb")
	if err := errors.Join(os.WriteFile(path, []byte(sample), 0o640), os.Symlink("real.ipynb", link)); err != nil {
		t.Fatal(err)
	}
	change := false
	o := Options{
		File: link, Write: true, KeepGoing: true, Say: func(string, ...any) {},
		Run: func(_ context.Context, code string) (Result, error) {
			if change {
				return Result{Cell: wire.Cell{Status: "ok"}}, os.WriteFile(path, []byte(sample+" "), 0o640)
			}
			return Result{Cell: wire.Cell{Status: "ok"}, Output: code}, nil
		},
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	python(t, required+"\nassert nb['cells'][4]['execution_count'] == 2", strings.ReplaceAll(string(content), `"id": "a4",`, `"id": "a4", "x": 0,`))
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info, err)
	}
	change = true
	var fault *exit.Fault
	if err := Run(t.Context(), o); !errors.As(err, &fault) || fault.Code != exit.Refused || !strings.Contains(err.Error(), "was changed while its cells ran") {
		t.Error(err)
	}
	if content, err := os.ReadFile(path); string(content) != sample+" " {
		t.Errorf("%q, %v", content, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Whatever JSON it is, reading and writing it changes no value.
func FuzzTree(f *testing.F) {
	f.Add(sample)
	f.Add(`{"a":[1,{"b\"c":null},"\\",[]],"":{}}`)
	f.Fuzz(func(t *testing.T, content string) {
		if !json.Valid([]byte(content)) {
			return
		}
		n := &Notebook{root: parse([]byte(strings.TrimSpace(content)))}
		out := n.Bytes()
		var before, after any
		if err := errors.Join(json.Unmarshal([]byte(content), &before), json.Unmarshal(out, &after)); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(before)
		two, _ := json.Marshal(after)
		if string(one) != string(two) {
			t.Errorf("%s became %s", content, out)
		}
	})
}
