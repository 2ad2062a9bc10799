package exchange_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/message"
	"soma/session"
	"soma/session/exchange"
)

// office is a session whose branches are bound to one messenger, and a person without one.
type office struct {
	x        *exchange.Exchange
	m        *exchange.Messenger
	s        *session.Session
	names    map[string]ident.ID
	branches map[string]*session.Branch
}

func newOffice(t *testing.T, bound int, names ...string) *office {
	t.Helper()
	x := exchange.New(exchange.Options{Bound: bound})
	s, err := session.New(session.Options{Mail: x})
	ok(t, err)
	o := &office{x: x, m: exchange.NewMessenger(x), s: s, names: map[string]ident.ID{}, branches: map[string]*session.Branch{}}
	for _, name := range names {
		b, err := s.NewBranch(session.BranchOptions{Name: name})
		ok(t, err)
		o.names[name], o.branches[name] = b.ID(), b
	}
	person := ident.New(time.Now())
	ok(t, s.RegisterParticipant(person))
	o.names["person"] = person
	for _, b := range o.branches {
		_, err := o.m.Bind(b, o.names)
		ok(t, err)
	}
	return o
}

// call lets a branch use its tool, as a model would, and returns what the model reads.
func (o *office) call(t *testing.T, who, arguments string) (message.CallStatus, string) {
	t.Helper()
	m, err := o.branches[who].Act(t.Context(), message.Call{Tool: exchange.ToolName, Arguments: json.RawMessage(arguments)})
	ok(t, err)
	return m.Status, m.Text
}

func (o *office) does(t *testing.T, who, arguments, want string) {
	t.Helper()
	status, text := o.call(t, who, arguments)
	if status != message.OK || !strings.Contains(text, want) {
		t.Fatalf("%s %s: %s %s, want %s", who, arguments, status, text, want)
	}
}

func (o *office) fails(t *testing.T, who, arguments, want string) {
	t.Helper()
	status, text := o.call(t, who, arguments)
	if status == message.OK || !strings.Contains(text, want) {
		t.Fatalf("%s %s: %s %s, want an error with %s", who, arguments, status, text, want)
	}
}

func (o *office) pump(t *testing.T) {
	t.Helper()
	_, err := o.s.Sync(t.Context())
	ok(t, err)
}

// S-46
func TestMessengerSendsAndReceives(t *testing.T) {
	o := newOffice(t, 0, "ann", "bob", "cy")
	o.does(t, "ann", `{"action":"send","to":"bob","text":"one"}`, `"to":["bob"]`)
	o.does(t, "ann", `{"action":"send","to":["bob","cy","dan","bob"],"text":"two"}`, `"to":["bob","cy"],"refused":{"dan":"unknown name`)
	o.does(t, "bob", `{"action":"receive"}`, `[]`)
	o.pump(t)
	o.does(t, "cy", `{"action":"send","to":"bob","text":"three"}`, `"state":"working"`)
	o.pump(t)
	o.fails(t, "bob", `{"action":"receive","from":"dan"}`, `known are ann, bob, cy, person`)
	status, text := o.call(t, "bob", `{"action":"receive","from":["ann"]}`)
	if status != message.OK || strings.Count(text, `"from":"ann"`) != 2 || strings.Index(text, "one") > strings.Index(text, "two") {
		t.Fatalf("bob reads %s", text)
	}
	o.does(t, "bob", `{"action":"receive"}`, `"from":"cy","channel":"message","content":"three"`)
	o.does(t, "bob", `{"action":"receive"}`, `[]`)

	stranger := ident.New(time.Now())
	ok(t, o.x.Register(stranger))
	_, err := o.x.Send(stranger, o.names["bob"], map[string]int{"n": 1}, "")
	ok(t, err)
	o.pump(t)
	o.does(t, "bob", `{"action":"receive"}`, `"from":"`+stranger.String()+`","content":{"n":1}`)

	for arguments, want := range map[string]string{
		`{"action":"send","text":"x"}`:          "needs a name",
		`{"action":"send","to":[]}`:             "needs a name",
		`{"action":"send","to":"dan"}`:          "unknown name",
		`{"action":"sing"}`:                     "it is one of send",
		`{"action":"send","to":7}`:              "cannot read the arguments",
		`{"action":"help","level":"desperate"}`: "fyi or blocked",
	} {
		o.fails(t, "ann", arguments, want)
	}
}

