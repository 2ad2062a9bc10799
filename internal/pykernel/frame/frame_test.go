package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"soma/ident"
	"soma/internal/pykernel"
)

const protocolDir = "../../../protocol/pykernel"

func load(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(protocolDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// class returns the name that the protocol has for the end of a stream.
func class(err error) string {
	for _, known := range []error{ErrTooLarge, ErrEmpty, ErrTruncated, ErrNotUTF8, ErrNotJSON, ErrNotObject, ErrMalformed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err == io.EOF {
		return "eof"
	}
	return err.Error()
}

// P-118, P-210: the vectors that both languages read.
func TestUnitVectors(t *testing.T) {
	var cases []struct {
		Name    string
		Input   []byte
		Units   []any
		Outcome string
	}
	load(t, "vectors/units.json", &cases)
	if len(cases) < 20 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		r := bytes.NewReader(c.Input)
		var got []any
		var err error
		for {
			var object []byte
			if object, err = Read(r); err != nil {
				break
			}
			var v any
			if err := json.Unmarshal(object, &v); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			got = append(got, v)
		}
		if class(err) != c.Outcome {
			t.Errorf("%s: outcome %q, want %q", c.Name, class(err), c.Outcome)
		}
		if len(got) != len(c.Units) || len(got) > 0 && !reflect.DeepEqual(got, c.Units) {
			t.Errorf("%s: units %v, want %v", c.Name, got, c.Units)
		}
	}
}

// P-210: a frame over 64 MiB is refused before anything is allocated for it, and a length that is only promised costs nothing.
func TestLargeVectors(t *testing.T) {
	var cases []struct {
		Name    string
		Length  uint32
		Outcome string
	}
	load(t, "vectors/large.json", &cases)
	for _, c := range cases {
		header := binary.BigEndian.AppendUint32(nil, c.Length)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Read(bytes.NewReader(header))
		runtime.ReadMemStats(&after)
		if class(err) != c.Outcome {
			t.Errorf("%s: %q, want %q", c.Name, class(err), c.Outcome)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes allocated", c.Name, n)
		}
	}
}

// P-012, P-013: what a python kernel may say. The cases from the daemon are the Python reader's.
func TestShapeVectors(t *testing.T) {
	var cases []struct {
		Name, From, Outcome string
		Input               json.RawMessage
	}
	load(t, "vectors/shapes.json", &cases)
	seen := 0
	for _, c := range cases {
		if c.From != "kernel" {
			continue
		}
		seen++
		u, err := Parse(c.Input)
		got := ""
		switch {
		case err != nil:
			got = class(err)
		case u.Hello != nil:
			got = "hello"
		case u.Refused != nil:
			got = "refused"
		case u.Pong != nil:
			got = "pong"
		case u.Output != nil:
			got = "output"
		case u.Frame != nil:
			got = "frame"
		case u.Ack != nil:
			got = "ack"
		}
		if got != c.Outcome {
			t.Errorf("%s: %q, want %q", c.Name, got, c.Outcome)
		}
	}
	if seen < 20 {
		t.Errorf("%d cases from the kernel", seen)
	}
}

// P-012: the vector defines the hello, and what the daemon writes is the vector's attach.
func TestHelloVector(t *testing.T) {
	var v struct {
		Attach, Hello json.RawMessage
		Types         map[string]string
	}
	load(t, "vectors/hello.json", &v)
	u, err := Parse([]byte(`{"hello":` + string(v.Hello) + `}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Hello{Protocol: 1, Bundle: "00ff", Epoch: 1, PID: 4711, PGID: 4711, Leader: "123456", Ready: true,
		Jobs: []pykernel.JobStart{}, ExternalJobs: []pykernel.JobItem{}, Cells: []string{"c2"}, Finished: []string{"c0", "c1"}, Python: "3.11.2"}
	if !reflect.DeepEqual(*u.Hello, want) {
		t.Errorf("hello %+v", *u.Hello)
	}
	if len(v.Types) != len(helloFields) {
		t.Errorf("the vector has %d fields, this build %d", len(v.Types), len(helloFields))
	}
	for _, name := range helloFields {
		if _, ok := v.Types[name]; !ok {
			t.Errorf("the vector lacks %s", name)
		}
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(v.Hello, &fields)
		delete(fields, name)
		b, _ := json.Marshal(map[string]any{"hello": fields})
		if _, err := Parse(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("a hello without %s: %v", name, err)
		}
	}
	ours, err := Attach{Kernel: "k1", Token: "00ff", Grace: 3600, Lease: 1, Protocol: pykernel.Protocol}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got, given any
	_ = json.Unmarshal(ours, &got)
	_ = json.Unmarshal(v.Attach, &given)
	if !reflect.DeepEqual(got, map[string]any{"attach": given}) {
		t.Errorf("attach %s, want %s", ours, v.Attach)
	}
}

// P-011: the constants of this language are those of frames.json.
func TestConstantsAreTheProtocol(t *testing.T) {
	var f struct {
		Protocol int
		Max      int `json:"max_unit_bytes"`
		Limits   map[string]int
		Frames   []struct {
			Name, From string
			Sequenced  bool
			Fields     map[string]string
		}
		Objects  map[string]map[string]string
		Statuses []string
		Codes    []string
	}
	load(t, "frames.json", &f)
	for _, c := range []struct {
		name      string
		ours, was int
	}{
		{"protocol", pykernel.Protocol, f.Protocol},
		{"max_unit_bytes", pykernel.MaxFrame, f.Max},
		{"head_bytes", pykernel.MaxHead, f.Limits["head_bytes"]},
		{"tail_bytes", pykernel.MaxTail, f.Limits["tail_bytes"]},
		{"command_characters", pykernel.MaxCommand, f.Limits["command_characters"]},
		{"job_tail_bytes", pykernel.MaxJobTail, f.Limits["job_tail_bytes"]},
		{"page_max_bytes", pykernel.MaxPage, f.Limits["page_max_bytes"]},
		{"page_min_bytes", pykernel.MinPage, f.Limits["page_min_bytes"]},
	} {
		if c.ours != c.was {
			t.Errorf("%s is %d, the protocol says %d", c.name, c.ours, c.was)
		}
	}
	// What a python kernel sends is read by the shapes, which are those of the protocol to the field; what it is sent follows.
	sent := map[string]map[string]string{}
	theirs := map[pykernel.FrameType]fields{}
	for _, fr := range f.Frames {
		if fr.Sequenced && fr.From == "kernel" {
			theirs[pykernel.FrameType(fr.Name)] = fr.Fields
		} else if fr.From == "daemon" || fr.Name == "output" {
			sent[fr.Name] = fr.Fields
		}
	}
	if !reflect.DeepEqual(shapes, theirs) {
		t.Errorf("frames %v, the protocol has %v", shapes, theirs)
	}
	inner := map[string]fields{}
	for path, shape := range f.Objects {
		if path != "reply.error" { // the daemon's own
			inner[path] = shape
		}
	}
	if !reflect.DeepEqual(objects, inner) {
		t.Errorf("objects %v, the protocol has %v", objects, inner)
	}
	codes := []string{pykernel.CodeJobNotFound, pykernel.CodeCellNotFound, pykernel.CodeOutputLost, pykernel.CodeInvalid, pykernel.CodeBusy}
	if !slices.Equal(codes, f.Codes) {
		t.Errorf("codes %v, the protocol has %v", codes, f.Codes)
	}
	statuses := []string{string(pykernel.CellOK), string(pykernel.CellError), string(pykernel.CellInterrupted), string(pykernel.CellTimedOut)}
	if !slices.Equal(statuses, f.Statuses) {
		t.Errorf("statuses %v, the protocol has %v", statuses, f.Statuses)
	}
	offset, cursor := int64(1), 1
	ours := map[string]any{
		"execute": pykernel.Execute{
			Cause: pykernel.Cause{Correlation: ident.ID{1}, Causation: ident.ID{1}}, Origin: pykernel.OriginModel, BackgroundMS: 1,
		},
		"interrupt": pykernel.Interrupt{}, "attach": Attach{}, "output": Output{},
		"reply":    pykernel.Reply{Value: json.RawMessage("1"), Error: &pykernel.CallError{}},
		"shutdown": struct{}{}, "job_list": pykernel.Ask{ID: "a"}, "job_stop": pykernel.Ask{ID: "a", Job: "j"},
		"job_read":  pykernel.Ask{ID: "a", Job: "j", Offset: &offset, Limit: 4},
		"cell_read": pykernel.Ask{ID: "a", Cell: "c", Offset: &offset, Limit: 4},
		"complete":  pykernel.Ask{ID: "a", Text: &f.Codes[0], Cursor: &cursor},
	}
	for name, shape := range sent {
		value, ok := ours[name]
		if !ok {
			if shape != nil {
				t.Errorf("nothing here is sent as %s", name)
			}
			continue
		}
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var have map[string]json.RawMessage
		_ = json.Unmarshal(b, &have)
		delete(have, "type")
		for field := range shape {
			if _, ok := have[field]; !ok {
				t.Errorf("%s lacks %s", name, field)
			}
			delete(have, field)
		}
		for field := range have {
			t.Errorf("%s has %s, which the protocol lacks", name, field)
		}
	}
}

// P-011: what a python kernel tells of is read to the last field.
func TestFrames(t *testing.T) {
	code, no, ended := 3, false, int64(9)
	for text, want := range map[string]Frame{
		`{"type":"job_start","job":"j","pid":7,"pgid":8,"leader":"12","command":"c","service":true,"cell":"x","started_at":5}`: {
			JobStart: &pykernel.JobStart{Type: "job_start", Job: "j", PID: 7, PGID: 8, Leader: "12", Command: "c", Service: true, Cell: "x", StartedAt: 5}},
		`{"type":"job","job":"j","cell":"x","state":"exited","exit_code":3,"timed_out":true,"ended_at":9,"bytes":4,"service":true,"command":"c","wake":true,"tail":"t"}`: {
			Job: &pykernel.JobEnd{Type: "job", Job: "j", Cell: "x", State: "exited", ExitCode: &code, TimedOut: true, EndedAt: 9, Bytes: 4, Service: true, Command: "c", Wake: true, Tail: "t"}},
		`{"type":"jobs","live":2,"awaited":1,"items":[{"id":"r","command":"c","service":true,"started":5}]}`: {
			Jobs: &pykernel.Jobs{Type: "jobs", Live: 2, Awaited: 1, Items: []pykernel.JobItem{{ID: "r", Command: "c", Service: true, Started: 5}}}},
		`{"type":"seen","cells":["a"],"jobs":["b"]}`:               {Seen: &pykernel.Seen{Type: "seen", Cells: []string{"a"}, Jobs: []string{"b"}}},
		`{"type":"cleanup","errors":["e"]}`:                        {Cleanup: &pykernel.Cleanup{Type: "cleanup", Errors: []string{"e"}}},
		`{"type":"cells","live":1,"bloated":true,"eligible":true}`: {Cells: &pykernel.Cells{Type: "cells", Live: 1, Bloated: true, Eligible: true}},
		`{"type":"trace","cell":"x","changes":[{"path":"p","kind":"created","diff":"d","truncated":true}]}`: {
			Trace: &pykernel.Trace{Type: "trace", Cell: "x", Changes: []pykernel.Change{{Path: "p", Kind: "created", Diff: "d", Truncated: true}}}},
		`{"type":"backgrounded","cell":"x","duration_ms":5,"output":{"head":"h","tail":"t","size":9,"spill":{"path":"/p","size":9,"whole":true}}}`: {
			Backgrounded: &pykernel.Backgrounded{Type: "backgrounded", Cell: "x", DurationMS: 5, Output: pykernel.Output{
				Head: "h", Tail: "t", Size: 9, Spill: &pykernel.Spill{Path: "/p", Size: 9, Whole: true}}}},
		`{"type":"done","cell":"x","status":"ok","started_at":1,"duration_ms":2,"output":{"head":"","tail":"","size":0},"calls":["run"],"images":[{"media":"image/png","data":"AAE=","name":"n"}],"image_errors":["e"],"repair":"r","background":true,"wake":false}`: {
			Done: &pykernel.Done{Type: "done", Cell: "x", Status: pykernel.CellOK, DurationMS: 2, Calls: []string{"run"},
				Images: []pykernel.FrameImage{{Media: "image/png", Data: []byte{0, 1}, Name: "n"}}, ImageErrors: []string{"e"}, Repair: "r", Background: true, Wake: &no}},
		`{"type":"job_list","id":"q","ok":true,"jobs":[{"id":"j","command":"c","state":"exited","exit_code":3,"timed_out":true,"service":true,"started_at":5,"ended_at":9,"bytes":4,"cell":"x"}]}`: {
			Answer: &pykernel.Answer{Type: "job_list", ID: "q", OK: true, Jobs: []pykernel.JobRow{{ID: "j", Command: "c", State: "exited", ExitCode: &code, TimedOut: true, Service: true, StartedAt: 5, EndedAt: &ended, Bytes: 4, Cell: "x"}}}},
		`{"type":"cell_read","id":"q","ok":true,"page":{"offset":1,"next_offset":2,"size":3,"running":true,"text":"t"}}`: {
			Answer: &pykernel.Answer{Type: "cell_read", ID: "q", OK: true, Page: &pykernel.Page{Offset: 1, NextOffset: 2, Size: 3, Running: true, Text: "t"}}},
		`{"type":"complete","id":"q","ok":true,"names":["n"],"start":4}`: {Answer: &pykernel.Answer{Type: "complete", ID: "q", OK: true, Names: []string{"n"}, Start: 4}},
		`{"type":"job_stop","id":"q","ok":false,"code":"busy","error":"e"}`: {
			Answer: &pykernel.Answer{Type: "job_stop", ID: "q", Code: "busy", Error: "e"}},
		`{"type":"startup_error","error":"e"}`:                       {Failure: "e"},
		`{"type":"call","id":"i","method":"m","args":[1]}`:           {Call: &Call{ID: "i", Method: "m", Args: json.RawMessage("[1]")}},
		`{"type":"call","id":"i","cell":"x","method":1,"args":null}`: {Call: &Call{ID: "i", Cell: "x", Args: json.RawMessage("null")}},
	} {
		u, err := Parse([]byte(`{"seq":1,"ack":0,"frame":` + text + `}`))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := *u.Frame
		got.Type = ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}

func TestWrittenUnitsAreRead(t *testing.T) {
	var b []byte
	var err error
	for _, object := range [][]byte{Ack(7), Sequenced(3, 2, []byte(`{"type":"cells","live":4,"bloated":false,"eligible":true}`))} {
		if b, err = Append(b, object); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(b)
	one, err := Read(r)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := Parse(one); err != nil || *u.Ack != 7 || u.Seq != nil {
		t.Errorf("ack: %+v, %v", u, err)
	}
	two, err := Read(r)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := Parse(two); err != nil || *u.Seq != 3 || *u.Ack != 2 || u.Frame.Cells.Live != 4 {
		t.Errorf("frame: %+v, %v", u, err)
	}
	if string(Ping(9)) != `{"ping":9}` {
		t.Errorf("ping %s", Ping(9))
	}
	if _, err := Append(nil, make([]byte, pykernel.MaxFrame+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a unit over the bound: %v", err)
	}
}

// P-210: whatever arrives, the reader ends with a known class and keeps to the bytes that it was given.
func FuzzRead(f *testing.F) {
	var cases []struct{ Input []byte }
	load(f, "vectors/units.json", &cases)
	for _, c := range cases {
		f.Add(c.Input)
	}
	f.Add([]byte("\x00\x00\x00\x1d{\"seq\":1,\"ack\":0,\"frame\":{}}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			object, err := Read(r)
			if err != nil {
				switch class(err) {
				case "too_large", "empty", "truncated", "not_utf8", "not_json", "not_object", "eof":
					return
				}
				t.Fatalf("error %v", err)
			}
			if u, err := Parse(object); err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatalf("shape: %v", err)
			} else if err == nil && u.Seq != nil && (u.Frame == nil || u.Ack == nil) {
				t.Fatalf("half a frame: %s", object)
			}
		}
	})
}
