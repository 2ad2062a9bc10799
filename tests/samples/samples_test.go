package samples

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/api"
	"soma/internal/api/apitest"
	"soma/wire"
)

const (
	session = "/v1/sessions/{session}"
	input   = session + "/inputs/{client}"
	cells   = session + "/cells/{client}"
	events  = session + "/events"
	cell    = "/v1/cells/{cell}"
	command = session + "/shell/{client}"
	branch  = "/v1/branches/{branch}"
	job     = branch + "/jobs/{job}"
	process = "/v1/processes/{pid}"
	signal  = process + "/signals/{client}"
)

// played is what the model says: calls of every fate, a refusal that is tried again, one that is not.
const played = `
pace: 1ms
steps:
- say: I look at it in three cells, and one of them is not there.
  calls:
  - python: &wait |
      import os, time
      print("begun", flush=True)
      while not os.path.exists("go"):
          time.sleep(0.005)
      print("é" * 40)
      6 * 7
  - {tool: nosuch, arguments: {a: 1}}
  - python: 1/0
- say: '{{(index .Results 0).Value}} and {{(index .Results 2).ErrorType}}.'
- error: {attempts: [1], class: retryable, message: too busy, status: 503, retry_after: 10ms, after_tokens: 2}
  say: The second attempt says this.
- say: I wait.
  calls: [{python: *wait}]
- error: {class: fatal, message: no such model here, status: 404}
`

// Every route and every kind of event of a running daemon is as openapi.yaml says.
func TestRecordedSamplesAreAsDescribed(t *testing.T) { // I-20
	spec, err := apitest.Parse(api.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, played)
	letters := d.deadLetters(t)
	r := newRecorder(t, spec, d.home)
	r.fresh()
	r.agent(d.workspace)
	r.python(d.workspace)
	r.jobs(d.workspace)
	r.lists(d.workspace)
	r.evidence(letters)
	r.removals()
	r.ask("", "POST", "/v1/daemon/stop", `{"kernels":true}`)
	select {
	case err := <-d.exited:
		if err != nil {
			t.Errorf("the daemon did not end well: %v", err)
		}
	case <-r.ctx.Done():
		t.Fatal("the daemon did not stop")
	}

	for _, route := range api.Routes() {
		if key := route.Method + " " + route.Path; !r.routes[key] {
			t.Errorf("%s has no sample", key)
		}
	}
	kinds := []string{wire.Delta, wire.CellOutput, wire.Reset}
	for kind := range spec.EventBodies(events) {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		if !r.kinds[kind] {
			t.Errorf("no event of kind %s was seen", kind)
		}
	}
}

// fresh asks a daemon that has nothing yet.
func (r *recorder) fresh() {
	token := r.token
	r.token = ""
	r.ask("", "GET", "/healthz", "")
	r.ask("", "GET", "/readyz", "")
	r.ask(wire.Unauthorized, "GET", "/v1/status", "")
	r.ask(wire.Unauthorized, "GET", events, "", "s")
	r.token = token
	r.ask("", "GET", "/v1/openapi.yaml", "")
	r.ask("", "GET", "/metrics", "")
	r.ask("", "GET", "/v1/status", "")
	r.ask("", "GET", "/v1/models", "")
	r.ask("", "GET", "/v1/sessions", "")
	r.ask("", "GET", "/v1/processes", "")
	r.ask(wire.NotFound, "GET", session, "", "none")
	r.ask(wire.NotFound, "GET", events, "", "none")
	r.ask(wire.NotFound, "GET", process, "", "1")
	r.ask(wire.NotFound, "GET", process+"/messages", "", "1")
	r.ask(wire.NotFound, "GET", process+"/ledger", "", "1")
	r.ask(wire.NotFound, "PUT", signal, `{"signal":"pause"}`, "1", "a")
	r.ask(wire.NotFound, "GET", cell, "", "none")
	r.ask(wire.NotFound, "DELETE", session, "", "none")
	r.ask(wire.BadRequest, "GET", "/v1/processes", "", "?limit=0")
	r.ask(wire.BadRequest, "POST", "/v1/daemon/stop", `{"kernel":true}`)
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of wire
	}
	return string(b)
}

