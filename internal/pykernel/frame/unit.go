package frame

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"soma/internal/pykernel"
)

// Attach is the first unit of a connection, from the daemon.
type Attach struct {
	Kernel   string  `json:"kernel"`
	Token    string  `json:"token"`
	Ack      uint64  `json:"ack"`
	Grace    float64 `json:"grace"` // seconds
	Lease    uint64  `json:"lease"`
	Protocol int     `json:"protocol"`
}

// Encode returns the unit's JSON object.
func (a Attach) Encode() ([]byte, error) { return json.Marshal(map[string]Attach{"attach": a}) }

// Hello is the python kernel's answer to an attach that it accepts.
type Hello struct {
	Protocol int    `json:"protocol"`
	Bundle   string `json:"bundle"`
	Epoch    int64  `json:"epoch"`
	Ack      uint64 `json:"ack"` // highest daemon frame applied
	PID      int    `json:"pid"`
	PGID     int    `json:"pgid"`
	Leader   string `json:"leader"`
	Ready    bool   `json:"ready"`
	// Jobs are those of this machine that live. Of the others there are only the numbers and lists of the last jobs frame.
	Jobs            []pykernel.JobStart `json:"jobs"`
	External        int                 `json:"external"`
	AwaitedExternal int                 `json:"awaited_external"`
	ExternalJobs    []pykernel.JobItem  `json:"external_jobs"`

	Dropped  int64    `json:"dropped"`
	Cells    []string `json:"cells"`
	Finished []string `json:"finished"`
	Python   string   `json:"python"`
}

// helloFields are what a hello must hold, whether or not the daemon has a use for it yet.
var helloFields = [...]string{
	"protocol", "bundle", "epoch", "ack", "pid", "pgid", "leader", "ready", "jobs", "external", "awaited_external",
	"external_jobs", "dropped", "cells", "finished", "python",
}

// Output is a piece of a cell's live output.
type Output struct {
	Cell   *string `json:"cell"`
	Offset *int64  `json:"offset"` // byte offset of Text in the cell's output
	Text   *string `json:"text"`
}

// Unit is one unit from a python kernel. Exactly one of Hello, Refused, Pong, Output, Seq and a lone Ack is set.
type Unit struct {
	Hello   *Hello
	Refused *string
	Pong    *int64
	Output  *Output
	Seq     *uint64
	Ack     *uint64
	// Frame is set with Seq; an unknown type leaves all but its Type empty.
	Frame *Frame
}

// Frame is one sequenced frame from a python kernel; the field of its type is set.
type Frame struct {
	Type         pykernel.FrameType
	Done         *pykernel.Done
	Call         *Call
	Failure      string // of startup_error
	Cells        *pykernel.Cells
	Backgrounded *pykernel.Backgrounded
	Trace        *pykernel.Trace
	JobStart     *pykernel.JobStart
	Job          *pykernel.JobEnd
	Jobs         *pykernel.Jobs
	Seen         *pykernel.Seen
	Cleanup      *pykernel.Cleanup
	Answer       *pykernel.Answer // of any ask
}

// Call is a host call. A method that is no string is empty, absent arguments are nil: such a call is answered, not cut. One
// without a cell lives until it is answered.
type Call struct {
	ID     string          `json:"id"`
	Cell   string          `json:"cell"`
	Method string          `json:"-"`
	Args   json.RawMessage `json:"args"`
}

// Parse reads the shape of a unit that Read returned. Every error is ErrMalformed, wrapped.
func Parse(object []byte) (Unit, error) {
	in, ok := members(object)
	if !ok {
		return Unit{}, malformed("no object")
	}
	var u Unit
	for name, into := range map[string]any{"refused": &u.Refused, "pong": &u.Pong, "output": &u.Output, "seq": &u.Seq, "ack": &u.Ack} {
		if b, ok := in[name]; ok {
			if err := json.Unmarshal(b, into); err != nil {
				return Unit{}, malformed("%v", err)
			}
		}
	}
	switch {
	case in["hello"] != nil:
		h, err := parseHello(in["hello"])
		u.Hello = h
		return u, err
	case u.Refused != nil, u.Pong != nil:
		return u, nil
	case u.Output != nil:
		o := u.Output
		if o.Cell == nil || o.Offset == nil || o.Text == nil || *o.Offset < 0 {
			return u, malformed("output lacks a field")
		}
		return u, nil
	case u.Seq != nil:
		if *u.Seq == 0 || u.Ack == nil || in["frame"] == nil {
			return u, malformed("a frame needs seq from 1, ack and frame")
		}
		f, err := parseFrame(in["frame"])
		u.Frame = f
		return u, err
	case u.Ack != nil && in["frame"] == nil:
		return u, nil
	}
	return u, malformed("no known unit")
}

