package faults

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A second daemon names the first with pid and socket, ends with 73, and disturbs nothing.
func TestSecondDaemon(t *testing.T) { // I-02, I-15
	p := newPlace(t)
	p.serve()
	p.run("serve").ends(73).says(fmt.Sprintf(`cannot lock home %s: the daemon with pid %d holds it \(socket %s\); use that one, or end it with soma stop`,
		regexp.QuoteMeta(p.home.Dir()), p.pid(), regexp.QuoteMeta(p.home.Socket())))
	p.run("ps").ends(0)
}

// SIGTERM and SIGINT stop a daemon in order with exit code 0; python kernels live on with their names.
func TestSignals(t *testing.T) { // P-090
	p := newPlace(t)
	p.run("py", "-c", "n = 0").ends(0)
	p.run("stop").ends(0)
	for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := p.serve()
		p.run("py", "-c", "n = n + 1; n").ends(0).prints(fmt.Sprintf("%d\n", i+1))
		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if text := d.ends(0); !strings.Contains(text, "msg=stopping") || strings.Contains(text, "level=ERROR") {
			t.Errorf("%s: the daemon said\n%s", s, text)
		}
	}
	p.run("py", "-c", "n").ends(0).prints("2\n")
	p.run("stop", "--kernels").ends(0)
}

// A daemon whose home or socket is removed ends by itself, and takes nothing from the one that follows it.
func TestHomeIsRemoved(t *testing.T) { // I-02, I-16
	p := newPlace(t)
	for what, path := range map[string]string{"socket": p.home.Socket(), "(lock file|socket)": p.home.Dir()} {
		d := p.serve()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if path == p.home.Dir() { // its successor is there before it is gone
			p.run("py", "-c", "1").ends(0).prints("1\n")
		}
		text := d.ends(73)
		if last := regexp.MustCompile(`\nsoma: cannot use home .*: its ` + what + ` was removed or replaced while the daemon ran: this daemon ends, and the next command starts another\n$`); !last.MatchString(text) {
			t.Errorf("%s: the daemon said\n%s", what, text)
		}
		p.run("py", "-c", "1").ends(0).prints("1\n")
		p.run("status").ends(0)
		p.run("stop", "--kernels").ends(0)
	}
}

// A daemon that holds the home and does not answer is named.
func TestMuteDaemon(t *testing.T) { // I-02, I-15
	p := newPlace(t)
	d := p.serve()
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pid := d.cmd.Process.Pid
	p.run("status").ends(75).says(fmt.Sprintf(`cannot ask the daemon: the one with pid %d has not answered within 5s; try again, or end it with kill -9 %d`, pid, pid))
	if err := os.Remove(p.home.Socket()); err != nil {
		t.Fatal(err)
	}
	for line, what := range map[string]string{"status": "ask", "stop": "stop"} {
		p.run(line).ends(69).says(fmt.Sprintf(`cannot %s the daemon: the one with pid %d holds %s and does not answer on its socket; wait if it starts, else end it with kill %d`,
			what, pid, regexp.QuoteMeta(p.home.Dir()), pid))
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	d.ends(73)
}

const waiting = `
import os, time
print("it waits")
open("began", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("went on")
`

// An orderly stop is no loss: whoever waits ends with one line and 69, and starts no daemon; what runs goes on and is found
// again.
func TestStopWhileClientsWait(t *testing.T) { // I-16, I-22
	for name, stop := range map[string]func(p *place, d *running){
		"by a client": func(p *place, _ *running) { p.run("stop").ends(0) },
		"by a signal": func(p *place, d *running) {
			if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				p.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { stopWhileClientsWait(newPlace(t), stop) })
	}
}

func stopWhileClientsWait(p *place, stop func(p *place, d *running)) {
	p.write("cell.py", waiting)
	p.write("s.yaml", "steps:\n  - calls:\n      - python: exec(open('cell.py').read())\n  - say: Done.\n")
	d := p.serve()
	run := p.begin("run", "--model", "script:s.yaml", "x")
	p.until("the cell's begin", func() bool { return p.exists("began") })
	clients := map[*running]string{
		run:                        "soma attach 1",
		p.begin("attach", "1"):     "soma attach 1",
		p.begin("logs", "-f", "1"): "soma logs -f 1",
		p.begin("py", "cell.py"):   "soma py --last",
	}
	for c := range clients {
		c.says(`cell\.py|it waits`)
	}
	stop(p, d)
	d.ends(0)
	for c, line := range clients {
		text := c.ends(69)
		if last := "soma: the daemon was stopped; " + line + " goes on\n"; !strings.HasSuffix(text, last) || strings.Contains(text, "gone") {
			p.t.Errorf("%s said\n%s\nwant at its end %q", c.cmd, text, last)
		}
	}
	p.run("status").ends(69)
	p.write("go", "")
	p.run("wait", "1").ends(0)
	if out := p.run("py", "--last").ends(0).out; !strings.HasSuffix(out, "went on\n") {
		p.t.Errorf("the cell's output is %q", out)
	}
	if out := p.run("logs", "1").ends(0).out; strings.Count(out, "went on") != 1 || !strings.Contains(out, "Done.") {
		p.t.Errorf("the transcript is %q", out)
	}
}
