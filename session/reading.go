package session

import (
	"fmt"
	"slices"

	"soma/ident"
	"soma/message"
)

// Len is the number of messages, hidden ones too.
func (b *Branch) Len() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.messages.len()
}

// Messages returns a copy of all messages in order, hidden ones too. The first call on a clone works its copies out, which takes
// about a microsecond each; later calls do not.
func (b *Branch) Messages() []Message {
	b.mu.Lock()
	all := b.messages.all()
	list := slices.Clip(all)
	b.messages.shared = true
	b.mu.Unlock()
	return values(list)
}

// Visible returns a copy of the messages that a model sees, in order.
func (b *Branch) Visible() []Message {
	b.mu.Lock()
	list := slices.Clip(b.messages.seen())
	b.messages.shared = true
	b.mu.Unlock()
	return values(list)
}

func values(list []*Message) []Message {
	out := make([]Message, len(list))
	for i, m := range list {
		out[i] = *m
	}
	return out
}

// Message returns one message. The error wraps ErrNotFound.
func (b *Branch) Message(id ident.ID) (Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.messages.find(b.id, id)
	if !ok {
		return Message{}, fmt.Errorf("cannot read message %s: %w", id, ErrNotFound)
	}
	return *b.messages.all()[at], nil
}

// SetVisible hides all messages of the branch but these from models; their order stays that of the branch. Messages that
// are added later are seen. Nothing is deleted. The error wraps ErrNotFound for an id that the branch does not have;
// nothing has changed then.
func (b *Branch) SetVisible(ids ...ident.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	visible := make([]int, 0, len(ids))
	for _, id := range ids {
		at, ok := b.messages.find(b.id, id)
		if !ok {
			return fmt.Errorf("cannot show message %s: %w", id, ErrNotFound)
		}
		visible = append(visible, at)
	}
	slices.Sort(visible)
	b.messages.visible, b.messages.upTo = slices.Compact(visible), b.messages.len()
	return nil
}

// ShowAll ends what SetVisible began.
func (b *Branch) ShowAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages.visible, b.messages.upTo = nil, 0
}

// Conversation returns what a model sees in the form that providers take: the requests that follow an assistant message are
// its calls, and the responses follow as tool messages in the order of the calls. The error says where requests and
// responses do not pair, as when one of two is hidden.
func (b *Branch) Conversation() ([]message.Message, error) {
	return conversation(b.Visible())
}

func conversation(visible []Message) ([]message.Message, error) {
	var out []message.Message
	var calls []Message
	answers := map[ident.ID]Message{}
	flush := func() {
		if len(calls) == 0 {
			return
		}
		if n := len(out); n == 0 || out[n-1].Role != message.Assistant {
			out = append(out, message.Message{Role: message.Assistant})
		}
		asking := len(out) - 1
		for _, request := range calls {
			call := *request.Call
			if call.ID == "" {
				call.ID = request.ID.String()
			}
			out[asking].Calls = append(out[asking].Calls, call)
			if a, ok := answers[request.ID]; ok {
				out = append(out, message.Message{Role: message.Tool, Text: a.Text, CallID: call.ID, Status: a.Status, Result: a.Result})
				delete(answers, request.ID)
			}
		}
		calls = nil
	}
	for _, m := range visible {
		switch m.Role {
		case ActionRequest:
			calls = append(calls, m)
			continue
		case ActionResponse:
			answers[m.Request] = m
			continue
		}
		flush()
		switch m.Role {
		case System:
			out = append(out, message.Message{Role: message.System, Text: m.Text})
		case Instruction:
			out = append(out, message.Message{Role: message.User, Text: m.Text})
		case Assistant:
			out = append(out, message.Message{Role: message.Assistant, Text: m.Text, Opaque: m.Opaque})
		}
	}
	flush()
	for request := range answers {
		return nil, fmt.Errorf("cannot make a conversation: a response answers request %s, which is not before it", request)
	}
	if err := message.CheckPaired(out); err != nil {
		return nil, fmt.Errorf("cannot make a conversation: %w", err)
	}
	return out, nil
}