func parseHello(b json.RawMessage) (*Hello, error) {
	have, ok := members(b)
	if !ok {
		return nil, malformed("hello is no object")
	}
	for _, name := range helloFields {
		if v, ok := have[name]; !ok || string(v) == "null" {
			return nil, malformed("hello lacks %s", name)
		}
	}
	if err := items("hello.jobs", have["jobs"], shapes[pykernel.FrameJobStart]); err != nil {
		return nil, err
	}
	if err := items("hello.external_jobs", have["external_jobs"], objects["jobs.items"]); err != nil {
		return nil, err
	}
	h := new(Hello)
	if err := json.Unmarshal(b, h); err != nil {
		return nil, malformed("%v", err)
	}
	return h, nil
}

func parseFrame(b json.RawMessage) (*Frame, error) {
	have, ok := members(b)
	if !ok {
		return nil, malformed("a frame is no object")
	}
	kind, ok := text(have["type"])
	if !ok {
		return nil, malformed("a frame lacks its type")
	}
	f := &Frame{Type: pykernel.FrameType(kind)}
	if err := check(f.Type, have); err != nil {
		return nil, err
	}
	var into any
	var output *pykernel.Output
	switch f.Type {
	case pykernel.FrameDone:
		f.Done = new(pykernel.Done)
		into, output = f.Done, &f.Done.Output
	case pykernel.FrameCall:
		return f, parseCall(f, b)
	case pykernel.FrameStartupError:
		into = &struct{ Error *string }{&f.Failure}
	case pykernel.FrameCells:
		f.Cells = new(pykernel.Cells)
		into = f.Cells
	case pykernel.FrameBackgrounded:
		f.Backgrounded = new(pykernel.Backgrounded)
		into, output = f.Backgrounded, &f.Backgrounded.Output
	case pykernel.FrameTrace:
		f.Trace = new(pykernel.Trace)
		into = f.Trace
	case pykernel.FrameJobStart:
		f.JobStart = new(pykernel.JobStart)
		into = f.JobStart
	case pykernel.FrameJob:
		f.Job = new(pykernel.JobEnd)
		into = f.Job
	case pykernel.FrameJobs:
		f.Jobs = new(pykernel.Jobs)
		into = f.Jobs
	case pykernel.FrameSeen:
		f.Seen = new(pykernel.Seen)
		into = f.Seen
	case pykernel.FrameCleanup:
		f.Cleanup = new(pykernel.Cleanup)
		into = f.Cleanup
	default:
		if _, ok := answers[f.Type]; !ok {
			return f, nil
		}
		f.Answer = new(pykernel.Answer)
		into = f.Answer
	}
	if output != nil {
		if err := parseOutput(have["output"], output); err != nil {
			return nil, err
		}
		b = without(have, "output")
	}
	if err := json.Unmarshal(b, into); err != nil {
		return nil, malformed("%v", err)
	}
	if f.Done != nil {
		switch f.Done.Status {
		case pykernel.CellOK, pykernel.CellError, pykernel.CellInterrupted, pykernel.CellTimedOut:
		default:
			return nil, malformed("done with status %q", f.Done.Status)
		}
	}
	return f, nil
}

// parseOutput reads an output whose shape was checked.
func parseOutput(b json.RawMessage, o *pykernel.Output) error {
	have, _ := members(b)
	if err := json.Unmarshal(without(have, "head", "tail"), o); err != nil {
		return malformed("%v", err)
	}
	var okHead, okTail bool
	o.Head, okHead = text(have["head"])
	o.Tail, okTail = text(have["tail"])
	if !okHead || !okTail {
		return malformed("an output's text is broken")
	}
	return nil
}

// without returns the object of all members but those.
func without(have map[string]json.RawMessage, names ...string) []byte {
	b := []byte{'{'}
	for name, v := range have {
		if slices.Contains(names, name) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		quoted, _ := json.Marshal(name) // a string is never refused
		b = append(append(append(b, quoted...), ':'), v...)
	}
	return append(b, '}')
}

func parseCall(f *Frame, b json.RawMessage) error {
	var in struct {
		Call
		Method json.RawMessage `json:"method"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return malformed("%v", err)
	}
	f.Call = &in.Call
	_ = json.Unmarshal(in.Method, &f.Call.Method) // one that is no string stays empty
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Sequenced returns the JSON object of a sequenced frame: body is the frame's own object.
func Sequenced(seq, ack uint64, body []byte) []byte {
	b := make([]byte, 0, len(body)+64)
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, `,"ack":`...)
	b = strconv.AppendUint(b, ack, 10)
	b = append(b, `,"frame":`...)
	b = append(b, body...)
	return append(b, '}')
}

// Ack returns the JSON object of a bare acknowledgement.
func Ack(n uint64) []byte { return number("ack", n) }

// Ping returns the JSON object of a ping.
func Ping(n uint64) []byte { return number("ping", n) }

func number(key string, n uint64) []byte {
	b := append([]byte(`{"`), key...)
	b = append(b, `":`...)
	b = strconv.AppendUint(b, n, 10)
	return append(b, '}')
}
