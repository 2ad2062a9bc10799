package faults

import (
	"os"
	"strings"
	"testing"

	"soma/wire"
)

// What is wrong in the config is told with file, line and key; nothing is started.
func TestConfig(t *testing.T) { // I-03, I-15
	for name, c := range map[string]struct{ text, says string }{
		"broken":        {"recover: hold\nmodels: [\n", `:\d+: .+`},
		"not a mapping": {"- recover\n", `:1: keys with values are expected`},
		"unknown":       {"recover: hold\nmodles: []\n", `:2: modles: unknown key; known are .+`},
		"unknown below": {"models:\n  - name: a\n    kind: openai\n", `:3: models\[0\]\.kind: unknown key; known are .+`},
		"twice":         {"recover: hold\nrecover: hold\n", `:2: recover: the key stands twice`},
		"wrong value":   {"\nmax_concurrent: many\n", `:2: max_concurrent: a number from 1 to 10000 is expected`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.makeHome()
			if err := os.WriteFile(p.home.ConfigFile(), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, line := range [][]string{{"run", "x"}, {"serve"}, {"config"}} {
				p.run(line...).ends(78).says(`cannot use the config: .*/config\.yaml` + c.says)
			}
			if _, err := os.Stat(p.home.Database()); err == nil {
				t.Error("a daemon was started")
			}
		})
	}
}

// What is wrong in a script is told with file, line and key, and the process is not made.
func TestScripts(t *testing.T) { // I-15
	p := newPlace(t)
	for _, c := range []struct{ text, says string }{
		{"steps:\n  - say: \"no end\n", `\S+/s\.yaml:\d+: .+`},
		{"steps:\n  - say: hello\n    pause: 1s\n", `\S+/s\.yaml:3: unknown key "pause"`},
		{"steps:\n  - say: hello\n    calls:\n      - pyhton: 1\n", `\S+/s\.yaml:4: unknown key "pyhton"`},
		{"steps:\n  - say: '{{ .Nothing'\n", `s\.yaml:2: .+`},
		{"", `\S+/s\.yaml: it is empty`},
	} {
		p.write("s.yaml", c.text)
		p.run("run", "--model", "script:s.yaml", "x").ends(65).says(`cannot use model script:\S+/s\.yaml: cannot read the script: .*` + c.says)
	}
	p.run("run", "--model", "script:none.yaml", "x").ends(65).says(`cannot use model \S+: cannot find script "\S+/none\.yaml": .+`)
	p.run("ps", "-a", "-o", "json").ends(0).prints("{\"items\":[]}\n")
}

// A script whose model calls a tool that there is not: the model gets the list of tools, and the turn goes on.
func TestUnknownTool(t *testing.T) { // K-09
	p := newPlace(t)
	p.write("s.yaml", "steps:\n  - calls:\n      - {tool: nope, arguments: {a: 1}}\n  - say: '{{ (index .Results 0).Text }}'\n")
	r := p.run("run", "--model", "script:s.yaml", "x").ends(0)
	if n := strings.Count(r.out, `there is no tool "nope"; the tools are: python`); n != 2 {
		t.Errorf("%d times in %q", n, r.out)
	}
}

// A python that is missing or too old ends the command with 72 and the way out; run starts no daemon for that.
func TestPython(t *testing.T) { // I-15
	p := newPlace(t)
	old := p.write("old", "#!/bin/sh\necho \"[\\\"$0\\\", 3, 9, 1]\"\n")
	p.run("run", "--python", old, "--model", "script:tour", "x").ends(72).
		says(`cannot use python \S+/old: it is Python 3\.9\.1 \(from --python\) and 3\.11 or newer is needed; install a newer Python, or name one with --python PATH`)
	p.run("run", "--python", "none", "--model", "script:tour", "x").ends(72).
		says(`cannot use python none: it is not on PATH; install Python 3\.11 or newer, or name one with --python PATH`)
	p.run("run", "--python", "/bin/true", "--model", "script:tour", "x").ends(72).
		says(`cannot use python /bin/true: it does not answer like Python; name another with --python PATH`)
	if _, err := os.Stat(p.home.Database()); err == nil {
		t.Error("a daemon was started")
	}
	p.run("py", "--python", old, "-c", "1").ends(72).says(`cannot use python \S+/old: it is Python 3\.9\.1 .+`)
	p.env = append(p.env, "PATH="+p.dir, "VIRTUAL_ENV=")
	p.run("py", "-c", "1").ends(72).says(`cannot use python python3: it is not on PATH; install .+`)
	p.env = append(p.env, "VIRTUAL_ENV="+p.dir)
	p.run("py", "-c", "1").ends(72).says(`cannot use python \S+/bin/python: VIRTUAL_ENV names an environment without it; unset VIRTUAL_ENV, .+`)
}

