package faults

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// elsewhere makes the place's programs run in a mount namespace of their own, in which a shell has first done something
// to the disk. It returns what runs a shell text there.
func (p *place) elsewhere(prepare string) func(text string) {
	p.t.Helper()
	keeper := exec.CommandContext(p.t.Context(), "unshare", "-rm", "sh", "-ec", prepare+"\necho ready\nexec cat")
	in, err := keeper.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := keeper.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	var errs bytes.Buffer
	keeper.Stderr = &errs
	if err := keeper.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = in.Close()
		_ = keeper.Wait()
	})
	word := make([]byte, len("ready\n"))
	if _, err := out.Read(word); err != nil || string(word) != "ready\n" {
		p.t.Fatalf("cannot prepare the disk: %q %v: %s", word, err, errs.String())
	}
	p.via = []string{"nsenter", "--target", fmt.Sprint(keeper.Process.Pid), "--user", "--mount", "--preserve-credentials", "--",
		"sh", "-c", `cd "$0" && exec "$@"`, p.dir}
	return func(text string) {
		p.t.Helper()
		args := append(append([]string{}, p.via[1:]...), "sh", "-ec", text)
		if out, err := exec.CommandContext(p.t.Context(), p.via[0], args...).CombinedOutput(); err != nil {
			p.t.Fatalf("%s: %v: %s", text, err, out)
		}
	}
}

// small mounts a disk of 4 MiB at the home.
func (p *place) small() string {
	return fmt.Sprintf("mkdir -m 700 %[1]s\nmount -t tmpfs -o size=4m,mode=0700 none %[1]s", p.home.Dir())
}

// fill leaves no byte on the home's disk.
func (p *place) fill() string {
	return fmt.Sprintf("dd if=/dev/zero bs=64k 2>/dev/null >> %s || true", p.ballast())
}

func (p *place) ballast() string { return filepath.Join(p.home.Dir(), "ballast") }

const noSpace = `cannot use home \S+: .*no space left on device; make room: what was committed is kept`

// A daemon does not start on a full disk: one line, exit code 73; with room again it does, and everything is there.
func TestStartOnAFullDisk(t *testing.T) { // I-15
	p := newPlace(t)
	do := p.elsewhere(p.small())
	do(p.fill())
	p.run("serve").ends(73).says(noSpace)
	p.run("py", "-c", "1").ends(73).says(noSpace)
	do("rm " + p.ballast())
	p.run("py", "-c", "x = 41").ends(0)
	p.run("stop").ends(0)
	do(p.fill())
	p.run("serve").ends(73).says(noSpace)
	p.run("ps").ends(73).says(noSpace)
	do("rm " + p.ballast())
	p.run("py", "-c", "x + 1").ends(0).prints("42\n")
	p.run("stop", "--kernels").ends(0)
}

// A disk that fills up in the middle of work ends the daemon with one line; a client that waits says so too. With room again
// the work goes on where the last commit was, and each cell has run once.
func TestDiskFillsUp(t *testing.T) { // I-15, N-33
	p := newPlace(t)
	do := p.elsewhere(p.small())
	p.write("cell.py", waiting+"open('ran', 'a').write('once ')\n")
	p.write("s.yaml", `steps:
  - say: First.
    calls:
      - python: kept = 6 * 7
  - say: Second.
    calls:
      - python: exec(open('cell.py').read())
  - say: Third.
    calls:
      - python: kept
  - say: 'It is {{ (index .Results 2).Value }}.'
`)
	d := p.serve()
	work := p.begin("run", "--model", "script:s.yaml", "x")
	p.until("the second cell", func() bool { return p.exists("began") })
	before := p.run("logs", "1").ends(0).out
	do(p.fill())
	client := work.cmd.Process
	if err := client.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.write("go", "")
	text := d.ends(73)
	do(p.fill()) // the end of the daemon has made some room
	if err := client.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	last := text[strings.LastIndex(strings.TrimRight(text, "\n"), "\n")+1:]
	if !regexp.MustCompile(`^soma: cannot use home \S+: .*database or disk is full.*; make room: what was committed is kept\n$`).MatchString(last) {
		t.Errorf("the daemon's last line is %q", last)
	}
	text = work.ends(73)
	if !strings.Contains(text, "soma: the daemon is gone") || !regexp.MustCompile(`\nsoma: `+noSpace+`\n$`).MatchString(text) {
		t.Errorf("the client said\n%s", text)
	}
	do("rm " + p.ballast())
	p.run("wait", "1").ends(0)
	after := p.run("logs", "1").ends(0).out
	if !strings.HasPrefix(after, strings.TrimRight(before, "\n")) || strings.Count(after, "It is 42.") != 1 {
		t.Errorf("before the disk was full the transcript was\n%s\nand at its end\n%s", before, after)
	}
	if ran := p.read(filepath.Join(p.dir, "ran")); ran != "once " {
		t.Errorf("the cell ran %q", ran)
	}
	p.run("stop", "--kernels").ends(0)
}

