package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/wire"
)

// kernels answers as a daemon with two python kernels, of process 3 and of a py session, which both know a job j1.
func kernels(t *testing.T, s *soma, more func(r *http.Request) any) {
	t.Helper()
	one, pid, code := 1, 77, 0
	list := []wire.PyKernel{
		{ID: "06aaaa", Branch: "br1", Session: "run-1", PID: 3, State: "attached", OSPID: 50, Jobs: &one, Cells: new(int), Memory: new(int64), StartedAt: noon, UsedAt: noon, Workspace: "/w"},
		{ID: "06abbb", Branch: "br2", Session: "py-1", State: "booting", StartedAt: noon, UsedAt: noon, Workspace: "/v"},
	}
	old := wire.PyKernel{ID: "05old", Branch: "br1", Session: "run-1", PID: 3, State: "ended", StartedAt: noon, UsedAt: noon, EndedAt: &noon, Workspace: "/w"}
	stand(t, s.home, func(_ config.Home, _ http.ResponseWriter, r *http.Request) any {
		if more != nil {
			if body := more(r); body != nil {
				return body
			}
		}
		switch r.URL.Path {
		case "/v1/kernels":
			if r.URL.Query().Get("all") != "" {
				return wire.List[wire.PyKernel]{Items: append([]wire.PyKernel{old}, list...)}
			}
			return wire.List[wire.PyKernel]{Items: list}
		case "/v1/branches/br1/kernel":
			return wire.KernelView{Branch: "br1", Kernel: &list[0], LiveJobs: &one, Running: &[]wire.RunningJob{{ID: "j1", PID: &pid, Command: "make\n\x1b[31mall", Started: 1}}}
		case "/v1/branches/br1/jobs":
			return wire.List[wire.RunningJob]{Items: []wire.RunningJob{{ID: "j1", PID: &pid, Command: "make\n\x1b[31mall", Started: 1}}}
		case "/v1/branches/br2/jobs", "/v1/branches/br2/jobs/recent":
			return wire.Errorf(wire.Unreachable, "the python kernel boots")
		case "/v1/branches/br1/jobs/recent":
			return wire.List[wire.Job]{Items: []wire.Job{{ID: "j2", Command: "true", State: "exited", ExitCode: &code, Started: 1000, Ended: 3500, Bytes: 2048},
				{ID: "j1", Command: "make all", State: "running", Service: true}}}
		}
		return wire.Errorf(wire.NotFound, "nothing is there")
	})
}

