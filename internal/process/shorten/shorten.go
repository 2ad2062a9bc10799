package shorten

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"soma/message"
	"soma/wire"
)

// Event returns the JSON of an event's body, with its long texts cut where it would be longer than wire.MaxEvent.
func Event(body any) []byte {
	b := JSON(body)
	if len(b) > wire.MaxEvent {
		b = JSON(cut(body))
	}
	return b
}

// JSON writes values of the process rooms and of wire, which hold nothing that cannot be encoded. Unlike json.Marshal it leaves
// <, > and & as they are: code is full of them.
func JSON(v any) []byte {
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
	MaxText     = 8 << 10 // of a text that is a part of an event
)

// cut shortens the long texts of an event's body.
func cut(body any) any {
	switch e := body.(type) {
	case wire.InputEvent:
		e.Text, e.Line, e.Cut = Text(e.Text, cutMessages), Text(e.Line, MaxText), true
		return e
	case wire.StepStartedEvent:
		short := make([]wire.Message, len(e.Messages))
		for i, m := range e.Messages {
			short[i] = cutMessage(m, (wire.MaxEvent-MaxText)/len(e.Messages)-cutEnvelope)
		}
		e.Messages = short
		return e
	case wire.StepEndedEvent:
		e.Message = cutMessage(e.Message, cutMessages)
		return e
	case wire.ToolResultEvent:
		e.Output, e.Tail = Text(e.Output, cutOutput), clipFront(e.Tail, MaxText)
		e.Value, e.Error, e.Note = clipValue(e.Value), Text(e.Error, MaxText), Text(e.Note, MaxText)
		e.Shown = cutShown(e.Shown)
		return e
	case wire.CellEvent:
		e.Output, e.Tail = Text(e.Output, cutOutput), clipFront(e.Tail, MaxText)
		c := &e.Cell
		c.Code, c.Value, c.Note = Text(c.Code, MaxText), clipValue(c.Value), Text(c.Note, MaxText)
		c.Calls, c.Shown = cutList(c.Calls, 32, 48), cutShown(c.Shown)
		if c.Error != nil {
			c.Error = &wire.CellFault{Type: Text(c.Error.Type, 256), Message: Text(c.Error.Message, MaxText/4), Traceback: Text(c.Error.Traceback, MaxText)}
		}
		return e
	}
	return body
}

// cutShown keeps little of what stands beside an output: the cell's row has it.
func cutShown(s wire.Shown) wire.Shown {
	s.ImageErrors, s.Repair = cutList(s.ImageErrors, 4, 256), Text(s.Repair, 1<<10)
	images := slices.Clone(s.Images[:min(len(s.Images), 4)])
	for i := range images {
		images[i].Name, images[i].Media = Text(images[i].Name, 128), Text(images[i].Media, 32)
	}
	s.Images = images
	return s
}

func cutList(list []string, n, room int) []string {
	list = slices.Clone(list[:min(len(list), n)])
	for i := range list {
		list[i] = Text(list[i], room)
	}
	return list
}

// cutMessage returns the beginning of a message that is longer than room: its text, and its calls in a form that is still
// valid.
func cutMessage(m wire.Message, room int) wire.Message {
	if m.Line != "" {
		m.Line = Text(m.Line, MaxText/2)
		room -= MaxText/2 + len(`"line":"",`)
	}
	if len(JSON(m.Message)) <= room {
		return m
	}
	c := m.Message
	m.Cut = true
	m.Message = message.Message{Role: c.Role, CallID: c.CallID, Status: c.Status}
	if n := len(c.Calls); n > 0 {
		share := max(0, room/4*3/n-cutCall) / 2
		for _, call := range c.Calls {
			call.Tool, call.Malformed = Text(call.Tool, 64), Text(call.Malformed, share)
			call.Arguments = cutArguments(call.Arguments, share)
			m.Message.Calls = append(m.Message.Calls, call)
		}
		room -= len(JSON(m.Message.Calls))
	}
	m.Message.Text = Text(c.Text, max(0, room))
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
	a.Code = Text(a.Code, room)
	return JSON(a)
}

func clipValue(v *string) *string {
	if v == nil {
		return nil
	}
	s := Text(*v, MaxText)
	return &s
}

// Text returns the longest beginning of s whose JSON form has at most room bytes.
func Text(s string, room int) string {
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
