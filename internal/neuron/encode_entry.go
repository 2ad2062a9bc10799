package neuron

import (
	"encoding/json"
	"strconv"
)

// appendEntry appends an entry as encoding/json writes it, payloads as they are. Every turn writes one entry at least, and
// the reflection of encoding/json was a tenth of its cost.
func appendEntry(b []byte, e *Entry) ([]byte, error) {
	b, err := AppendDelivery(b, &e.Delivery)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1] // the fields of the entry follow in the same object
	if e.Settled != "" {
		b = AppendText(append(b, `,"settled":`...), string(e.Settled))
	}
	if e.Attempts != 0 {
		b = strconv.AppendInt(append(b, `,"attempts":`...), int64(e.Attempts), 10)
	}
	if !e.Handled.IsZero() {
		handled, err := e.Handled.MarshalText()
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, `,"handled":"`...), handled...), '"')
	}
	if e.Ended != nil {
		ended, err := json.Marshal(e.Ended)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"ended":`...), ended...)
	}
	if e.Emitted != nil {
		b = append(strconv.AppendInt(append(b, `,"emitted":{"receivers":`...), int64(e.Emitted.Receivers), 10), '}')
	}
	return append(b, '}'), nil
}

// EncodeEntry returns one entry.
func EncodeEntry(e *Entry) ([]byte, error) {
	return appendEntry(make([]byte, 0, 384+len(e.Payload)), e)
}

// EncodeEntries returns a JSON array.
func EncodeEntries(list []Entry) ([]byte, error) {
	size := 2
	for i := range list {
		size += 400 + len(list[i].Payload)
	}
	b := append(make([]byte, 0, size), '[')
	var err error
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendEntry(b, &list[i]); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}