// P-121, I-11, I-12: kernels and jobs are named by pid, session or the beginning of an id; what is not known shows so.
func TestKernelsAndJobs(t *testing.T) {
	s := newSoma(t)
	kernels(t, s, nil)
	for _, c := range []struct {
		line string
		code int
		out  []string // each a part of it
		errs string   // a part
	}{
		{"kernels", exit.OK, []string{"06aaaa    3  attached", "06abbb    -  booting       -     ?      ?        ?"}, ""},
		{"kernel show 3", exit.OK, []string{"process    3\n", "JOB  OSPID", "j1      77", "make all\n"}, ""},
		{"kernel show run-", exit.OK, []string{"session    run-1"}, ""},
		{"kernel show 06", exit.Usage, nil, `cannot tell which python kernel is meant by "06"; write more of it`},
		{"kernel show nothing", exit.NotFound, nil, `cannot find a python kernel by "nothing"`},
		{"kernel show 0", exit.Usage, nil, "cannot tell which"},
		{"jobs 3", exit.OK, []string{"WHAT", "j1   3        77", "make all\n"}, ""},
		{"jobs", exit.OK, []string{"j1   3"}, "cannot list the jobs of session py-1: the python kernel boots"},
		{"jobs py", exit.Busy, nil, "the python kernel boots"},
		{"jobs br1 --all", exit.OK, []string{"exited      0   2s", "make all (service)\n"}, ""},
		{"jobs 3 -o json", exit.OK, []string{`{"items":[{"kernel":"06aaaa","branch":"br1","session":"run-1","process":3,"id":"j1","pid":77,`}, ""},
		{"jobs 3 --all --json", exit.OK, []string{`"process":3,"id":"j2","command":"true","state":"exited","exit_code":0`}, ""},
		{"kernels --json", exit.OK, []string{`"live_jobs":null`}, ""},
		{"job output j9", exit.NotFound, nil, `cannot find job "j9" in a python kernel that lives; see soma jobs --all`},
		{"job output 3 j1 --bytes 3", exit.Usage, nil, "give 0 for all, or 4 and more"},
		{"kernel restart 3", exit.Usage, nil, "say --yes"},
		{"job stop", exit.Usage, nil, "write it as soma job stop WHAT JOB"},
		{"job stop j9", exit.NotFound, nil, `cannot find job "j9" in a python kernel that lives`},
	} {
		code, out, errs := s.run(t, strings.Fields(c.line)...)
		if code != c.code || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
			t.Errorf("%s: code %d, errors %q", c.line, code, errs)
		}
		for _, part := range c.out {
			if !strings.Contains(out, part) {
				t.Errorf("%s: no %q in\n%s", c.line, part, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%s speaks to the terminal: %q", c.line, out)
		}
	}
	for args, want := range map[string]string{"kernel restart ": "3\tattached in /w", "job stop 3 ": "j1\tmake all", "job output ": "py-1\tbooting in /v"} {
		if code, out, _ := s.run(t, append([]string{"__complete"}, strings.Split(args, " ")...)...); code != exit.OK || !strings.Contains(out, want) {
			t.Errorf("completion of %q: %d, %q", args, code, out)
		}
	}
}

// P-050, P-131: the end of an output is printed, all of it page by page, and a gap is told.
func TestJobOutput(t *testing.T) {
	s := newSoma(t)
	text := strings.Repeat("0123456789", 20_000)
	kernels(t, s, func(r *http.Request) any {
		if r.URL.Path != "/v1/branches/br1/jobs/j1/output" {
			return nil
		}
		number := func(name string, other int) int {
			n := other
			if v := r.URL.Query().Get(name); v != "" {
				_ = json.Unmarshal([]byte(v), &n)
			}
			return n
		}
		limit := number("limit", wire.DefaultJob)
		at := number("offset", max(0, len(text)-limit))
		if at >= 70_000 && at < 190_000 && r.URL.Query().Has("offset") {
			return wire.Errorf(wire.OutputLost, "that was not kept")
		}
		end := min(at+limit, len(text))
		if at < 70_000 {
			end = min(end, 70_000)
		}
		return wire.JobPage{Job: "j1", Offset: int64(at), Next: int64(end), Size: int64(len(text)), Text: text[at:end]}
	})
	if code, out, errs := s.run(t, "job", "output", "3", "j1"); code != exit.OK || out != text[len(text)-wire.DefaultJob:] || errs != "" {
		t.Errorf("the end: code %d, %d bytes, %q", code, len(out), errs)
	}
	if code, out, _ := s.run(t, "job", "output", "--bytes", "7", "j1"); code != exit.OK || out != "3456789" {
		t.Errorf("the last 7 bytes: code %d, %q", code, out)
	}
	code, out, errs := s.run(t, "job", "output", "3", "j1", "--bytes", "0")
	if want := text[:70_000] + text[len(text)-wire.MaxJob:]; code != exit.OK || out != want || errs != "soma: 64.5 kB of output were not kept\n" {
		t.Errorf("all: code %d, %d bytes, want %d, %q", code, len(out), len(want), errs)
	}
}

// P-052: a stop that is not confirmed fails with what to do, and was asked once.
func TestStopAndRestart(t *testing.T) {
	s := newSoma(t)
	asked := 0
	kernels(t, s, func(r *http.Request) any {
		switch r.Method + r.URL.Path {
		case "PUT/v1/branches/br1/jobs/j1/stop":
			if asked++; asked == 1 {
				return wire.Errorf(wire.Unconfirmed, "cannot tell whether job j1 has ended").Do("see soma jobs before trying again")
			}
			return wire.StoppedJob{Job: "j1"}
		case "PUT/v1/branches/br1/kernel/restart":
			return wire.RestartedKernel{Old: "06aaaa", Jobs: []string{"j1"}, Cells: []string{}}
		case "PUT/v1/branches/br2/kernel/restart":
			return wire.RestartedKernel{Jobs: []string{}, Cells: []string{}}
		}
		return nil
	})
	code, _, errs := s.run(t, "job", "stop", "3", "j1")
	if code != exit.Failed || asked != 1 || errs != "soma: cannot tell whether job j1 has ended; see soma jobs before trying again\n" {
		t.Errorf("code %d, asked %d times, %q", code, asked, errs)
	}
	if code, out, _ := s.run(t, "job", "stop", "3", "j1"); code != exit.OK || out != "stopped job j1 of process 3\n" {
		t.Errorf("code %d, %q", code, out)
	}
	if code, out, _ := s.run(t, "kernel", "restart", "-y", "3"); code != exit.OK ||
		out != "ended the python kernel of process 3 with 1 job and 0 cells; the next cell begins in a fresh one\n" {
		t.Errorf("code %d, %q", code, out)
	}
	for _, line := range []string{"kernel restart -y 05old", "job stop 05old j1", "job output 05old j1", "jobs 05old"} {
		const want = "soma: cannot take python kernel \"05old\": it has ended, and another one has its place; write it as 3\n"
		if code, _, errs := s.run(t, strings.Fields(line)...); code != exit.NotFound || errs != want || asked != 2 {
			t.Errorf("%s: code %d, %q", line, code, errs)
		}
	}
	if code, out, _ := s.run(t, "kernel", "restart", "-y", "py-1"); code != exit.OK || !strings.HasPrefix(out, "session py-1 has no python kernel") {
		t.Errorf("code %d, %q", code, out)
	}
}
