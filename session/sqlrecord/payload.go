package sqlrecord

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"soma/ident"
	"soma/session"
)

// MaxPayload is the size of a payload in bytes at most.
const MaxPayload = 16_384

// maxSteps is how often a payload that is too large is made smaller before its data is left out; maxComplaint is what is
// told of one that cannot be encoded, in characters.
const (
	maxSteps     = 8
	maxComplaint = 256
)

// reference is what is kept of a message.
type reference struct {
	ID        ident.ID     `json:"id,omitzero"`
	Role      session.Role `json:"role,omitempty"`
	Sender    string       `json:"sender,omitempty"`
	Recipient string       `json:"recipient,omitempty"`
}

// Payload is the JSON of what a signal carries, at most MaxPayload bytes. The envelope's own fields are not in it. A signal
// without fields of its own becomes its data; one with fields becomes these, with the data as "payload". Of a message that
// was added only {"message_ref": …} is kept. What has no JSON form is written as text. A larger payload becomes
// {"truncated": true, "original_bytes": n, "data": its beginning as text}, and what cannot be encoded at all
// {"sanitize_error": why}.
func Payload(s session.Signal) (payload []byte) {
	defer func() {
		if v := recover(); v != nil {
			payload = complaint(fmt.Sprintf("%T: %v", s, v))
		}
	}()
	encoded, err := json.Marshal(content(s))
	if err != nil {
		return complaint(fmt.Sprintf("%T: %v", s, err))
	}
	return fit(encoded)
}

func complaint(text string) []byte {
	if runes := []rune(text); len(runes) > maxComplaint {
		text = string(runes[:maxComplaint])
	}
	encoded, _ := json.Marshal(map[string]string{"sanitize_error": text})
	return encoded
}

// content is what is encoded.
func content(s session.Signal) any {
	data := s.Meta().Data
	fields := fieldsOf(s)
	switch s := s.(type) {
	case session.MessageAdded:
		fields["message_ref"] = referTo(s.Data)
		return fields
	case *session.MessageAdded:
		fields["message_ref"] = referTo(s.Data)
		return fields
	}
	switch {
	case len(fields) == 0:
		return encodable(data)
	case data != nil:
		fields["payload"] = encodable(data)
	}
	return fields
}

func referTo(data any) reference {
	switch m := data.(type) {
	case session.Message:
		return reference{m.ID, m.Role, m.Sender, m.Recipient}
	case *session.Message:
		return reference{m.ID, m.Role, m.Sender, m.Recipient}
	}
	return reference{}
}

// fieldsOf returns what a signal has beside its envelope, whose fields have no JSON form.
func fieldsOf(s session.Signal) map[string]any {
	if _, ok := s.(session.Wrapped); ok {
		return nil
	}
	switch own := encodable(s).(type) {
	case map[string]any:
		return own
	case json.RawMessage:
		var fields map[string]json.RawMessage
		if json.Unmarshal(own, &fields) == nil {
			out := make(map[string]any, len(fields)+1)
			for name, value := range fields {
				out[name] = value
			}
			return out
		}
		return map[string]any{"signal": own} // one that writes itself as something else than an object
	default:
		return map[string]any{"signal": own}
	}
}

// fit makes encoded small enough.
func fit(encoded []byte) []byte {
	if len(encoded) <= MaxPayload {
		return encoded
	}
	type cut struct {
		Truncated bool   `json:"truncated"`
		Original  int    `json:"original_bytes"`
		Data      string `json:"data"`
	}
	small := cut{Truncated: true, Original: len(encoded)}
	empty, _ := json.Marshal(small)
	room := MaxPayload - len(empty)
	for range maxSteps {
		small.Data = prefix(string(encoded), room)
		if tried, err := json.Marshal(small); err == nil && len(tried) <= MaxPayload {
			return tried
		}
		room /= 2
	}
	return empty
}

// prefix is the longest beginning of a JSON text that takes no more than room bytes when it is escaped once more. Such a
// text has no control characters, so that only quotes and backslashes grow.
func prefix(text string, room int) string {
	for i, r := range text {
		size := utf8.RuneLen(r)
		if r == '"' || r == '\\' {
			size = 2
		}
		if room -= size; room < 0 {
			return text[:i]
		}
	}
	return text
}
