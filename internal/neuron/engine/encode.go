package engine

import (
	"encoding/json"
	"strconv"

	"soma/ident"
	"soma/internal/neuron"
)

// appendEntry appends an entry as encoding/json writes it, payloads as they are. Every turn writes one entry at least, and
// the reflection of encoding/json was a tenth of its cost.
func appendEntry(b []byte, e *neuron.Entry) ([]byte, error) {
	d := &e.Delivery
	b = appendID(append(b, `{"id":`...), d.ID)
	b = appendText(append(b, `,"alias":`...), d.Alias)
	if len(d.Payload) > 0 {
		b = append(append(b, `,"payload":`...), d.Payload...)
	}
	if !d.Content.IsZero() {
		b = appendID(append(b, `,"content":`...), d.Content)
	}
	if !d.Caller.IsZero() {
		b = appendText(append(b, `,"caller":`...), d.Caller.String())
	}
	b = appendText(append(b, `,"target":`...), d.Target.String())
	if !d.Via.IsZero() {
		b = appendID(append(b, `,"via":`...), d.Via)
	}
	if !d.Correlation.IsZero() {
		b = appendID(append(b, `,"correlation":`...), d.Correlation)
	}
	if !d.Causation.IsZero() {
		b = appendID(append(b, `,"causation":`...), d.Causation)
	}
	if d.Seq != 0 {
		b = strconv.AppendUint(append(b, `,"seq":`...), d.Seq, 10)
	}
	if d.Depth != 0 {
		b = strconv.AppendInt(append(b, `,"depth":`...), int64(d.Depth), 10)
	}
	at, err := d.At.MarshalText() // refuses what RFC 3339 cannot say
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `,"at":"`...), at...), '"')
	if d.Lane != 0 {
		b = strconv.AppendUint(append(b, `,"lane":`...), uint64(d.Lane), 10)
	}
	if d.Key != "" {
		b = appendText(append(b, `,"key":`...), d.Key)
	}
	if d.Request != nil {
		request, err := json.Marshal(d.Request)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"request":`...), request...)
	}
	if e.Settled != "" {
		b = appendText(append(b, `,"settled":`...), string(e.Settled))
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

// encodeEntry returns one entry.
func encodeEntry(e *neuron.Entry) ([]byte, error) {
	return appendEntry(make([]byte, 0, 384+len(e.Payload)), e)
}

// encodeEntries returns a JSON array.
func encodeEntries(list []neuron.Entry) ([]byte, error) {
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

func appendID(b []byte, id ident.ID) []byte { return neuron.AppendID(b, id) }

func appendText(b []byte, s string) []byte { return neuron.AppendText(b, s) }
