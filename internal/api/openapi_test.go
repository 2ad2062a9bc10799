package api_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"soma/internal/api"
	"soma/internal/api/apitest"
	"soma/message"
	"soma/wire"
)

func spec(t *testing.T) *apitest.Spec {
	t.Helper()
	s, err := apitest.Parse(api.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The table and the description say the same of each route: access level, body, bound, query, stream.
func TestRoutesAreDescribed(t *testing.T) { // I-20, I-52
	described := spec(t).Operations()
	for _, r := range api.Routes() {
		key := r.Method + " " + r.Path
		o, ok := described[key]
		if !ok {
			t.Errorf("%s is not in openapi.yaml", key)
			continue
		}
		delete(described, key)
		want := apitest.Operation{Access: r.Access.String(), Body: r.Body > 0, Query: r.Query, Stream: r.Stream}
		if r.Body > wire.MaxBody {
			want.MaxBody = r.Body
		}
		if !reflect.DeepEqual(o, want) {
			t.Errorf("%s: described as %+v, in the table %+v", key, o, want)
		}
		if r.Access <= api.Nobody || r.Access > api.Admin {
			t.Errorf("%s has no access level", key)
		}
		if r.Access == api.Open && r.Path != "/healthz" && r.Path != "/readyz" {
			t.Errorf("%s needs no token", key)
		}
		if r.Method != "GET" && r.Access < api.Operate {
			t.Errorf("%s writes and needs the level %s only", key, r.Access)
		}
	}
	for key := range described {
		t.Errorf("%s is described and not in the table", key)
	}
}

// Answers recorded from a running server, at least one good one for each route and one refusal, are as described.
func TestSamplesAreAsDescribed(t *testing.T) { // I-20
	r := start(t)
	s := spec(t)
	seen := map[string]bool{}
	sample := func(method, pattern, path, body string, want wire.Code) string {
		t.Helper()
		a := r.ask(t, method+" "+path, []string{"Host: soma", good, isJSON}, body)
		if got := a.code(t); got != want {
			t.Fatalf("%s %s: %q, want %q: %s", method, path, got, want, a.body)
		}
		if err := s.Check(method, pattern, a.status, a.header.Get("Content-Type"), []byte(a.body)); err != nil {
			t.Error(err)
		}
		if want == "" {
			seen[method+" "+pattern] = true
		}
		return a.body
	}
	sample("GET", "/healthz", "/healthz", "", "")
	sample("GET", "/readyz", "/readyz", "", "")
	sample("GET", "/v1/status", "/v1/status", "", "")
	sample("GET", "/v1/models", "/v1/models", "", "")
	sample("GET", "/v1/sessions", "/v1/sessions", "", "") // empty
	sample("GET", "/v1/processes", "/v1/processes", "", "")
	sample("GET", "/metrics", "/metrics", "", "")
	if text := sample("GET", "/v1/openapi.yaml", "/v1/openapi.yaml", "", ""); text != string(api.OpenAPI()) {
		t.Error("the description served is not the embedded one")
	}
	const session = "/v1/sessions/{session}"
	sample("PUT", session, "/v1/sessions/s", `{"workspace":"/w","model":"script:tour"}`, "")
	sample("PUT", session, "/v1/sessions/s", `{"workspace":"/other"}`, wire.Conflict)
	sample("PUT", session, "/v1/sessions/p", `{"workspace":"/w","kind":"py"}`, "")
	sample("GET", session, "/v1/sessions/s", "", "")
	sample("GET", session, "/v1/sessions/none", "", wire.NotFound)
	sample("GET", "/v1/sessions", "/v1/sessions?limit=1", "", "")
	sample("PUT", session+"/inputs/{client}", "/v1/sessions/s/inputs/i", `{"text":"go on"}`, "")
	sample("GET", session+"/inputs/{client}", "/v1/sessions/s/inputs/i", "", "")
	sample("PUT", session+"/cells/{client}", "/v1/sessions/p/cells/c", `{"code":"1+1"}`, "")
	sample("PUT", session+"/shell/{client}", "/v1/sessions/p/shell/l", `{"command":"ls"}`, "")
	sample("PUT", session+"/shell/{client}", "/v1/sessions/p/shell/l", `{"command":"rm"}`, wire.Conflict)
	sample("GET", session+"/shell/{client}", "/v1/sessions/p/shell/l", "", "")
	sample("GET", session+"/shell/{client}/output", "/v1/sessions/p/shell/l/output?offset=0&limit=4", "", "")
	sample("GET", session+"/shell/{client}/output", "/v1/sessions/p/shell/l/output?limit=3", "", wire.BadRequest)
	sample("PUT", session+"/shell/{client}/interrupt", "/v1/sessions/p/shell/l/interrupt", "", "")
	sample("GET", session+"/shell/{client}/output", "/v1/sessions/p/shell/l/output", "", "")
	sample("GET", "/v1/cells/{cell}", "/v1/cells/p.c", "", "")
	sample("PUT", "/v1/cells/{cell}/interrupt", "/v1/cells/p.c/interrupt", "", "")
	sample("GET", "/v1/cells/{cell}/output", "/v1/cells/p.c/output?offset=5&limit=10", "", "")
	sample("GET", "/v1/cells/{cell}/images/{n}", "/v1/cells/p.c/images/1", "", "")
	sample("GET", "/v1/cells/{cell}/images/{n}", "/v1/cells/p.c/images/2", "", "")
	sample("GET", "/v1/cells/{cell}/images/{n}", "/v1/cells/p.c/images/3", "", wire.NotFound)
	sample("GET", "/v1/cells/{cell}/trace", "/v1/cells/p.c/trace", "", "")
	const branch = "/v1/branches/{branch}"
	sample("GET", "/v1/kernels", "/v1/kernels?all=true", "", "")
	sample("GET", "/v1/kernels", "/v1/kernels?all=yes", "", wire.BadRequest)
	for _, b := range []string{"b1", "b2", "b3"} {
		sample("GET", branch+"/kernel", "/v1/branches/"+b+"/kernel", "", "")
	}
	sample("GET", branch+"/kernel", "/v1/branches/b9/kernel", "", wire.NotFound)
	sample("GET", branch+"/jobs", "/v1/branches/b1/jobs", "", "")
	sample("GET", branch+"/jobs/recent", "/v1/branches/b1/jobs/recent", "", "")
	sample("GET", branch+"/jobs/recent", "/v1/branches/b2/jobs/recent", "", "")
	sample("GET", branch+"/jobs/{job}/output", "/v1/branches/b1/jobs/j1/output?offset=0&limit=4", "", "")
	sample("GET", branch+"/jobs/{job}/output", "/v1/branches/b1/jobs/j1/output?limit=3", "", wire.BadRequest)
	sample("GET", branch+"/jobs/{job}/output", "/v1/branches/b1/jobs/j9/output", "", wire.JobNotFound)
	sample("PUT", branch+"/complete", "/v1/branches/b1/complete", `{"text":"al","cursor":2}`, "")
	sample("PUT", branch+"/complete", "/v1/branches/b1/complete", `{"text":"al","cursor":3}`, wire.BadRequest)
	sample("PUT", branch+"/kernel/restart", "/v1/branches/b1/kernel/restart", "", "")
	sample("PUT", branch+"/kernel/restart", "/v1/branches/b2/kernel/restart", "", "")
	sample("PUT", branch+"/jobs/{job}/stop", "/v1/branches/b1/jobs/j9/stop", "", wire.JobNotFound)
	sample("GET", "/v1/processes/{pid}", "/v1/processes/1", "", "")
	sample("GET", "/v1/processes", "/v1/processes?limit=1", "", "")
	sample("GET", "/v1/processes/{pid}/messages", "/v1/processes/1/messages", "", "")
	sample("GET", "/v1/processes/{pid}/ledger", "/v1/processes/1/ledger?limit=1", "", "")
	sample("PUT", "/v1/processes/{pid}/signals/{client}", "/v1/processes/1/signals/a", `{"signal":"terminate"}`, "")
	sample("GET", "/v1/processes/{pid}", "/v1/processes/1?wait=1s", "", "")
	const journal = "/v1/neurons/{owner}/{kind}/{key}/journal"
	sample("GET", journal, "/v1/neurons/me/process/1/journal?feed=out&after=1&limit=1", "", "")
	sample("GET", journal, "/v1/neurons/me/process/2/journal", "", wire.NotFound)
	sample("GET", "/v1/deadletters", "/v1/deadletters?limit=1", "", "")
	sample("PUT", "/v1/deadletters/{letter}/redrive", "/v1/deadletters/d1/redrive", "", "")
	sample("PUT", "/v1/deadletters/{letter}/redrive", "/v1/deadletters/d1/redrive", "", wire.NotFound)
	sample("DELETE", "/v1/deadletters/{letter}", "/v1/deadletters/d2", "", "")
	sample("GET", "/v1/traces/{id}", "/v1/traces/1", "", "")
	sample("GET", "/v1/traces/{id}", "/v1/traces/none", "", wire.NotFound)
	sample("POST", "/v1/prune", "/v1/prune", `{"before":"2026-01-01T00:00:00Z","dry_run":true,"limit":1}`, "")
	sample("POST", "/v1/prune", "/v1/prune", `{"before":"2026-01-01T00:00:00Z","limit":101}`, wire.BadRequest)
	sample("POST", "/v1/prune", "/v1/prune", `{}`, wire.BadRequest)
	sample("PUT", session+"/removal", "/v1/sessions/s/removal", `{}`, wire.InUse)
	sample("PUT", session+"/removal", "/v1/sessions/s/removal", `{"force":true,"before":"2026-01-01T00:00:00Z"}`, wire.BadRequest)
	sample("PUT", session+"/removal", "/v1/sessions/gone/removal", `{"force":true}`, "")
	sample("GET", session+"/removal", "/v1/sessions/gone/removal", "", "")
	sample("GET", session+"/removal", "/v1/sessions/none/removal", "", wire.NotFound)
	sample("GET", "/v1/ledger", "/v1/ledger", "", "")
	sample("DELETE", session, "/v1/sessions/s", "", "")
	sample("POST", "/v1/daemon/stop", "/v1/daemon/stop", `{"kernels":true}`, "")
	if s := <-r.world.stopped; !s.Kernels {
		t.Error("the stop came without its word on kernels")
	}

	const events = session + "/events"
	stream := func(path string, check func(sse) error, kinds ...string) {
		t.Helper()
		in := r.read(t, path)
		happen := func() {
			r.live("p", wire.Delta, wire.DeltaEvent{PID: 1, Text: "x"})
			r.live("p", wire.CellOutput, wire.OutputEvent{Cell: "p.c", Text: "x"})
			r.note("p", 1)
		}
		if kinds[0] == "hint" {
			happen()
		}
		for i, kind := range kinds {
			e := in.event()
			if i == 0 && kind != "hint" { // not before: a reset would pass over what happened
				happen()
			}
			if e.kind != kind {
				t.Fatalf("%s: %+v in place of %s", path, e, kind)
			}
			if err := check(e); err != nil {
				t.Error(err)
			}
		}
	}
	session1 := func(e sse) error { return s.CheckEvent(events, e.kind, e.id, []byte(e.data)) }
	stream("/v1/sessions/s/events", session1, wire.SessionOpened, wire.InputAdmitted, wire.ProcessExited, wire.SessionEnded)
	stream("/v1/sessions/p/events", session1, wire.SessionOpened, wire.CellStarted, wire.CellEnded)
	stream("/v1/sessions/p/events?after=g0.1", session1, wire.Reset, wire.Delta, wire.CellOutput, wire.ProcessState)
	seen["GET "+events] = true
	stream("/v1/events", func(e sse) error { return s.CheckEvent("/v1/events", e.kind, e.id, []byte(e.data)) }, "hint")
	seen["GET /v1/events"] = true

	const jobs = "/v1/branches/{branch}/jobs/{job}"
	views := func(e sse) error {
		return s.CheckEvent("/v1/branches/{branch}/kernel/events", e.kind, e.id, []byte(e.data))
	}
	stream("/v1/branches/b1/kernel/events", views, wire.KernelObserved)
	pages := func(e sse) error { return s.CheckEvent(jobs+"/output/events", e.kind, e.id, []byte(e.data)) }
	stream("/v1/branches/b1/jobs/j1/output/events?offset=1", pages, wire.JobOutput)
	sample("PUT", jobs+"/stop", "/v1/branches/b1/jobs/j1/stop", "", "")
	seen["GET /v1/branches/{branch}/kernel/events"], seen["GET "+jobs+"/output/events"] = true, true

	entries := func(e sse) error { return s.CheckEvent(journal+"/entries", e.kind, e.id, []byte(e.data)) }
	stream("/v1/neurons/me/process/1/journal/entries?after=1", entries, wire.Reset, wire.JournalEntryAdded)
	seen["GET "+journal+"/entries"] = true

	for _, route := range api.Routes() {
		if key := route.Method + " " + route.Path; !seen[key] {
			t.Errorf("%s has no sample", key)
		}
	}
}

// The check itself refuses what is not described.
func TestCheckRefuses(t *testing.T) { // I-20
	s := spec(t)
	const stop = "/v1/daemon/stop"
	for name, err := range map[string]error{
		"a field too many":       s.Check("POST", stop, 200, "application/json", []byte(`{"pid":1,"kernels":0,"x":1}`)),
		"a field too few":        s.Check("POST", stop, 200, "application/json", []byte(`{"pid":1}`)),
		"another type":           s.Check("POST", stop, 200, "application/json", []byte(`{"pid":"1","kernels":0}`)),
		"null for a list":        s.Check("GET", "/v1/processes", 200, "application/json", []byte(`{"items":null}`)),
		"another content type":   s.Check("POST", stop, 200, "text/plain", []byte(`{"pid":1,"kernels":0}`)),
		"an unknown code":        s.Check("POST", stop, 400, "application/problem+json", []byte(`{"code":"x","status":400,"title":"x"}`)),
		"an error as plain JSON": s.Check("POST", stop, 400, "application/json", []byte(`{"code":"busy","status":429,"title":"x"}`)),
		"an unknown route":       s.Check("GET", stop, 200, "application/json", []byte(`{"pid":1,"kernels":0}`)),
		"an unknown event":       s.CheckEvent("/v1/events", "x", "", []byte(`{}`)),
		"a row without id":       s.CheckEvent("/v1/sessions/{session}/events", wire.NoteAdded, "", []byte(`{}`)),
		"a wrong body": s.CheckEvent("/v1/sessions/{session}/events", wire.NoteAdded, "g.1",
			[]byte(`{"session":"s","seq":1,"kind":"note","at":"2026-01-02T03:04:05Z","body":{}}`)),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if err := s.Check("POST", stop, 200, "application/json", []byte(`{"pid":1,"kernels":0}`)); err != nil {
		t.Error(err)
	}
}

// The described schemas have the fields of the structs, no more and no fewer, and the same ones are required.
func TestSchemasAreTheStructs(t *testing.T) { // I-20
	described := maps.Clone(spec(t).Schemas())
	for _, v := range []any{
		wire.Error{}, wire.Health{}, wire.Model{}, wire.Process{}, wire.State{}, wire.Signal{}, wire.Message{}, wire.LedgerRow{},
		wire.Status{}, wire.StoreStatus{}, wire.Kernel{}, wire.Stop{}, wire.Stopped{}, wire.Event{}, wire.InputEvent{},
		wire.StepStartedEvent{}, wire.StepEndedEvent{}, wire.StepFailedEvent{}, wire.ToolResultEvent{}, wire.CellEvent{},
		wire.TurnEndedEvent{}, wire.StateEvent{}, wire.NoteEvent{}, wire.DeltaEvent{}, wire.OutputEvent{}, wire.ResetEvent{},
		wire.StoppingEvent{},
		wire.Hint{}, wire.OpenSession{}, wire.Session{}, wire.Input{}, wire.InputState{}, wire.RunCell{}, wire.Cell{},
		wire.CellFault{}, wire.OutputPage{}, message.Message{}, message.Call{}, message.Image{}, message.Opaque{}, message.Usage{},
		wire.CellImage{}, wire.CellTrace{}, wire.TraceChange{}, wire.PyKernel{}, wire.List[wire.PyKernel]{}, wire.KernelView{}, wire.RunningJob{},
		wire.List[wire.RunningJob]{}, wire.Job{}, wire.List[wire.Job]{}, wire.JobPage{}, wire.JobGap{}, wire.StoppedJob{}, wire.RestartedKernel{},
		wire.Complete{}, wire.Completion{}, wire.RunShell{}, wire.ShellCommand{}, wire.ShellPage{},
		wire.DeadLetter{}, wire.Redriven{}, wire.Discarded{}, wire.Journal{}, wire.JournalReset{}, wire.JournalEntry{}, wire.JournalEnded{},
		wire.Trace{}, wire.TraceNode{}, wire.TraceGap{}, wire.List[wire.DeadLetter]{}, wire.Node{},
		wire.SizeGroup{}, wire.Remove{}, wire.Removal{}, wire.Prune{}, wire.Pruned{}, wire.Spent{}, wire.List[wire.Pruned]{}, wire.List[wire.Spent]{},
		wire.List[wire.Session]{}, wire.List[wire.Process]{}, wire.List[wire.Message]{}, wire.List[wire.LedgerRow]{}, wire.List[wire.Model]{},
	} {
		typ := reflect.TypeOf(v)
		name := typ.Name()
		switch {
		case typ == reflect.TypeFor[message.Message]():
			name = "MessageContent"
		case strings.HasPrefix(name, "List["):
			item := typ.Field(0).Type.Elem()
			name = item.Name() + "List"
		}
		schema, ok := described[name].(map[string]any)
		if !ok {
			t.Errorf("%s is not described", name)
			continue
		}
		delete(described, name)
		var fields, required []string
		for _, f := range jsonFields(typ) {
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == "" {
				continue
			}
			fields = append(fields, tag)
			if options != "omitempty" {
				required = append(required, tag)
			}
			property := schema["properties"].(map[string]any)[tag]
			if property == nil {
				t.Errorf("%s.%s is not described", name, tag)
				continue
			}
			if got, want := kindOf(property), kindOfGo(f.Type, options == "omitempty"); got != want {
				t.Errorf("%s.%s is described as %s, it is %s", name, tag, got, want)
			}
		}
		var saysRequired []string
		if list, ok := schema["required"].([]any); ok {
			for _, v := range list {
				saysRequired = append(saysRequired, v.(string))
			}
		}
		same(t, name+"'s fields", slices.Collect(maps.Keys(schema["properties"].(map[string]any))), fields)
		same(t, name+"'s required fields", saysRequired, required)
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes any other field", name)
		}
	}
	delete(described, "ID")
	delete(described, "Code")
	for name := range described {
		t.Errorf("%s is described, and no struct of the wire", name)
	}
}

// jsonFields returns the fields of a struct with those of embedded ones, which Go may hide and JSON does not.
func jsonFields(t reflect.Type) (all []reflect.StructField) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			all = append(all, jsonFields(f.Type)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}

func kindOf(property any) string {
	p := property.(map[string]any)
	switch {
	case p["$ref"] != nil:
		if p["$ref"] == "#/components/schemas/Code" {
			return "string"
		}
		return "object"
	case p["type"] == nil:
		return "any"
	}
	return fmt.Sprint(p["type"])
}

func kindOfGo(t reflect.Type, omitted bool) string {
	if t == reflect.TypeFor[[]byte]() { // base64
		return "string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		kind := kindOfGo(t.Elem(), omitted)
		if !omitted {
			kind = "[" + kind + " null]"
		}
		return kind
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Map:
		return "object"
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return "any"
		}
		return "array"
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return "string"
		}
		return "object"
	}
	return t.String()
}

