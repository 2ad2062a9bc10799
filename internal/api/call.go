package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"soma/wire"
)

// call is one request on its route, with what it says in its path, query and body read strictly.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	body  int64
	text  []byte // of the body, once it was read
	query url.Values
	out   *stream // of a route that streams, once it has begun
}

func newCall(row route, w http.ResponseWriter, r *http.Request) (*call, *wire.Error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "the query cannot be read")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(row.Query, name):
			return nil, wire.Errorf(wire.BadRequest, "the query has an unknown parameter")
		case len(values) > 1:
			return nil, wire.Errorf(wire.BadRequest, "the query has %s twice", name)
		case !utf8.ValidString(values[0]):
			return nil, wire.Errorf(wire.BadRequest, "%s is not UTF-8", name)
		}
	}
	return &call{w: w, r: r, body: row.Body, query: query}, nil
}

// id returns an id from the path.
func (c *call) id(name string) (string, error) {
	id := c.r.PathValue(name)
	if !wire.ValidID(id) {
		return "", wire.Errorf(wire.BadRequest, "the id of the %s is not valid", name).
			Do("use 1 to 128 of the characters A-Z a-z 0-9 . _ -")
	}
	return id, nil
}

// pid returns the process's number from the path.
func (c *call) pid() (uint64, error) {
	pid, err := strconv.ParseUint(c.r.PathValue("pid"), 10, 63)
	if err != nil || pid == 0 {
		return 0, wire.Errorf(wire.BadRequest, "the pid is not a number above 0")
	}
	return pid, nil
}

// number returns a number of the query between least and most, or otherwise if it is absent.
func (c *call) number(name string, otherwise, least, most uint64) (uint64, error) {
	text := c.query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n < least || n > most {
		return 0, wire.Errorf(wire.BadRequest, "%s is not a number from %d to %d", name, least, most)
	}
	return n, nil
}

// cursor returns where a stream goes on: the id of the last event seen, or the query's after.
func (c *call) cursor() (wire.Cursor, error) {
	at, err := wire.ParseCursor(cmp.Or(c.r.Header.Get("Last-Event-ID"), c.query.Get("after")))
	if err != nil {
		return at, wire.Errorf(wire.BadRequest, "the cursor is not generation.seq")
	}
	return at, nil
}

const anyNumber = 1<<63 - 1

// limit returns the number of items of a list.
func (c *call) limit() (int, error) {
	n, err := c.number("limit", wire.DefaultLimit, 1, wire.MaxLimit)
	return int(n), err
}

// decode reads the body, one JSON object with known fields only, valid UTF-8, and no byte beyond the route's bound.
func decode[T any](c *call) (T, error) {
	var in T
	text, err := c.read()
	if err != nil {
		return in, err
	}
	if !utf8.Valid(text) {
		return in, wire.Errorf(wire.BadRequest, "the body is not UTF-8")
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return in, wire.Errorf(wire.BadRequest, "the body is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, wire.Errorf(wire.BadRequest, "the body cannot be read: %s", cut(err.Error(), 200))
	}
	if _, err := d.Token(); err != io.EOF {
		return in, wire.Errorf(wire.BadRequest, "the body goes on after its JSON object")
	}
	return in, nil
}

// drained is how much of a body that is too large is still read: who is cut off while it writes may not see the answer.
const drained = 4 << 20

func (c *call) read() ([]byte, error) {
	if c.text != nil {
		return c.text, nil
	}
	text, err := io.ReadAll(io.LimitReader(c.r.Body, c.body+1))
	if err == nil && int64(len(text)) > c.body {
		_, _ = io.CopyN(io.Discard, c.r.Body, drained)
		return nil, wire.Errorf(wire.TooLarge, "the body is larger than %d bytes", c.body)
	}
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "the body ends too early")
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // a broken connection shows itself later
	c.text = text
	return text, nil
}

// cut returns at most n bytes of a text, whole characters.
func cut(text string, n int) string {
	for i := range text {
		if i > n {
			return text[:i] + "…"
		}
	}
	return text
}
