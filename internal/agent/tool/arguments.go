package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"soma/message"
)

// MaxArguments bounds the text of one call's arguments, in bytes.
const MaxArguments = 1 << 20

// ParseCall makes a call from what a provider streamed: its id, the tool's name and the arguments as the model wrote them.
// Empty text means {}, which Check refuses for a tool with required fields. Anything but one JSON value gives {} with
// Malformed saying where it went wrong, so that what goes back to the provider is always valid JSON (K-11).
func ParseCall(id, name, text string) message.Call {
	c := message.Call{ID: id, Tool: name, Arguments: json.RawMessage("{}")}
	if len(text) > MaxArguments {
		c.Malformed = fmt.Sprintf("its arguments have %d bytes, the limit is %d", len(text), MaxArguments)
		return c
	}
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if text == "" {
		return c
	}
	dec := json.NewDecoder(strings.NewReader(text))
	var first json.RawMessage
	if err := dec.Decode(&first); err != nil {
		c.Malformed = where(text, err)
		return c
	}
	end := int(dec.InputOffset())
	if rest := strings.TrimLeft(text[end:], " \t\r\n"); rest != "" {
		at := len(text) - len(rest)
		if json.Valid([]byte(rest)) || strings.HasPrefix(rest, "{") {
			c.Malformed = fmt.Sprintf("its arguments hold more than one JSON value: the second begins at byte %d, at %s; make one call for each", at, excerpt(text, at))
		} else {
			c.Malformed = fmt.Sprintf("its arguments go on after the end of the JSON value, at byte %d, at %s", at, excerpt(text, at))
		}
		return c
	}
	c.Arguments = first
	return c
}

func where(text string, err error) string {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("its arguments break off at byte %d, after %s: they were cut before the JSON value ended", len(text), excerpt(text, len(text)-24))
	case errors.As(err, &syntax):
		at := max(int(syntax.Offset)-1, 0)
		return fmt.Sprintf("its arguments are no JSON from byte %d on, at %s: %v", at, excerpt(text, at), err)
	}
	return "its arguments are no JSON: " + err.Error()
}

// excerpt quotes some characters of text from byte at on.
func excerpt(text string, at int) string {
	at = min(max(at, 0), len(text))
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return fmt.Sprintf("%.24q", text[at:])
}