// Each error code and event kind of the wire is described.
func TestCodesAndKindsAreDescribed(t *testing.T) { // I-20, I-21
	s := spec(t)
	enum := func(v any) (all []string) {
		for _, e := range v.(map[string]any)["enum"].([]any) {
			all = append(all, e.(string))
		}
		return all
	}
	values := constants(t, "../../wire")
	same(t, "codes", enum(s.Schemas()["Code"]), values["Code"])
	kinds := slices.Collect(maps.Keys(s.EventBodies("/v1/sessions/{session}/events")))
	same(t, "kinds with a body", kinds, values["Kinds of durable events"])
	event := s.Schemas()["Event"].(map[string]any)["properties"].(map[string]any)
	same(t, "kinds", enum(event["kind"]), values["Kinds of durable events"])
}

// constants returns the string constants of a package: by their type, or else by the words before the first semicolon of the
// comment over their block.
func constants(t *testing.T, dir string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files in ", dir, err)
	}
	all := map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, one := range g.Specs {
				value := one.(*ast.ValueSpec)
				key, _, _ := strings.Cut(g.Doc.Text(), ";")
				if typ, ok := value.Type.(*ast.Ident); ok {
					key = typ.Name
				}
				if len(value.Values) != 1 {
					continue
				}
				if lit, ok := value.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					all[key] = append(all[key], text)
				}
			}
		}
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: described are %v, they are %v", what, got, want)
	}
}
