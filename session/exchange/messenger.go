package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"soma/ident"
	"soma/session"
)

// ToolName is the name of the tool that Bind gives to a branch.
const ToolName = "messenger"

// The channels of letters that a messenger sends; Content is the text.
const (
	ChannelMessage  = "message"
	ChannelDone     = "done"
	ChannelFinished = "finished"
	ChannelWakeup   = "wakeup"
	ChannelFYI      = "help.fyi"
	ChannelBlocked  = "help.blocked"
)

// Messenger gives branches the tool by which a model sends and reads mail. Those who are bound to one messenger know of each other
// whether they are done or finished. It may be used from any goroutine.
type Messenger struct {
	exchange *Exchange

	mu     sync.Mutex // guards states
	states map[ident.ID]State
}

// NewMessenger makes a messenger that nobody is bound to. A session makes none.
func NewMessenger(x *Exchange) *Messenger {
	return &Messenger{exchange: x, states: map[ident.ID]State{}}
}

// State says whether an owner works. Who has never been bound, such as a person, works.
func (m *Messenger) State(owner ident.ID) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[owner]
}

// change moves an owner to its next state, if the table knows one.
func (m *Messenger) change(owner ident.ID, e event) (State, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, ok := m.states[owner].next(e)
	if ok {
		m.states[owner] = next
	}
	return next, ok
}

// Bind gives the branch the tool, under ToolName, and returns it. names are whom its model may name, the branch itself need not be
// among them. The branch needs a mailbox, which a member of a session with this exchange has. The others need theirs only when
// something is sent to them.
//
// What the tool sends is collected by whoever pumps the exchange, except for a blocked call for help: with that the tool collects
// from the branch itself, so that it can say whether anybody listens.
//
// Binding again replaces the names. The error wraps [session.ErrNotFound] for a branch without a mailbox, [session.ErrInvalid] for a
// nil branch, an empty name or a zero id.
func (m *Messenger) Bind(b *session.Branch, names map[string]ident.ID) (session.Tool, error) {
	if b == nil {
		return session.Tool{}, fmt.Errorf("cannot bind a messenger: %w branch: it is nil", session.ErrInvalid)
	}
	if !m.exchange.Has(b.ID()) {
		return session.Tool{}, fmt.Errorf("cannot bind a messenger: a mailbox of branch %s is %w", b.ID(), session.ErrNotFound)
	}
	d := &desk{messenger: m, owner: b.ID(), names: maps.Clone(names), known: map[ident.ID]string{}}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		id := names[name]
		if name == "" || id.IsZero() {
			return session.Tool{}, fmt.Errorf("cannot bind a messenger: %w name %q for %q", session.ErrInvalid, name, id)
		}
		if d.known[id] == "" {
			d.known[id] = name
		}
	}
	tool := session.Tool{
		Name: ToolName, Schema: json.RawMessage(schema), Run: d.run,
		Description: "Send mail to your peers and read what has come from them. send: a text to one or several names. receive: what has arrived, " +
			"each letter once. done: you have done your part and can be woken up. finished: you will not work again. wakeup: somebody who " +
			"is done goes on. help: fyi only informs, blocked says that you cannot go on; you are told if nobody listens.",
	}
	return tool, b.SetTool(tool)
}

const schema = `{
  "type": "object",
  "properties": {
    "action": {"enum": ["send", "receive", "done", "finished", "wakeup", "help"]},
    "to": {"description": "one name or several; send and wakeup need it, for the others everybody is meant without it",
           "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "from": {"description": "receive only from these", "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "text": {"type": "string"},
    "level": {"description": "of help", "enum": ["fyi", "blocked"]}
  },
  "required": ["action"],
  "additionalProperties": false
}`

// request is what a model asks of the tool.
type request struct {
	Action string `json:"action"`
	To     names  `json:"to"`
	From   names  `json:"from"`
	Text   string `json:"text"`
	Level  string `json:"level"`
}

// names are one name or several.
type names []string

func (n *names) UnmarshalJSON(text []byte) error {
	if string(text) == "null" { // no names, as if the field were absent; it would pass for a text below
		return nil
	}
	var one string
	if json.Unmarshal(text, &one) == nil {
		*n = names{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(n))
}

// Sent is what the tool returns for everything but receive.
type Sent struct {
	// To are the names of those for whom a letter is queued; with a blocked call for help, who has got it or will.
	To []string `json:"to"`
	// Refused says of each other name why nothing was sent.
	Refused map[string]string `json:"refused,omitempty"`
	// State is that of the branch afterwards.
	State string `json:"state"`
}

// Read is a letter as the tool returns it from receive.
type Read struct {
	From    string `json:"from"`
	Channel string `json:"channel,omitempty"`
	Content any    `json:"content"`
	Time    string `json:"time"`
}

// desk is the tool of one branch.
type desk struct {
	messenger *Messenger
	owner     ident.ID
	names     map[string]ident.ID
	known     map[ident.ID]string
}

func (d *desk) run(_ context.Context, arguments json.RawMessage) (any, error) {
	var r request
	if err := json.Unmarshal(arguments, &r); err != nil {
		return nil, fmt.Errorf("cannot read the arguments: %w", err)
	}
	switch r.Action {
	case "send":
		return d.send(r, ChannelMessage)
	case "receive":
		return d.receive(r.From)
	case "done":
		return d.leave(r, done, ChannelDone)
	case "finished":
		return d.leave(r, finished, ChannelFinished)
	case "wakeup":
		return d.send(r, ChannelWakeup)
	case "help":
		return d.help(r)
	}
	return nil, fmt.Errorf("%w action %q: it is one of send, receive, done, finished, wakeup, help", session.ErrInvalid, r.Action)
}
