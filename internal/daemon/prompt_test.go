package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"soma/internal/agent/tool"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// prompt is what a model reads of the python tool, composed as for its requests.
func prompt(t *testing.T) (*daemon, string) {
	t.Helper()
	d := &daemon{}
	if err := d.bind(); err != nil {
		t.Fatal(err)
	}
	return d, tool.Python(d.router.Rules()).Description
}

var (
	sentenceEnd = regexp.MustCompile(`[.;:!?](\s|$)|\n- |\n\n`)
	word        = regexp.MustCompile(`[\pL\d_.]+`)
)

// maxPrompt bounds the text, in bytes: it is read at each inference.
const maxPrompt = 6 << 10

// P-027: every rule is stated once in the composed prompt, which is short: no sentence is repeated, nor are seven words in a row.
func TestPromptSaysEachRuleOnce(t *testing.T) {
	_, text := prompt(t)
	if len(text) > maxPrompt {
		t.Errorf("the prompt has %d bytes, more than %d", len(text), maxPrompt)
	}
	t.Logf("%d bytes", len(text))
	for _, again := range repeated(text) {
		t.Errorf("said twice: %s", again)
	}
	if got := repeated("Look before you leap. Others do not. - look before  you `leap`; x"); len(got) != 1 || got[0] != "look before you leap" {
		t.Errorf("a repeated sentence is found as %q", got)
	}
	if got := repeated("Who prints one two three four five six. And so prints one two three four five six too."); len(got) != 1 {
		t.Errorf("repeated words are found as %q", got)
	}
}

// repeated returns sentences of three words and more, and runs of seven words, that text has twice.
func repeated(text string) (again []string) {
	const run = 7
	seen := map[string]bool{}
	note := func(what string, words []string) bool {
		key := what + strings.Join(words, " ")
		if seen[key] {
			again = append(again, key)
			return true
		}
		seen[key] = true
		return false
	}
	for _, sentence := range sentenceEnd.Split(text, -1) {
		words := word.FindAllString(strings.ToLower(sentence), -1)
		if len(words) >= 3 && note("", words) {
			continue
		}
		for i := range words {
			if i+run <= len(words) && note("… ", words[i:i+run]) {
				break
			}
		}
	}
	return again
}

// P-027: each room of a binding is in the list of the daemon.
func TestEveryBindingIsContributed(t *testing.T) {
	d, _ := prompt(t)
	modules := map[string]bool{}
	for _, m := range d.router.Sources() {
		modules[m.Name] = true
	}
	found, err := filepath.Glob("../binding/*/soma_*.py")
	if err != nil || len(found) == 0 {
		t.Fatalf("modules of bindings: %v, %v", found, err)
	}
	for _, path := range found {
		if name := strings.TrimSuffix(filepath.Base(path), ".py"); !modules[name] {
			t.Errorf("%s is in no python kernel", path)
		}
	}
	for name := range modules {
		if _, err := os.Stat(filepath.Join("..", "pykernel", "python", name+".py")); err == nil {
			t.Errorf("module %s has the name of one of the core", name)
		}
	}
}

var call = regexp.MustCompile(`([A-Za-z_][\w.]*)\(((?:[^()]|\([^()]*\))*)\)`)

// look runs in a real python kernel: it looks up each named function with its keywords. A name without a dot may be a method of
// a job.
const look = `
import inspect, json
job = run("true")
def look(name, keywords):
    try:
        value = eval(name)
    except NameError:
        value = getattr(job, name, None)
    except AttributeError:
        value = None
    if not callable(value):
        return f"{name} is no function"
    known = inspect.signature(value).parameters
    missing = [k for k in keywords if k not in known]
    return f"{name} has no argument {missing}" if missing else None
[p for name, keywords in json.loads(CALLS) if (p := look(name, keywords))]
`

// P-027, P-124: a rule names no function, and no argument, that a python kernel does not have.
func TestPromptNamesWhatIsThere(t *testing.T) {
	d, text := prompt(t)
	h := pykerneltest.New(t, func(o *supervise.Options) {
		o.Host, o.Modules, o.Sources = routes{d.router}, d.router.Modules(), d.router.Sources()
	})
	ask := func(text string) string {
		t.Helper()
		named := [][]any{}
		for _, m := range call.FindAllStringSubmatch(text, -1) {
			keywords := []string{}
			for _, k := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(m[2], -1) {
				keywords = append(keywords, k[1])
			}
			named = append(named, []any{strings.TrimPrefix(m[1], "."), keywords})
		}
		if len(named) == 0 {
			t.Fatal("the prompt names no function")
		}
		calls, _ := json.Marshal(named)
		source, _ := json.Marshal(string(calls))
		_, cell := h.Open("o"+t.Name()+text[:1], strings.ReplaceAll(look, "CALLS", string(source)))
		m := h.Outcome(cell)
		if m.Status != pykernel.CellOK || m.Value == nil {
			t.Fatalf("outcome %+v: %+v", m, m.Error)
		}
		return *m.Value
	}
	if got := ask(text); got != "[]" {
		t.Errorf("the prompt names what is not there: %s", got)
	}
	if got := ask("x `files.lead(path)`, `files.read(path, begin=)`, `await cells.walk(id, (old, new))`, `poll()` and `run(command, env=)`"); got !=
		`['files.lead is no function', "files.read has no argument ['begin']", 'cells.walk is no function']` {
		t.Errorf("what is not there is found as %s", got)
	}
}
