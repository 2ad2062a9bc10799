package notebook

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// node is a JSON value as it stands in a file: keys in their order, strings and numbers in their own spelling.
type node struct {
	raw    string  // of a string, number, true, false or null, as it was spelled
	list   []*node // of a list or object
	keys   []string
	object bool
	array  bool
}

// parser reads JSON that is known to be valid.
type parser struct {
	data []byte
	at   int
}

func parse(data []byte) *node {
	p := parser{data: data}
	return p.value()
}

// next passes over white space and what separates, and returns the character there.
func (p *parser) next() byte {
	for strings.IndexByte(" \t\r\n,:", p.data[p.at]) >= 0 {
		p.at++
	}
	return p.data[p.at]
}

func (p *parser) value() *node {
	n := new(node)
	switch p.next() {
	case '{':
		n.object = true
		for p.at++; p.next() != '}'; {
			n.keys = append(n.keys, p.scalar())
			n.list = append(n.list, p.value())
		}
		p.at++
	case '[':
		n.array = true
		for p.at++; p.next() != ']'; {
			n.list = append(n.list, p.value())
		}
		p.at++
	default:
		n.raw = p.scalar()
	}
	return n
}

func (p *parser) scalar() string {
	from := p.at
	if p.data[p.at] != '"' {
		for p.at < len(p.data) && strings.IndexByte(" \t\r\n,:]}", p.data[p.at]) < 0 {
			p.at++
		}
		return string(p.data[from:p.at])
	}
	for p.at++; p.data[p.at] != '"'; p.at++ {
		if p.data[p.at] == '\\' {
			p.at++
		}
	}
	p.at++
	return string(p.data[from:p.at])
}

// write writes a value as notebooks are written: each item on its own line, indented by one space a level.
func (n *node) write(b *bytes.Buffer, depth int) {
	if !n.object && !n.array {
		b.WriteString(n.raw)
		return
	}
	open, end := "[", "]"
	if n.object {
		open, end = "{", "}"
	}
	b.WriteString(open)
	for i, item := range n.list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + strings.Repeat(" ", depth+1))
		if n.object {
			b.WriteString(n.keys[i] + ": ")
		}
		item.write(b, depth+1)
	}
	if len(n.list) > 0 {
		b.WriteString("\n" + strings.Repeat(" ", depth))
	}
	b.WriteString(end)
}

// get returns the value of a key, or nil. Of keys that come twice the last one counts.
func (n *node) get(key string) *node {
	if n == nil || !n.object {
		return nil
	}
	for i := len(n.keys) - 1; i >= 0; i-- {
		if unquote(n.keys[i]) == key {
			return n.list[i]
		}
	}
	return nil
}

// set gives a key its value, at its place or at the end.
func (n *node) set(key string, value *node) {
	if old := n.get(key); old != nil {
		*old = *value
		return
	}
	n.keys, n.list = append(n.keys, quote(key)), append(n.list, value)
}

// text returns the text of a string; it is false for anything else.
func (n *node) text() (string, bool) {
	if n == nil || !strings.HasPrefix(n.raw, `"`) {
		return "", false
	}
	return unquote(n.raw), true
}

func unquote(raw string) string {
	var s string
	_ = json.Unmarshal([]byte(raw), &s) // it is valid
	return s
}

func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string
	return strings.TrimSuffix(b.String(), "\n")
}

func text(s string) *node { return &node{raw: quote(s)} }

func list(items ...*node) *node { return &node{array: true, list: items} }

// object makes an object of keys and values in turn, in the order of the keys: as notebooks are written.
func object(pairs ...any) *node {
	values := map[string]*node{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i].(string)] = pairs[i+1].(*node)
	}
	n := &node{object: true}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		n.set(key, values[key])
	}
	return n
}

// lines is a text as notebooks have it: a list of its lines, with their ends.
func lines(s string) *node {
	n := list()
	for line := range strings.Lines(s) {
		n.list = append(n.list, text(line))
	}
	return n
}
