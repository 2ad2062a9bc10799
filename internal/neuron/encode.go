package neuron

import (
	"encoding/json"
	"strconv"

	"soma/ident"
)

// AppendDelivery appends d as encoding/json writes it, with its payload, which is valid JSON, as it is. Each turn writes one at
// least, and an emission one for each receiver.
func AppendDelivery(b []byte, d *Delivery) ([]byte, error) {
	b = AppendID(append(b, `{"id":`...), d.ID)
	b = AppendText(append(b, `,"alias":`...), d.Alias)
	if len(d.Payload) > 0 {
		b = append(append(b, `,"payload":`...), d.Payload...)
	}
	if !d.Content.IsZero() {
		b = AppendID(append(b, `,"content":`...), d.Content)
	}
	if !d.Caller.IsZero() {
		b = AppendText(append(b, `,"caller":`...), d.Caller.String())
	}
	b = AppendText(append(b, `,"target":`...), d.Target.String())
	if !d.Via.IsZero() {
		b = AppendID(append(b, `,"via":`...), d.Via)
	}
	if !d.Correlation.IsZero() {
		b = AppendID(append(b, `,"correlation":`...), d.Correlation)
	}
	if !d.Causation.IsZero() {
		b = AppendID(append(b, `,"causation":`...), d.Causation)
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
		b = AppendText(append(b, `,"key":`...), d.Key)
	}
	if d.Protected {
		b = append(b, `,"protected":true`...)
	}
	if d.Request != nil {
		request, err := json.Marshal(d.Request)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"request":`...), request...)
	}
	return append(b, '}'), nil
}

// AppendExecution appends x as encoding/json writes it, with its input as it is. Whoever works step by step writes one a
// step, on the goroutine of the committer, where reflection costs more than the statement.
func AppendExecution(b []byte, x *Execution) ([]byte, error) {
	b = AppendID(append(b, `{"id":`...), x.ID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(x.Attempt), 10)
	b = AppendText(append(b, `,"neuron":`...), x.Neuron.String())
	b = AppendText(append(b, `,"kind":`...), x.Kind)
	b = AppendText(append(b, `,"policy":`...), string(x.Policy))
	b = append(b, `,"input":`...)
	if x.Input == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, x.Input...)
	}
	b = AppendText(append(b, `,"then":`...), x.Then)
	if x.Deadline != 0 {
		b = strconv.AppendInt(append(b, `,"deadline":`...), int64(x.Deadline), 10)
	}
	if x.Depth != 0 {
		b = strconv.AppendInt(append(b, `,"depth":`...), int64(x.Depth), 10)
	}
	if !x.Correlation.IsZero() {
		b = AppendID(append(b, `,"correlation":`...), x.Correlation)
	}
	if !x.Causation.IsZero() {
		b = AppendID(append(b, `,"causation":`...), x.Causation)
	}
	at, err := x.StartedAt.MarshalText() // refuses what RFC 3339 cannot say
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `,"started_at":"`...), at...), '"')
	if x.Crashes != 0 {
		b = strconv.AppendInt(append(b, `,"crashes":`...), int64(x.Crashes), 10)
	}
	if x.Estimate != 0 {
		b = strconv.AppendInt(append(b, `,"estimate":`...), x.Estimate, 10)
	}
	return append(b, '}'), nil
}

// AppendEnded appends an outcome in the same way. Its payload is valid JSON.
func AppendEnded(b []byte, e *Ended) []byte {
	b = AppendID(append(b, `{"id":`...), e.ID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(e.Attempt), 10)
	b = AppendText(append(b, `,"status":`...), string(e.Status))
	if len(e.Payload) > 0 {
		b = append(append(b, `,"payload":`...), e.Payload...)
	}
	if e.Error != "" {
		b = AppendText(append(b, `,"error":`...), e.Error)
	}
	return append(b, '}')
}

// AppendID appends an id as a JSON string.
func AppendID(b []byte, id ident.ID) []byte {
	if id.IsZero() {
		return append(b, `""`...)
	}
	return append(append(append(b, '"'), id.String()...), '"')
}

// AppendText appends a JSON string; what needs an escape is left to encoding/json.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // a string is never refused
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
