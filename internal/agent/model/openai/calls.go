package openai

import (
	"encoding/json"
	"fmt"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/message"
)

// calls puts tool calls together from their fragments.
type calls struct {
	open []*openCall
	size int
}

type openCall struct {
	index    int
	indexed  bool
	id, name string
	args     []byte
}

// add takes one fragment. Servers leave out the index, give every call the same one, repeat id and name in each fragment,
// or send a call whole; an id that is new together with a name always begins a new call.
func (c *calls) add(d callDelta) {
	call := c.find(d)
	if call == nil {
		call = &openCall{id: string(d.ID)}
		if d.Index != nil {
			call.index, call.indexed = *d.Index, true
		}
		c.open = append(c.open, call)
	}
	if call.id == "" {
		call.id = string(d.ID)
	}
	if call.name == "" {
		call.name = string(d.Function.Name)
		c.size += len(call.name)
	}
	if len(call.args) <= tool.MaxArguments { // one fragment more shows that it is too long
		call.args = append(call.args, d.Function.Arguments...)
		c.size += len(d.Function.Arguments)
	}
}

func (c *calls) find(d callDelta) *openCall {
	named := d.Function.Name != ""
	for i := len(c.open) - 1; i >= 0; i-- {
		call := c.open[i]
		indexed := d.Index != nil && call.indexed
		switch {
		case indexed && call.index != *d.Index:
			continue
		case d.ID != "" && call.id == string(d.ID):
			return call
		case !indexed && (d.Index != nil || i < len(c.open)-1):
			continue
		case named && d.ID != "" && call.id != "",
			named && call.name != "" && call.name != string(d.Function.Name),
			named && d.Function.Arguments != "" && call.whole():
			return nil
		}
		return call
	}
	return nil
}

// whole reports whether the arguments are complete, so that what follows belongs to another call.
func (c *openCall) whole() bool {
	return len(c.args) > 0 && c.args[len(c.args)-1] == '}' && json.Valid(c.args)
}

// done returns the calls in the order in which they began, each with an id that is unique among them.
func (c *calls) done() []message.Call {
	var out []message.Call
	seen := map[string]bool{}
	for i, call := range c.open {
		id := call.id
		for n := i; id == "" || len(id) > model.MaxCallID || seen[id]; n++ {
			id = fmt.Sprintf("call_%d", n)
		}
		seen[id] = true
		out = append(out, tool.ParseCall(id, call.name, string(call.args)))
	}
	return out
}
