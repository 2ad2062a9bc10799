package supervise_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// P-039, P-044: a cell that goes on in the background is told once, also after a restart of the daemon, and its end is told with
// whether anybody is to be woken.
func TestBackground(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "1")
	h.Outcome(cell)
	behind := h.RunBehind("a", kernel, "import asyncio, os\nprint('so far', flush=True)\nwhile not os.path.exists('end'): await asyncio.sleep(0.02)\n'done'", time.Minute, 50*time.Millisecond)
	m := h.Backgrounded(behind)
	if len(m) != 1 || m[0].Kernel != kernel || m[0].DurationMS < 50 || m[0].Output.Head != "so far\n" {
		t.Errorf("told %+v", m)
	}
	value(t, h.Outcome(h.Run("a", kernel, "40 + 2", time.Minute)), "42") // others run meanwhile
	h.Restart()
	h.Attached(kernel)
	h.Outcome(h.Run("a", kernel, "open('end', 'w').close()", time.Minute))
	out := h.Outcome(behind)
	if !out.Background || !out.Wake || out.Value == nil || *out.Value != "'done'" {
		t.Errorf("outcome %+v", out)
	}
	if n := len(h.Backgrounded(behind)); n != 1 || h.Outcomes(behind) != 1 {
		t.Errorf("told %d times, ended %d times", n, h.Outcomes(behind))
	}
	if out := h.Outcome(h.RunBehind("a", kernel, "1", time.Minute, time.Minute)); out.Background || out.Wake {
		t.Errorf("one that nobody had to leave: %+v", out)
	}
}

// P-127, P-040: the deadline of a cell holds in the background, also where others came before it that have none yet, where it swallows
// its interrupt, and after a restart of the daemon.
func TestDeadlineInTheBackground(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			t.Parallel()
			h := pykerneltest.New(t, probed)
			kernel, cell := h.Open("a", "1")
			h.Outcome(cell)
			first := h.RunBehind("a", kernel, "import asyncio\nawait asyncio.sleep(300)", 5*time.Minute, 20*time.Millisecond)
			h.Backgrounded(first)
			began := time.Now()
			deaf := h.RunBehind("a", kernel, `import time
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        while time.monotonic() < end: pass
    except BaseException:
        pass`, time.Second, 50*time.Millisecond)
			h.Backgrounded(deaf)
			if restarted {
				h.Restart()
			}
			out := h.Outcome(deaf)
			if out.Status != pykernel.CellTimedOut || !out.Background || !out.Wake {
				t.Errorf("outcome %+v", out)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if out := h.Outcome(first); out.Status != pykernel.CellUnknown || !out.Wake || !strings.Contains(out.Note, "deadline") {
				t.Errorf("the other one: %+v", out)
			}
			h.Gone(kernel)
		})
	}
}

// P-127: the deadline of a cell holds from the first sign of it, also behind one that waits for something: what it prints, calls or
// starts says that it has begun.
func TestDeadlineOfACellThatIsHeard(t *testing.T) {
	for sign, code := range map[string]string{"printed": "print('here', flush=True)", "a job": "p = probe.start('j1', 'sleep', '60', cell=probe.api.cell())",
		"a host call": "try: await probe.api.call('probe.none', {})\nexcept Exception: pass"} {
		t.Run(sign, func(t *testing.T) {
			t.Parallel()
			h := pykerneltest.New(t, probed)
			kernel, cell := h.Open("a", "import asyncio, time\nawait asyncio.sleep(300)")
			deaf := h.Run("a", kernel, code+`
await asyncio.sleep(0.2)
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        while time.monotonic() < end: pass
    except BaseException:
        pass`, time.Second)
			if out := h.Outcome(deaf); out.Status != pykernel.CellTimedOut || !strings.Contains(out.Note, "deadline") {
				t.Errorf("outcome %+v", out)
			}
			if out := h.Outcome(cell); out.Status != pykernel.CellUnknown {
				t.Errorf("the other one: %+v", out)
			}
		})
	}
}

// P-044: what was read after its end is told, once for a frame.
func TestSeen(t *testing.T) {
	h := pykerneltest.New(t, probed)
	kernel, cell := h.Open("a", "probe.api.send('seen', {'cells': ['c1'], 'jobs': ['j1', 'j2']})\nprobe.api.send('seen', {'cells': [], 'jobs': []})")
	h.Outcome(cell)
	h.Outcome(h.Run("a", kernel, "probe.api.send('seen', {'cells': [], 'jobs': ['j3']})", time.Minute))
	all := h.Read(2)
	if len(all) != 2 || all[0].Kernel != kernel || len(all[0].Cells) != 1 || len(all[0].Jobs) != 2 || all[1].Jobs[0] != "j3" {
		t.Errorf("told %+v", all)
	}
}