// agent works with a process through all that can happen to it.
func (r *recorder) agent(workspace string) {
	hints := r.follow("/v1/events")
	open := wire.OpenSession{Workspace: workspace, Model: "played", Keep: true}
	s := good[wire.Session](r, "PUT", session, encode(open), "s")
	r.ask("", "PUT", session, encode(open), "s") // the same again
	r.ask(wire.Conflict, "PUT", session, encode(wire.OpenSession{Workspace: workspace, Model: "played"}), "s")
	r.ask(wire.Unprocessable, "PUT", session, encode(wire.OpenSession{Workspace: workspace, Model: "nosuch"}), "other")
	r.ask(wire.NoPython, "PUT", session, encode(wire.OpenSession{Workspace: workspace, Model: "played", Python: workspace}), "other")
	r.ask(wire.BadRequest, "PUT", session, `{"workspace":"here"}`, "other")
	r.ask("", "GET", session, "", "s")
	hints.until("hint", `"s"`)

	pid := strconv.FormatUint(s.PID, 10)
	in := r.follow(events, "s")
	send := func(id, mode, text string) {
		r.t.Helper()
		r.ask("", "PUT", input, encode(wire.Input{Text: text, Mode: mode}), "s", id)
	}
	tell := func(id, name string) {
		r.t.Helper()
		r.ask("", "PUT", signal, encode(wire.Signal{Signal: name}), pid, id)
	}
	gate := filepath.Join(workspace, "go")
	blocked := `"reason":"waiting for input"`

	send("one", "", "go on")
	send("one", "", "go on")
	r.ask(wire.Conflict, "PUT", input, encode(wire.Input{Text: "another"}), "s", "one")
	r.ask(wire.BadRequest, "PUT", input, `{"text":""}`, "s", "empty")
	r.ask("", "GET", input, "", "s", "one")
	r.ask(wire.NotFound, "GET", input, "", "s", "none")
	in.until(wire.Delta)
	in.until(wire.ToolResult, `"nosuch"`, `"status":"error"`)
	in.until(wire.CellOutput, "begun")
	r.ask("", "GET", "/v1/status", "") // with a python kernel
	running := body[wire.StepEndedEvent](in, r.follow(events, "s").until(wire.StepEnded)).Cells[0]
	r.ask("", "GET", cell, "", running)
	r.ask("", "GET", cell+"/output", "", running)
	r.ask(wire.Unprocessable, "PUT", cell+"/interrupt", "", running)
	r.open(gate)
	in.until(wire.ToolResult, `"value":"42"`)
	in.until(wire.TurnEnded, `"why":"done"`, blocked)
	r.ask("", "GET", cell, "", running)
	r.ask("", "GET", cell+"/output", "", running, "?offset=0&limit=7")
	r.ask(wire.BadRequest, "GET", cell+"/output", "", running, "?offset=100000")

	tell("a", wire.Pause)
	in.until(wire.ProcessState, `"reason":"paused"`)
	tell("b", wire.Resume)
	in.until(wire.ProcessState, blocked)
	send("two", "", "and again")
	in.until(wire.StepFailed, "too busy", `"again":true`)
	in.until(wire.TurnEnded, blocked)

	r.close(gate)
	send("three", "", "wait")
	in.until(wire.CellOutput, "begun")
	send("four", wire.After, "never")
	tell("c", wire.Interrupt)
	tell("c", wire.Interrupt)
	in.until(wire.ToolResult, `"status":"cancelled"`)
	in.until(wire.InputEnded, `"cancelled"`)
	in.until(wire.TurnEnded, "interrupted")

	send("five", "", "refuse")
	in.until(wire.NoteAdded, "no such model here")
	in.until(wire.TurnEnded, `"why":"failed"`)
	r.ask(wire.BadRequest, "PUT", signal, `{"signal":"stop"}`, pid, "d")
	r.ask("", "GET", process, "", pid)
	r.ask("", "GET", process+"/messages", "", pid)
	r.ask("", "GET", process+"/messages", "", pid, "?after=2&limit=2")
	r.ask("", "GET", process+"/ledger", "", pid)
	tell("e", wire.Terminate)
	in.until(wire.ProcessExited, `"exit_code":137`)
	r.ask("", "GET", process, "", pid, "?wait=1s")
	r.ask(wire.ProcessEnded, "PUT", signal, `{"signal":"pause"}`, pid, "f")

	r.ask(wire.BadRequest, "GET", events, "", "s", "?after=x")
	r.follow(events, "s", "?after=other.1").until(wire.Reset)
	r.ask("", "DELETE", session, "", "s")
	in.until(wire.SessionEnded)
	r.ask(wire.SessionClosed, "PUT", input, `{"text":"late"}`, "s", "late")
}

