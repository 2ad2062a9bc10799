package scripts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	ctrlC  = "\x03"
	ctrlD  = "\x04"
	ctrlR  = "\x12"
	ctrlZ  = "\x1a"
	escape = "\x1b"
)

// The prompt of soma py at a real terminal, with a real daemon and kernel: cells, several lines, completion, explanations, shell
// commands, interrupts; detaching and coming back, to a cell that still runs, to names and history.
func TestPrompt(t *testing.T) {
	t.Parallel()
	env, home, folder := place(t)
	p := sit(t, env, folder, "soma", "py")
	p.until("in " + folder + ": the first cell begins in a fresh kernel\n")
	p.until(">>> ")
	p.types("x = 41\r")
	p.until(">>> ")
	p.types("def double(n):\r")
	p.until("...     ")
	p.types("'it doubles'\rreturn n * 2\r\r")
	p.until("\n>>> ")
	p.types("double(x)\r")
	p.until("\n82\n>>> ")

	// Tab completes what the kernel knows.
	p.types("dou\t")
	p.until(">>> double")
	p.types("(4)\r")
	p.until("\n8\n>>> ")
	p.types("?double\r")
	p.until("\ndouble(n)\nit doubles\n>>> ")
	p.types("x?\r")
	p.until("\nx: int = 41\n>>> ")
	p.types("!echo $((40 + 3)); pwd\r")
	p.until("\n43\n" + folder + "\n>>> ")
	p.types("%time x\r")
	p.until("is no python but a command of IPython")
	p.until(">>> ")
	p.types("1/0\r")
	p.until("ZeroDivisionError: division by zero\n>>> ")

	// Ctrl-C drops the line, and ends a cell but not its kernel.
	p.types("nothing(" + ctrlC)
	p.until("nothing(^C\n>>> ")
	p.types("print('spin' + 'ning')" + escape + "\rwhile True: pass\r\r")
	p.until("\nspinning\n")
	p.types(ctrlC)
	p.until("\nKeyboardInterrupt\n>>> ")
	p.types("x\r")
	p.until("\n41\n>>> ")
	p.types("!echo be''gun; sleep 600\r")
	p.until("\nbegun\n")
	p.types(ctrlC)
	p.until(">>> ")

	// What is typed while a cell runs is for the next prompt.
	p.types("import os, time" + escape + "\rprint('wait' + 'ing')" + escape + "\rwhile not os.path.exists('typed'): time.sleep(0.01)\r\r")
	p.until("\nwaiting\n")
	p.types("'ahead of ' + 'time'\r")
	write(t, filepath.Join(folder, "typed"))
	p.until("\n'ahead of time'\n>>> ")

	// Ctrl-D detaches, and the cell runs on.
	p.types("print('be' + 'gun')" + escape + "\rwhile not os.path.exists('go'): time.sleep(0.01)" + escape + "\rprint('fin' + 'ished')\r\r")
	p.until("\nbegun\n")
	p.types(ctrlD)
	p.until("soma: detached; names stay; soma py comes back to them\n")
	if code := p.ends(); code != 0 || p.mode() != p.before {
		t.Errorf("exit code %d, the terminal is %+v and was %+v", code, p.mode(), p.before)
	}

	p = sit(t, env, folder, "soma", "py")
	p.until(": 4 names, no jobs\n") // double, os, time, x
	p.until("soma: this still runs here; Ctrl-C ends it\n")
	p.until("\nbegun\n")
	write(t, filepath.Join(folder, "go"))
	p.until("finished\n>>> ")
	p.types("x\r")
	p.until("\n41\n>>> ")

	// The history is that of the run before.
	p.types(escape + "[A" + escape + "[A")
	p.until(">>> print('be' + 'gun')")
	p.types(ctrlC)
	p.until("^C\n>>> ")
	p.types(ctrlR + "ouble(4")
	p.until(">>> double(4)\nsearch: ouble(4")
	p.types("\r")
	p.until("\n8\n>>> ")
	p.types(ctrlD)
	if code := p.ends(); code != 0 || strings.Count(p.unread, "detached") != 1 {
		t.Errorf("exit code %d, %q", code, p.unread)
	}
	info, err := os.Stat(filepath.Join(home, "py_history"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A daemon that dies at the prompt or while a cell runs is told of by one line each time: nothing is missing and nothing comes twice.
func TestPromptWithoutDaemon(t *testing.T) {
	t.Parallel()
	env, _, folder := place(t)
	p := sit(t, env, folder, "soma", "py")
	p.until(">>> ")
	p.types("x = 41\r")
	p.until(">>> ")
	killDaemon(t, env)
	p.types("x + 1\r")
	if before := p.until("\n42\n>>> "); strings.Count(before, "soma: ") != 1 || !strings.Contains(before, "soma: the daemon is gone; it is started again in 2s") {
		t.Errorf("%q", before)
	}
	p.types("import time" + escape + "\rfor i in range(40): print('ti' + 'ck', i); time.sleep(0.1)\r\r")
	p.until("tick 3\n")
	killDaemon(t, env)
	before := p.until(">>> ")
	var want strings.Builder
	for i := 4; i < 40; i++ {
		fmt.Fprintf(&want, "tick %d\n", i)
	}
	const gone = "soma: the daemon is gone; it is started again in 2s\n"
	if strings.Replace(before, gone, "", 1) != want.String() || !strings.Contains(before, gone) {
		t.Errorf("%q", before)
	}
	p.types("x\r")
	p.until("\n41\n>>> ")
	p.types("quit\r")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A paste is one cell. Wide characters, a narrow terminal and one that changes its size show what is there.
func TestPromptPasteAndSize(t *testing.T) {
	t.Parallel()
	env, home, folder := place(t, "NO_COLOR=1")
	p := sit(t, env, folder, "soma", "py")
	p.until(">>> ")
	const pasted = "a = 1\nif a:\n    b = '漢字 é 👩‍🚀'\n\nprint(a, b)"
	p.types(escape + "[200~" + strings.ReplaceAll(pasted, "\n", "\r") + escape + "[201~")
	p.until("... print(a, b)")
	p.types("\r")
	p.until("\n1 漢字 é 👩‍🚀\n>>> ")
	p.types("'one two three four'")
	p.until("'one two three four'")
	p.resize(14, 10)
	p.until(">>> 'one two \nthree four'")
	p.resize(80, 24)
	p.until(">>> 'one two three four'")
	p.types("\x01漢\x7f\r")
	p.until("\n'one two three four'\n>>> ")
	p.types(ctrlD)
	p.ends()
	content, err := os.ReadFile(filepath.Join(home, "py_history"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	var text string
	if err := json.Unmarshal([]byte(first), &text); err != nil || text != pasted {
		t.Errorf("%q, %v", text, err)
	}
	for _, style := range []string{"\x1b[1m", "\x1b[2m", "\x1b[m"} {
		if strings.Contains(p.raw.String(), style) {
			t.Errorf("%q in spite of NO_COLOR", style)
		}
	}
}

// A terminal that can only write on gets nothing else; keys mean the same.
func TestPromptPlain(t *testing.T) {
	t.Parallel()
	env, _, folder := place(t, "TERM=dumb")
	p := sit(t, env, folder, "soma", "py")
	p.until(">>> ")
	p.types("x = 4x\x7f1\r")
	p.until(">>> ")
	p.types("if x:\r")
	p.until("...     ")
	p.types("print('spin' + 'ning')\rwhile True: pass\r\r\r")
	p.until("\nspinning\n")
	p.types(ctrlC)
	p.until("\nKeyboardInterrupt\n>>> ")
	p.types("x\r")
	p.until("\n41\n>>> ")
	p.types(ctrlD)
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(p.raw.String(), escape) {
		t.Errorf("it moved the cursor: %q", p.raw.String())
	}
}

// When the terminal goes away the program ends, and the cell runs on.
func TestPromptHangUp(t *testing.T) {
	t.Parallel()
	env, _, folder := place(t)
	p := sit(t, env, folder, "soma", "py")
	p.until(">>> ")
	p.types("import os, time" + escape + "\rprint('be' + 'gun')" + escape + "\rwhile not os.path.exists('go'): time.sleep(0.01)" + escape + "\ry = 7\r\r")
	p.until("\nbegun\n")
	if err := p.master.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.program.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	write(t, filepath.Join(folder, "go"))
	p = sit(t, env, folder, "soma", "py", "-c", "y")
	p.until("7\n")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Ctrl-Z suspends the prompt, and what was typed is still there when the shell lets it go on.
func TestPromptSuspended(t *testing.T) {
	t.Parallel()
	env, _, folder := place(t, "PS1=$ ")
	p := sit(t, env, folder, "bash", "--norc", "--noprofile", "-i")
	p.until("$ ")
	p.types("soma py\r")
	p.until(">>> ")
	p.types("6 *" + ctrlZ)
	p.until("Stopped")
	p.until("$ ")
	p.types("echo in-$((1 + 1))\r")
	p.until("\nin-2\n")
	p.types("fg\r")
	p.until(">>> 6 *")
	p.types(" 7\r")
	p.until("\n42\n>>> ")
	p.types("import os" + escape + "\rprint('be' + 'gun')" + escape + "\rwhile not os.path.exists('go'): pass\r\r")
	p.until("\nbegun\n")
	p.types(ctrlZ)
	p.until("Stopped")
	p.types("touch go; fg\r")
	p.until(">>> ")
	p.types(ctrlD)
	p.until("detached")
	p.until("$ ") // what is typed before it may still be the prompt's
	p.types("exit\r")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