// Without a model at hand two lines say what to do, and no daemon is started for that.
func TestNoModel(t *testing.T) { // I-04, I-15
	p := newPlace(t)
	const words = "soma: no model at hand: set OPENAI_API_KEY or OLLAMA_HOST, or list one under models: in "
	const more = "\nto try without one, run: soma run --model script:tour \"study this folder\"\n"
	r := p.run("run", "x").ends(78).prints("")
	if r.err != words+p.home.ConfigFile()+more {
		t.Errorf("it said %q", r.err)
	}
	p.run("run", "--model", "nope", "x").ends(78).says(`cannot find model "nope": known are openai:MODEL, .+`)
	if _, err := os.Stat(p.home.Dir()); err == nil && p.run("status").code != 69 {
		t.Error("a daemon was started")
	}
	p.serve()
	again := p.run("run", "x").ends(78).prints("")
	if again.err != r.err {
		t.Errorf("with a daemon it said %q", again.err)
	}
	// What counts is the daemon's environment, also where the client could run nothing.
	p.run("run", "--model", "openai:m", "x").ends(78)
}

// The standard library is the real one whatever lies in the workspace, and the person's own modules can be imported.
func TestModulesOfTheWorkspace(t *testing.T) { // P-201
	p := newPlace(t)
	for _, name := range []string{"random.py", "json.py", "socket.py"} {
		p.write(name, "raise SystemExit('this is the person\\'s "+name+"')\n")
	}
	p.write("mine.py", "value = 7\n")
	p.run("py", "-c", "import random, json, socket, mine, sys; print(random.randint(3, 3), json.dumps([1]), hasattr(socket, 'AF_UNIX'), mine.value, sys.path[-1])").
		ends(0).prints("3 [1] True 7 " + p.dir + "\n")
}

// A workspace that is gone is told, by the client that stands in it and by the cell that was to run in it.
func TestWorkspaceIsGone(t *testing.T) { // I-15
	p := newPlace(t)
	p.via = []string{"sh", "-c", `mkdir gone && cd gone && rmdir ../gone && exec "$@"`, "sh"}
	for _, line := range [][]string{{"run", "--model", "script:tour", "x"}, {"py", "-c", "1"}} {
		p.run(line...).ends(65).says(`cannot find the folder to work in: .*no such file or directory; go to a folder that exists`)
	}
	p.via = nil
	p.run("py", "-c", "import os; os.rmdir(os.getcwd()); os._exit(0)").ends(1)
	c := p.client()
	sessions, err := c.Sessions(t.Context(), wire.SessionFilter{})
	if err != nil || len(sessions.Items) != 1 {
		t.Fatalf("%d sessions (%v)", len(sessions.Items), err)
	}
	cell, err := c.RunCell(t.Context(), sessions.Items[0].ID, "second", wire.RunCell{Code: "1"})
	if err != nil {
		t.Fatal(err)
	}
	p.until("the cell's end", func() bool {
		if cell, err = c.Cell(t.Context(), cell.ID); err != nil {
			t.Fatal(err)
		}
		return cell.State == "ended"
	})
	if cell.Status != "not_started" || !strings.Contains(cell.Note, "no such file or directory") {
		t.Errorf("the cell in a folder that is gone: %+v", cell)
	}
}
