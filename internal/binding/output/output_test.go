package output

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"soma/ident"
	"soma/internal/binding"
	"soma/internal/neuron"
)

// The functions on real channels, by their own tests.
func TestPython(t *testing.T) { // P-057, P-061, P-131
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// commands keeps the output of one branch's command "s1".
type commands struct {
	branch ident.ID
	text   string
	ended  bool
	err    error
}

func (c commands) Output(_ context.Context, branch ident.ID, command string, offset int64, limit int) (string, int64, bool, error) {
	switch {
	case c.err != nil:
		return "", 0, false, c.err
	case branch != c.branch || command != "s1":
		return "", 0, false, ErrUnknown
	}
	from := min(int(offset), len(c.text))
	to := min(from+limit, len(c.text))
	return c.text[from:to], int64(to), c.ended && to == len(c.text), nil
}

func call(t *testing.T, shells Shells, branch ident.ID, args string) (string, string) {
	t.Helper()
	r, err := binding.NewRouter([]binding.Binding{Binding(shells)})
	if err != nil {
		t.Fatal(err)
	}
	reply, no := r.Call(t.Context(), binding.Caller{Branch: branch, ID: "1"}, "output.read_shell", json.RawMessage(args))
	if no != nil {
		return "", no.Code + ": " + no.Message
	}
	return string(reply), ""
}

// A page carries the offset of the next one, and null at the end of what has ended.
func TestReadShell(t *testing.T) { // P-061
	own, other := ident.Named("branch", "own"), ident.Named("branch", "other")
	running := commands{branch: own, text: strings.Repeat("x", 5000)}
	ended := running
	ended.ended = true
	for _, c := range []struct {
		shells       Shells
		branch       ident.ID
		args         string
		reply, error string
	}{
		{running, own, `{"id":"s1","offset":0,"limit":4}`, `{"text":"xxxx","next_offset":4}`, ""},
		{running, own, `{"id":"s1"}`, `{"text":"` + strings.Repeat("x", 4000) + `","next_offset":4000}`, ""},
		{running, own, `{"id":"s1","offset":4998,"limit":65536}`, `{"text":"xx","next_offset":5000}`, ""},
		{ended, own, `{"id":"s1","offset":4998,"limit":65536}`, `{"text":"xx","next_offset":null}`, ""},
		{running, own, `{"id":"s1","limit":3}`, "", "invalid: "},
		{running, own, `{"id":"s1","limit":65537}`, "", "invalid: "},
		{running, own, `{"id":"s1","offset":-1}`, "", "invalid: "},
		{running, own, `{"offset":0}`, "", "invalid: "},
		{running, own, `{"id":"s1","page":1}`, "", "invalid: "},
		{running, own, `{"id":"s2"}`, "", `not_found: this branch has no shell command "s2"`},
		{running, other, `{"id":"s1"}`, "", `not_found: this branch has no shell command "s1"`},
		{nil, own, `{"id":"s1"}`, "", "not_found: "},
		{commands{err: errors.New("disk")}, own, `{"id":"s1"}`, "", "failed: cannot read the output of shell command s1: disk"},
	} {
		reply, no := call(t, c.shells, c.branch, c.args)
		if reply != c.reply || !strings.HasPrefix(no, c.error) || (c.error == "") != (no == "") {
			t.Errorf("%s: got %.80q, %q; want %.80q, %q", c.args, reply, no, c.reply, c.error)
		}
	}
}

// A call that a dead daemon had begun only reads: it runs again.
func TestReadShellRunsAgain(t *testing.T) { // P-061, P-020
	r, err := binding.NewRouter([]binding.Binding{Binding(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Policy("output.read_shell"); p != neuron.Idempotent {
		t.Errorf("the policy is %s", p)
	}
	if len(r.Modules()) != 1 || r.Modules()[0] != "soma_out" || r.Rules() == "" {
		t.Errorf("modules %v, rules %q", r.Modules(), r.Rules())
	}
}