// A disk that fills up while a cell and a job run in the background loses neither's end: with room again the process is woken by
// each, once, and each has run once.
func TestDiskFillsUpInTheBackground(t *testing.T) { // I-15, P-044
	p := newPlace(t)
	do := p.elsewhere(p.small())
	p.env = append(p.env, "SOMA_CELL_BACKGROUND_SECONDS=1")
	p.write("s.yaml", `steps:
  - calls:
      - python: job = run("echo job >> jobs; while [ ! -e go ]; do sleep 0.05; done; exit 3")
      - python: |
          import asyncio, os
          open('ran', 'a').write('cell ')
          while not os.path.exists('go'): await asyncio.sleep(0.01)
          'y' * 60000
  - say: I wait.
  - say: I know.
`)
	d := p.serve()
	work := p.begin("run", "--model", "script:s.yaml", "x")
	work.says(`I wait\.`)
	do(p.fill())
	client := work.cmd.Process
	if err := client.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.write("go", "")
	d.ends(73)
	do(p.fill())
	if err := client.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	work.ends(73)
	do("rm " + p.ballast())
	p.run("wait", "1").ends(0)
	out := p.run("logs", "1").ends(0).out
	for _, line := range []string{"job finished (exit_code=3, ran ", "cell finished (status=ok, ran ", "I wait.", "I know."} {
		if n := strings.Count(out, line); n != 1 {
			t.Errorf("%q stands there %d times:\n%s", line, n, out)
		}
	}
	if ran := p.read(filepath.Join(p.dir, "ran")) + p.read(filepath.Join(p.dir, "jobs")); ran != "cell job\n" {
		t.Errorf("what ran is %q", ran)
	}
	p.run("stop", "--kernels").ends(0)
}

// A home that can only be read is refused in one line with exit code 73, an old one as well as one that is to be made; made
// writable it works, with all that was in it.
func TestReadOnlyHome(t *testing.T) { // I-15
	p := newPlace(t)
	do := p.elsewhere(fmt.Sprintf("mkdir -m 700 %[1]s %[1]s.disk\nmount -t tmpfs none %[1]s.disk\nmkdir -m 700 %[1]s.disk/home\n"+
		"mount --bind %[1]s.disk/home %[1]s", p.home.Dir()))
	p.write("s.yaml", "steps:\n  - say: Kept.\n")
	p.run("run", "--model", "script:s.yaml", "x").ends(0)
	kept := p.run("logs", "1").ends(0).out
	p.run("stop", "--kernels").ends(0)
	do("mount -o remount,bind,ro " + p.home.Dir())
	const readOnly = `cannot use home \S+: .*read-only file system; make it writable, or set SOMA_HOME`
	p.run("serve").ends(73).says(readOnly)
	p.run("py", "-c", "1").ends(73).says(readOnly)
	home := p.home.Dir()
	p.at(filepath.Join(home, "another"))
	p.run("ps").ends(73).says(readOnly)
	p.at(home)
	do("mount -o remount,bind,rw " + home)
	p.run("logs", "1").ends(0).prints(kept)
	p.run("py", "-c", "6 * 7").ends(0).prints("42\n")
	p.run("stop", "--kernels").ends(0)
}