// python works with a session without an agent.
func (r *recorder) python(workspace string) {
	r.ask("", "PUT", session, encode(wire.OpenSession{Kind: wire.SessionPy, Workspace: workspace}), "p")
	in := r.follow(events, "p")
	gate := filepath.Join(workspace, "go")
	run := func(id, code string) wire.Cell {
		r.t.Helper()
		return good[wire.Cell](r, "PUT", cells, encode(wire.RunCell{Code: code}), "p", id)
	}
	wait := "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.005)\n'x' * 100"

	run("one", wait)
	in.until(wire.CellStarted)
	in.until(wire.CellOutput, "begun")
	r.open(gate)
	in.until(wire.CellEnded, `"status":"ok"`)
	run("one", wait)
	r.ask(wire.Conflict, "PUT", cells, `{"code":"1"}`, "p", "one")
	r.ask(wire.SessionClosed, "PUT", cells, `{"code":"1"}`, "s", "one")
	r.ask(wire.Unprocessable, "PUT", input, `{"text":"a"}`, "p", "a")

	bad := run("two", "print('x')\n{}['a']")
	in.until(wire.CellEnded, `"KeyError"`)
	r.ask("", "GET", cell, "", bad.ID)

	r.close(gate)
	stuck := run("three", wait)
	in.until(wire.CellOutput, "begun")
	r.ask("", "PUT", cell+"/interrupt", "", stuck.ID)
	in.until(wire.CellEnded, `"status":"interrupted"`)
	r.ask("", "PUT", cell+"/interrupt", "", stuck.ID) // it has ended
	r.ask("", "GET", cell+"/output", "", stuck.ID)
	r.ask(wire.BadRequest, "PUT", cells, `{"code":"1","timeout_ms":-1}`, "p", "four")
}

