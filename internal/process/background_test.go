package process_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/internal/agent/tool"
	"soma/internal/binding"
	"soma/internal/binding/images"
	"soma/internal/binding/run"
	"soma/internal/process"
	"soma/internal/pykernel/supervise"
	"soma/wire"
)

// withBindings gives the python kernels the names of these bindings.
func withBindings(list ...binding.Binding) option {
	return func(w *world) {
		w.python = true
		w.kernel = func(o *supervise.Options) {
			r, err := binding.NewRouter(list)
			w.must(err)
			o.Modules, o.Sources = r.Modules(), r.Sources()
		}
	}
}

// P-047, P-053: with real jobs: a run ends by itself when its last job has ended, whether that was read behind every cell's back or
// is news for the model. A service is not waited for, and ends with its python kernel.
func TestRunWaitsForItsJobs(t *testing.T) {
	for name, c := range map[string]struct{ code, then, want string }{
		"read by a task":       {"j = run('sleep 0.3')\nasync def f(): await j\nt = asyncio.create_task(f())", "1", "[]"},
		"unread":               {"j = run('sleep 0.3; echo over')", "1", "[j1 delivered]"},
		"read in time":         {"j = await run('echo over')", "1", "[]"},
		"read by another cell": {"j = run('echo over')", "await asyncio.sleep(0.3); await j", "[j1 retired]"},
		"a service":            {"j = run('sleep 60', service=True)", "1", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			code, then := must(json.Marshal(c.code)), must(json.Marshal(c.then))
			w := newWorld(t, map[string]string{"m": "name: m\nsteps:\n  - calls: [{python: " + string(code) + "}, {python: " + string(then) + "}]\n  - say: a\n  - say: b\n"}, withBindings(run.Binding()))
			pid := w.open("s", "m", false)
			w.admit("s", "a", "x")
			if p := w.ended(pid); *p.ExitCode != 0 || fmt.Sprint(w.wakes("s")) != c.want {
				t.Errorf("process %+v, wakes %v, want %s\n%s", p, w.wakes("s"), c.want, w.told(pid))
			}
			if name == "unread" && !strings.Contains(w.told(pid), "job finished (exit_code=0") {
				t.Errorf("told %s", w.told(pid))
			}
		})
	}
}

// P-064, P-037: with a real python kernel: an image that a cell shows reaches the model with its bytes, and what the cell calls is stored.
func TestShowImage(t *testing.T) {
	const pixel = "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
	w := newWorld(t, map[string]string{"m": "name: m\nsteps:\n  - calls: [{python: 'show_image(bytes.fromhex(\"" + pixel + "\"))'}]\n  - say: a\n"}, withBindings(images.Binding()))
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	last := w.stage.requests()[1]
	m := last.messages[2]
	if len(m.Images) != 1 || m.Images[0].Media != "image/png" || m.Images[0].Size != int64(len(pixel)/2) {
		t.Fatalf("result %+v", m)
	}
	if b, err := last.image(t.Context(), m.Images[0].Content); err != nil || hex.EncodeToString(b) != pixel {
		t.Errorf("the model is shown %x, %v", b, err)
	}
	var r tool.Result
	w.must(json.Unmarshal(m.Result, &r))
	if fmt.Sprint(r.Calls) != "[show_image]" {
		t.Errorf("calls %v", r.Calls)
	}
}

// P-027: the only tool that a model is offered is python, with the rules of the bindings that the daemon gives.
func TestPythonIsTheOnlyTool(t *testing.T) {
	w := newWorld(t, map[string]string{"m": "name: m\nsteps: [{say: a}]\n"}, withHost(func(o *process.Options) { o.Rules = "Look before you leap." }))
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.ended(pid)
	if tools := w.stage.requests()[0].tools; len(tools) != 1 || tools[0].Name != "python" || !strings.HasSuffix(tools[0].Description, "Look before you leap.") {
		t.Errorf("offered %+v", tools)
	}
}

// P-039, P-044: with a real python kernel: a cell goes on in the background, others run beside it, its end wakes a run that
// has nothing else to do, and what it computed is there. The daemon may be killed meanwhile.
func TestBackgroundWithAPythonKernel(t *testing.T) {
	w := newWorld(t, map[string]string{"m": `
name: m
steps:
  - calls:
      - python: |
          import asyncio, os
          print('begun')
          while not os.path.exists('go'): await asyncio.sleep(0.01)
          x = 41
          print('over')
          x + 1
  - calls: [{python: "'beside it'"}]
  - say: 'it goes on'
  - calls: [{python: 'x + 2'}]
  - say: 'end {{.Last.Value}}'
`}, withPython, withHost(func(o *process.Options) { o.Background = 100 * time.Millisecond }))
	pid := w.open("s", "m", false)
	w.admit("s", "a", "x")
	w.awaitState(pid, wire.Blocked, "background work")
	r := bodies[wire.ToolResultEvent](w, "s", wire.ToolResult)
	if len(r) != 2 || r[0].Status != tool.Backgrounded || r[0].Output != "begun\n" || r[1].Value == nil || *r[1].Value != "'beside it'" {
		t.Errorf("results %+v", r)
	}
	if c, err := w.host.Cell(t.Context(), r[0].Cell); err != nil || c.State != "backgrounded" {
		t.Errorf("cell %+v, %v", c, err)
	}
	w.kill()
	w.must(os.WriteFile(filepath.Join(w.folder, "go"), nil, 0o600))
	if p := w.ended(pid); *p.ExitCode != 0 {
		t.Errorf("process %+v", p)
	}
	h := w.history(pid)
	if got := h[len(h)-1].Text; got != "end 43" {
		t.Errorf("answer %q", got)
	}
	if n := strings.Count(w.told(pid), "cell finished (status=ok"); n != 1 || !strings.Contains(w.told(pid), "result: 42") || !strings.Contains(w.told(pid), "begun\nover") {
		t.Errorf("told %d times: %s", n, w.told(pid))
	}
	if got := w.wakes("s"); fmt.Sprint(got) != "["+r[0].Cell+" delivered]" {
		t.Errorf("wakes %v", got)
	}
}
