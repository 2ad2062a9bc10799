package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/frame"
)

// maxReply bounds a reply, so that its frame fits with its envelope.
const maxReply = pykernel.MaxFrame / 2

// maxCalls bounds the host calls of one python kernel that run at once.
const maxCalls = 64

// called takes a host call: it is acknowledged when it is in the inbox, and runs afterwards. One that came before is
// running, or its reply is in the outbox.
func (k *kernel) called(ctx context.Context, seq uint64, c *frame.Call) {
	if !named(c.ID) || len(c.Cell) > maxName {
		k.log().Warn("a host call is dropped: its id is no name", "method", firstBytes(c.Method, maxName))
		k.link.Settle(seq)
		return
	}
	k.begunBy(c.Cell)
	item := pykernel.CallItem(c.ID)
	k.known(item, seq)
	k.mu.Lock()
	begun := k.begun[c.ID]
	answered := false
	for _, id := range k.reply {
		answered = answered || id == c.ID
	}
	again := k.calls[c.ID] || answered
	running := len(k.calls)
	if !again {
		k.calls[c.ID] = true
		delete(k.begun, c.ID)
	}
	k.mu.Unlock()
	if again {
		k.link.Settle(seq)
		return
	}
	if !begun {
		now := k.s.opt.Now()
		if !k.write(ctx, "a host call", &pykernel.InboxItem{Kernel: k.id, Item: item, At: now},
			&pykernel.StartCall{Kernel: k.id, ID: c.ID, Method: firstBytes(c.Method, maxName), At: now}) {
			return
		}
		k.noteItem(item, seq)
	}
	k.link.Settle(seq)
	k.spawn(ctx, "host call", func(ctx context.Context) error {
		k.answer(ctx, c, k.route(ctx, c, begun, running))
		return nil
	})
}

// route finds the reply of a host call. begun says that an earlier daemon began it.
func (k *kernel) route(ctx context.Context, c *frame.Call, begun bool, running int) pykernel.Reply {
	host := k.s.opt.Host
	switch {
	case c.Method == "" || c.Args == nil:
		return refuse(c.ID, "invalid", "invalid host request")
	case running >= maxCalls:
		return refuse(c.ID, "busy", fmt.Sprintf("%d host calls of this python kernel are running", running))
	case host == nil:
		return refuse(c.ID, "not_found", fmt.Sprintf("no host call %q", c.Method))
	case begun && host.Policy(c.Method) != neuron.Idempotent:
		return refuse(c.ID, "unknown", "result unknown: the daemon ended while the call ran")
	}
	value, failure := k.ask(ctx, host, c)
	if failure != nil {
		return refuse(c.ID, failure.Code, failure.Message)
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	return pykernel.Reply{Type: pykernel.FrameReply, Call: c.ID, OK: true, Value: value}
}

// ask calls the host; a panic there is its answer, so that no cell waits for one that never comes.
func (k *kernel) ask(ctx context.Context, host Host, c *frame.Call) (value json.RawMessage, failure *pykernel.CallError) {
	defer func() {
		if v := recover(); v != nil {
			k.log().Error("host call panicked", "method", c.Method, "call", c.ID, "panic", v, "stack", string(debug.Stack()))
			value, failure = nil, &pykernel.CallError{Code: "internal", Message: fmt.Sprintf("%s panicked", c.Method)}
		}
	}()
	return host.Call(ctx, Call{Kernel: k.id, Session: k.session, Branch: k.branch, Owner: k.owner, ID: c.ID, Cell: c.Cell, Method: c.Method, Args: c.Args})
}

func refuse(call, code, message string) pykernel.Reply {
	return pykernel.Reply{Type: pykernel.FrameReply, Call: call, Error: &pykernel.CallError{Code: code, Message: message}}
}

// answer commits the reply with its frame. A call whose context ended with the daemon is left to the next one.
func (k *kernel) answer(ctx context.Context, c *frame.Call, r pykernel.Reply) {
	if ctx.Err() != nil {
		return
	}
	ok := k.persist(ctx, "the reply of a host call", func(ctx context.Context) error {
		f, err := pykernel.NewFrame(k.id, c.Cell, r, k.s.opt.Now())
		switch {
		case err == nil && len(f.Body) > maxReply:
			f, err = pykernel.NewFrame(k.id, c.Cell, refuse(c.ID, "too_large", fmt.Sprintf("the reply has more than %d bytes", maxReply)), k.s.opt.Now())
		case err != nil: // the host's value is no JSON
			f, err = pykernel.NewFrame(k.id, c.Cell, refuse(c.ID, "internal", "the reply cannot be encoded"), k.s.opt.Now())
		}
		if err != nil {
			return err
		}
		ops, forget := k.riders()
		err = k.s.opt.Neurons.Write(ctx, k.place, append(ops, f, &pykernel.AnswerCall{Kernel: k.id, ID: c.ID, Reply: f})...)
		if err == nil {
			forget()
		}
		return err
	})
	if ok || ctx.Err() == nil {
		k.mu.Lock()
		delete(k.calls, c.ID)
		k.mu.Unlock()
	}
}