// jobs works with the jobs of a python kernel, and looks at what its cells leave behind.
func (r *recorder) jobs(workspace string) {
	good[wire.Session](r, "PUT", session, encode(wire.OpenSession{Kind: wire.SessionPy, Workspace: workspace}), "j")
	in := r.follow(events, "j")
	b := good[wire.Session](r, "GET", session, "", "j").Branch
	r.ask("", "GET", branch+"/kernel", "", b) // there is none yet
	r.ask("", "GET", branch+"/jobs", "", b)
	r.ask("", "GET", branch+"/jobs/recent", "", b)
	r.ask(wire.JobNotFound, "GET", job+"/output", "", b, "j1")
	r.ask(wire.NotFound, "GET", branch+"/kernel", "", "none")
	r.ask("", "PUT", branch+"/complete", `{"text":"jo","cursor":2}`, b)
	r.ask("", "PUT", branch+"/kernel/restart", "", b)
	views := r.follow(branch+"/kernel/events", b)
	views.until(wire.KernelObserved, `"live_job_count":0`)

	gate := filepath.Join(workspace, "gate")
	png := `bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082")`
	c := good[wire.Cell](r, "PUT", cells, encode(wire.RunCell{Code: `one = run("echo begun; while [ ! -e gate ]; do sleep 0.02; done; echo é")
two = run("sleep 600")
files.write("made.txt", "new")
show_image(` + png + `)`}), "j", "one")
	in.until(wire.CellEnded, `"images":[`)
	views.until(wire.KernelObserved, `"live_job_count":2`)
	r.ask("", "GET", cell, "", c.ID)
	r.ask("", "GET", cell+"/images/{n}", "", c.ID, "1")
	r.ask(wire.NotFound, "GET", cell+"/images/{n}", "", c.ID, "2")
	if t := good[wire.CellTrace](r, "GET", cell+"/trace", "", c.ID); len(t.Changes) != 1 || t.Changes[0].Path != "made.txt" {
		r.t.Errorf("the trace is %+v", t)
	}
	r.ask(wire.NotFound, "GET", cell+"/trace", "", "none")

	r.ask("", "GET", "/v1/kernels", "")
	r.ask("", "GET", branch+"/kernel", "", b)
	running := good[wire.List[wire.RunningJob]](r, "GET", branch+"/jobs", "", b).Items
	if len(running) != 2 {
		r.t.Fatalf("running are %+v", running)
	}
	first, second := running[0].ID, running[1].ID
	output := r.follow(job+"/output/events", b, first)
	output.until(wire.JobOutput, "begun")
	r.ask("", "GET", job+"/output", "", b, first, "?offset=2&limit=4")
	r.open(gate)
	output.until(wire.JobOutput, "é", `"running":false`)
	if e, err := output.next(); err == nil {
		r.t.Errorf("behind the end of the job comes %+v", e)
	}
	r.ask("", "GET", job+"/output", "", b, first)
	r.ask("", "PUT", job+"/stop", "", b, second)
	r.ask(wire.JobNotFound, "PUT", job+"/stop", "", b, second)
	r.ask("", "GET", branch+"/jobs/recent", "", b)
	done := good[wire.Completion](r, "PUT", branch+"/complete", `{"text":"x = tw","cursor":6}`, b)
	if done.Start != 4 || len(done.Names) != 1 || done.Names[0] != "two" {
		r.t.Errorf("completed to %+v", done)
	}
	behind := good[wire.Cell](r, "PUT", cells, encode(wire.RunCell{Code: "print('é' * 8)\nawait asyncio.sleep(600)", BackgroundMS: 1}), "j", "two")
	in.until(wire.CellBackground, `"state":"backgrounded"`)
	if p := good[wire.OutputPage](r, "GET", cell+"/output", "", behind.ID, "?offset=2&limit=5"); p.Text != "éé" || p.Next != 6 || p.EOF {
		r.t.Errorf("a page of a cell that runs is %+v", p)
	}
	r.ask("", "PUT", command, `{"command":"echo é; exec sleep 600"}`, "j", "a")
	r.ask(wire.Conflict, "PUT", command, `{"command":"ls"}`, "j", "a")
	r.ask(wire.NotFound, "GET", command, "", "j", "b")
	r.ask("", "GET", command+"/output", "", "j", "a", "?offset=1&limit=4")
	r.ask("", "PUT", command+"/interrupt", "", "j", "a")
	for end := ""; end == ""; end = good[wire.ShellCommand](r, "GET", command, "", "j", "a").Status {
	}
	r.ask("", "GET", command+"/output", "", "j", "a")
	if k := good[wire.RestartedKernel](r, "PUT", branch+"/kernel/restart", "", b); k.Old == "" || len(k.Cells) != 1 {
		r.t.Error("no kernel was restarted")
	}
	views.until(wire.KernelObserved, `"running_jobs":[]`)
	r.ask("", "GET", branch+"/jobs/recent", "", b) // from the store
	r.ask("", "GET", "/v1/kernels", "", "?all=true")
}

// lists reads what is there now, page by page.
func (r *recorder) lists(workspace string) {
	r.ask("", "GET", "/v1/status", "")
	r.ask("", "GET", "/v1/sessions", "", "?limit=1")
	r.ask("", "GET", "/v1/sessions", "", "?after=p&kind=run&workspace="+workspace)
	r.ask("", "GET", "/v1/processes", "", "?all=true&limit=1")
	r.ask("", "GET", "/v1/processes", "", "?all=true&session=s")
}