// P-066, P-123: the newest trace of a cell is stored under its id, within a bound.
func TestTraces(t *testing.T) {
	h := pykerneltest.New(t, probed)
	id := ident.New(time.Now()).String()
	_, cell := h.Open("a", `one = {'path': 'a.py', 'kind': 'created', 'diff': '+1', 'truncated': False}
probe.api.send('trace', {'cell': '`+id+`', 'changes': [one]})
probe.api.send('trace', {'cell': 'no id of ours', 'changes': [one]})`)
	h.Outcome(cell)
	h.Until("the trace", func() bool { return h.Count(`select count(*) from cell_trace`) == 1 })
	kernel := h.Sup.List()[0].ID
	h.Outcome(h.Run("a", kernel, `probe.api.send('trace', {'cell': '`+id+`', 'changes': [one, {**one, 'path': 'b.py', 'kind': 'deleted', 'diff': '-é'}]})`, time.Minute))
	var changes []pykernel.Change
	h.Until("the newer trace", func() bool {
		var body []byte
		err := h.Store.Query(t.Context(), `select body from cell_trace where cell = ? and session = 's-a' and kernel = ?`, []any{id, kernel},
			func(scan func(...any) error) error { return scan(&body) })
		return err == nil && json.Unmarshal(body, &changes) == nil && len(changes) == 2
	})
	if changes[1] != (pykernel.Change{Path: "b.py", Kind: "deleted", Diff: "-é"}) {
		t.Errorf("stored %+v", changes)
	}
	if n := h.Count(`select count(*) from cell_trace`); n != 1 {
		t.Errorf("%d traces", n)
	}
	// What another python kernel says of the cell changes nothing.
	own := ident.New(time.Now()).String()
	_, cell = h.Open("b", `one = {'path': 'x', 'kind': 'created', 'diff': '', 'truncated': False}
probe.api.send('trace', {'cell': '`+id+`', 'changes': [one]})
probe.api.send('trace', {'cell': '`+own+`', 'changes': [one]})`)
	h.Outcome(cell)
	h.Until("the other's own trace", func() bool { return h.Count(`select count(*) from cell_trace where cell = ?`, own) == 1 })
	if n := h.Count(`select count(*) from cell_trace where cell = ? and kernel = ? and cast(body as text) like '%b.py%'`, id, kernel); n != 1 {
		t.Error("another python kernel has changed the trace")
	}
}

// P-064: an image is stored once as content and named by its outcome; what is beyond the bounds is named instead.
func TestImages(t *testing.T) {
	cell := ident.New(time.Now())
	out := pykernel.CellEnded{Kernel: "k", Cell: cell.String()}
	big := make([]byte, pykernel.MaxImageBytes-4)
	ops := supervise.Pictures(&out, []pykernel.FrameImage{
		{Media: "image/png", Data: []byte("1234"), Name: "a.png"}, {Media: "image/png", Data: make([]byte, pykernel.MaxImageBytes)},
		{Media: "image/jpeg", Data: big}, {Media: "image/png", Data: []byte("x"), Name: "late.png"},
	})
	if len(out.Images) != 2 || len(ops) != 2 || len(out.ImageErrors) != 2 || !strings.Contains(out.ImageErrors[1], "late.png") {
		t.Fatalf("%d images, %d operations, %q", len(out.Images), len(ops), out.ImageErrors)
	}
	first := out.Images[0]
	if first.Media != "image/png" || first.Name != "a.png" || first.Size != 4 || first.Content != pykernel.ImageID(cell, 0) || first.Content == out.Images[1].Content {
		t.Errorf("images %+v", out.Images)
	}
	out = pykernel.CellEnded{Cell: cell.String()}
	if supervise.Pictures(&out, make([]pykernel.FrameImage, 6)); len(out.Images) != pykernel.MaxImages || len(out.ImageErrors) != 2 {
		t.Errorf("%d images, %q", len(out.Images), out.ImageErrors)
	}

	h := pykerneltest.New(t, nil)
	kernel, code := h.Open("a", "1")
	h.Outcome(code)
	for range 2 { // a repeat changes nothing
		if err := h.Engine.Write(t.Context(), neuron.PlaceOf("s-a"), ops[0]); err != nil {
			t.Fatal(err)
		}
	}
	if b := h.Content(first.Content); string(b) != "1234" {
		t.Errorf("stored %q", b)
	}
	_ = kernel
}
