package process

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/neuron"
	"soma/message"
	"soma/wire"
)

// emit stages one event of a session.
func emit(t *neuron.Turn, session string, pid ident.PID, kind string, body any) {
	t.Write(newEvent(session, pid, kind, body, t.Now()))
}

func newEvent(session string, pid ident.PID, kind string, body any, at time.Time) *Event {
	b := encode(body)
	if len(b) > wire.MaxEvent {
		b = encode(cut(body))
	}
	return &Event{Event: wire.Event{Session: session, PID: uint64(pid), Kind: kind, At: at, Body: b}}
}

// encode writes values of this room and of wire, which hold nothing that cannot be encoded. Unlike json.Marshal it leaves
// <, > and & as they are: code is full of them.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Sizes in bytes of JSON that cut events keep to, so that all parts of the largest one stay below wire.MaxEvent.
const (
	cutMessages = 48 << 10 // of the messages of one event
	cutEnvelope = 160      // of a message without its content
	cutCall     = 220      // of a call without its arguments
	cutOutput   = 16 << 10
	cutText     = 8 << 10
)

// cut shortens the long texts of an event's body.
func cut(body any) any {
	switch e := body.(type) {
	case wire.InputEvent:
		e.Text, e.Cut = clip(e.Text, cutMessages), true
		return e
	case wire.StepStartedEvent:
		short := make([]wire.Message, len(e.Messages))
		for i, m := range e.Messages {
			short[i] = cutMessage(m, (wire.MaxEvent-cutText)/len(e.Messages)-cutEnvelope)
		}
		e.Messages = short
		return e
	case wire.StepEndedEvent:
		e.Message = cutMessage(e.Message, cutMessages)
		return e
	case wire.ToolResultEvent:
		e.Output, e.Tail = clip(e.Output, cutOutput), clipFront(e.Tail, cutText)
		e.Value, e.Error, e.Note = clipValue(e.Value), clip(e.Error, cutText), clip(e.Note, cutText)
		return e
	case wire.CellEvent:
		e.Output, e.Tail = clip(e.Output, cutOutput), clipFront(e.Tail, cutText)
		c := &e.Cell
		c.Code, c.Value, c.Note = clip(c.Code, cutText), clipValue(c.Value), clip(c.Note, cutText)
		if c.Error != nil {
			c.Error = &wire.CellFault{Type: clip(c.Error.Type, 256), Message: clip(c.Error.Message, cutText/4), Traceback: clip(c.Error.Traceback, cutText)}
		}
		return e
	}
	return body
}

// cutMessage returns the beginning of a message that is longer than room: its text, and its calls in a form that is still
// valid.
func cutMessage(m wire.Message, room int) wire.Message {
	if len(encode(m.Message)) <= room {
		return m
	}
	c := m.Message
	m.Cut = true
	m.Message = message.Message{Role: c.Role, CallID: c.CallID, Status: c.Status}
	if n := len(c.Calls); n > 0 {
		share := max(0, room/4*3/n-cutCall) / 2
		for _, call := range c.Calls {
			call.Tool, call.Malformed = clip(call.Tool, 64), clip(call.Malformed, share)
			call.Arguments = cutArguments(call.Arguments, share)
			m.Message.Calls = append(m.Message.Calls, call)
		}
		room -= len(encode(m.Message.Calls))
	}
	m.Message.Text = clip(c.Text, room)
	return m
}

func cutArguments(b json.RawMessage, room int) json.RawMessage {
	if len(b) <= room {
		return b
	}
	var a struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(b, &a); err != nil || a.Code == "" {
		return json.RawMessage("{}")
	}
	a.Code = clip(a.Code, room)
	return encode(a)
}

func clipValue(v *string) *string {
	if v == nil {
		return nil
	}
	s := clip(*v, cutText)
	return &s
}

// clip returns the longest beginning of s whose JSON form has at most room bytes.
func clip(s string, room int) string {
	if 6*len(s) <= room {
		return s
	}
	for i, c := range s {
		if room -= jsonSize(c); room < 0 {
			return s[:i]
		}
	}
	return s
}

// clipFront returns the longest end of s whose JSON form has at most room bytes.
func clipFront(s string, room int) string {
	from := len(s)
	for from > 0 {
		c, n := utf8.DecodeLastRuneInString(s[:from])
		if room -= jsonSize(c); room < 0 {
			break
		}
		from -= n
	}
	return s[from:]
}

// jsonSize is the most bytes that a character takes within a JSON text.
func jsonSize(c rune) int {
	switch {
	case c == '"', c == '\\':
		return 2
	case c < 0x20, c == 0x7f, c == '\u2028', c == '\u2029', c == utf8.RuneError:
		return 6
	}
	return utf8.RuneLen(c)
}