// S-46: done can be woken up, finished cannot, and those bound to the same messenger see it.
func TestMessengerStates(t *testing.T) {
	o := newOffice(t, 0, "ann", "bob")
	bob := o.names["bob"]
	o.does(t, "bob", `{"action":"done","to":null,"text":"my part"}`, `"to":["ann","person"],"state":"done"`)
	equal(t, "bob", o.m.State(bob), exchange.Done)
	o.pump(t)
	o.does(t, "ann", `{"action":"receive"}`, `"channel":"done","content":"my part"`)
	o.fails(t, "ann", `{"action":"wakeup","text":"nobody"}`, "needs a name")
	o.does(t, "ann", `{"action":"wakeup","to":"bob","text":"more"}`, `"to":["bob"]`)
	equal(t, "bob", o.m.State(bob), exchange.Working)
	o.pump(t)
	o.does(t, "bob", `{"action":"receive"}`, `"channel":"wakeup","content":"more"`)
	o.does(t, "bob", `{"action":"done","to":"ann"}`, `"to":["ann"]`)
	o.does(t, "bob", `{"action":"help","text":"look"}`, `"state":"working"`)
	o.does(t, "bob", `{"action":"finished"}`, `"state":"finished"`)
	o.fails(t, "ann", `{"action":"wakeup","to":"bob"}`, "bob has finished")
	o.fails(t, "ann", `{"action":"send","to":"bob"}`, "bob has finished")
	for _, arguments := range []string{`{"action":"done"}`, `{"action":"send","to":"ann"}`, `{"action":"help"}`} {
		o.fails(t, "bob", arguments, "has finished")
	}
	equal(t, "bob", o.m.State(bob).String(), "finished")
	equal(t, "a person", o.m.State(o.names["person"]), exchange.Working)
}

// S-46: who is blocked is told if nobody listens; else the call has arrived when the tool returns.
func TestMessengerHelp(t *testing.T) {
	o := newOffice(t, 1, "ann", "bob")
	o.does(t, "ann", `{"action":"help","level":"fyi","to":"bob","text":"look"}`, `"to":["bob"]`)
	equal(t, "fyi waits for the pump", len(o.x.Receive(o.names["bob"])), 0)
	o.pump(t)
	o.does(t, "bob", `{"action":"receive"}`, `"channel":"help.fyi"`)

	o.does(t, "ann", `{"action":"help","level":"blocked","to":"bob","text":"no key"}`, `"to":["bob"]`)
	equal(t, "blocked has arrived", contents(o.x.Receive(o.names["bob"])), "no key")
	o.does(t, "ann", `{"action":"help","level":"blocked","to":"bob","text":"still none"}`, `"to":["bob"]`)
	equal(t, "a full inbox keeps it", len(o.x.Pending(o.names["ann"])), 1)
	o.fails(t, "ann", `{"action":"help","level":"blocked","to":"bob"}`, "mailbox is full")
	o.does(t, "bob", `{"action":"receive"}`, `no key`)
	o.pump(t)
	o.does(t, "bob", `{"action":"receive"}`, `still none`)

	o.does(t, "bob", `{"action":"finished"}`, `finished`)
	o.pump(t)
	o.x.Unregister(o.names["person"])
	o.fails(t, "ann", `{"action":"help","level":"blocked","text":"alone"}`, "nobody listens, and the call for help was not kept: bob has finished; person has no mailbox")
	alone := newOffice(t, 0, "ann")
	_, err := alone.m.Bind(alone.branches["ann"], nil)
	ok(t, err)
	alone.fails(t, "ann", `{"action":"help","level":"blocked"}`, "nobody listens")
	equal(t, "nothing was sent", alone.x.Dropped(), 0)
}

// S-48
func TestBind(t *testing.T) {
	x := exchange.New(exchange.Options{})
	s, err := session.New(session.Options{Mail: x})
	ok(t, err)
	equal(t, "tools of a session's branch", len(s.Default().Tools()), 0)
	m := exchange.NewMessenger(x)
	equal(t, "an unbound messenger", len(s.Default().Tools()), 0)
	tool, err := m.Bind(s.Default(), map[string]ident.ID{"me": s.Default().ID()})
	ok(t, err)
	tools := s.Default().Tools()
	if len(tools) != 1 || tools[0].Name != tool.Name || !json.Valid(tool.Schema) || tool.Description == "" {
		t.Fatalf("bound: %+v", tools)
	}
	free, err := session.NewBranch(session.BranchOptions{})
	ok(t, err)
	_, err = m.Bind(free, nil)
	wants(t, err, session.ErrNotFound)
	_, err = m.Bind(nil, nil)
	wants(t, err, session.ErrInvalid)
	_, err = m.Bind(s.Default(), map[string]ident.ID{"nobody": {}})
	wants(t, err, session.ErrInvalid)
	_, err = m.Bind(s.Default(), map[string]ident.ID{"": free.ID()})
	wants(t, err, session.ErrInvalid)
}

// S-46: a listener that leaves while the call for help is on its way has not heard it.
func TestListenerLeaves(t *testing.T) {
	var leaves func()
	x := exchange.New(exchange.Options{Now: func() time.Time {
		if leaves != nil {
			leaves()
		}
		return time.Now()
	}})
	s, err := session.New(session.Options{Mail: x})
	ok(t, err)
	person := ident.New(time.Now())
	ok(t, x.Register(person))
	_, err = exchange.NewMessenger(x).Bind(s.Default(), map[string]ident.ID{"person": person})
	ok(t, err)
	leaves = func() { x.Unregister(person) } // the letter is stamped after it has been seen that the person is there
	m, err := s.Default().Act(t.Context(), message.Call{Tool: exchange.ToolName, Arguments: json.RawMessage(`{"action":"help","level":"blocked"}`)})
	ok(t, err)
	if m.Status == message.OK || !strings.Contains(m.Text, "nobody listens, and the call for help was not kept: person has left") {
		t.Fatalf("the answer is %s %s", m.Status, m.Text)
	}
	equal(t, "lost", x.Dropped(), 1)
}