// evidence asks for what is proven of the work that was done.
func (r *recorder) evidence(letters []ident.ID) {
	const journal = "/v1/neurons/{owner}/{kind}/{key}/journal"
	const letter = "/v1/deadletters/{letter}"
	pid := strconv.FormatUint(good[wire.List[wire.Process]](r, "GET", "/v1/processes", "", "?all=true&session=s").Items[0].PID, 10)
	page := good[wire.Journal](r, "GET", journal, "", "me", "process", pid, "?limit=3")
	r.ask("", "GET", journal, "", "me", "process", pid, "?feed=out&after=1")
	r.ask("", "GET", journal, "", "me", "session", "p")
	r.ask(wire.NotFound, "GET", journal, "", "me", "process", "99")
	r.ask(wire.BadRequest, "GET", journal, "", "me", "process", pid, "?feed=up")
	f := r.follow(journal+"/entries", "me", "process", pid, "?after=1")
	if e := f.until(wire.JournalEntryAdded); !strings.HasSuffix(e.id, ".2") {
		r.t.Errorf("after 1 comes %s", e.id)
	}
	r.follow(journal+"/entries", "me", "process", pid, "?after=other.1").until(wire.Reset)
	r.ask(wire.BadRequest, "GET", journal+"/entries", "", "me", "process", pid, "?after=x")

	good[wire.Trace](r, "GET", "/v1/traces/{id}", "", pid)
	good[wire.Trace](r, "GET", "/v1/traces/{id}", "", page.Entries[0].ID)
	for _, input := range []string{"one", "two", "three", "five"} {
		good[wire.Trace](r, "GET", "/v1/traces/{id}", "", input)
	}
	good[wire.Trace](r, "GET", "/v1/traces/{id}", "", "p")
	r.ask(wire.NotFound, "GET", "/v1/traces/{id}", "", "nothing")

	list := good[wire.List[wire.DeadLetter]](r, "GET", "/v1/deadletters", "")
	if len(list.Items) != len(letters) {
		r.t.Errorf("dead letters %+v", list)
	}
	r.ask("", "GET", "/v1/deadletters", "", "?limit=1&after="+letters[0].String())
	r.ask(wire.BadRequest, "GET", "/v1/deadletters", "", "?after=x")
	r.ask("", "PUT", letter+"/redrive", "", letters[0].String())
	r.ask(wire.NotFound, "PUT", letter+"/redrive", "", letters[0].String())
	r.ask("", "DELETE", letter, "", letters[1].String())
	r.ask(wire.NotFound, "DELETE", letter, "", letters[1].String())
	r.ask(wire.NotFound, "DELETE", letter, "", "none")
}

// removals removes what was worked on, and looks at what stays.
func (r *recorder) removals() {
	const removal = session + "/removal"
	good[wire.List[wire.Spent]](r, "GET", "/v1/ledger", "")
	later := encode(wire.Prune{Before: time.Now().Add(time.Hour), DryRun: true})
	if old := good[wire.List[wire.Pruned]](r, "POST", "/v1/prune", later); len(old.Items) == 0 {
		r.t.Error("nothing would be pruned")
	}
	r.ask(wire.BadRequest, "POST", "/v1/prune", `{"before":"soon"}`)
	r.ask(wire.NotFound, "PUT", removal, `{}`, "none")
	r.ask(wire.NotFound, "GET", removal, "", "none")
	good[wire.Removal](r, "PUT", removal, `{}`, "s")
	r.ask("", "GET", removal, "", "s")
	r.ask(wire.Gone, "PUT", input, `{"text":"late"}`, "s", "later")
}

// open lets the cells that wait at a gate go on, close makes later ones wait.
func (r *recorder) open(gate string) {
	r.t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorder) close(gate string) {
	r.t.Helper()
	if err := os.Remove(gate); err != nil {
		r.t.Fatal(err)
	}
}
