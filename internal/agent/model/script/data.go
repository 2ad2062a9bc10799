package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"soma/internal/agent/model"
	"soma/internal/agent/tool"
	"soma/message"
)

// Result is one tool result as templates see it.
type Result struct {
	Tool       string
	Status     string // how the call ended: ok, error, denied, timed_out, cancelled, unknown
	DurationMS int64
	Value      string
	Output     string // head and tail as the cell printed them
	ErrorType  string
	Error      string
	Text       string // what a model reads
}

// OK reports whether the call ended well.
func (r *Result) OK() bool { return r.Status == string(message.OK) }

// position is what a request's messages say: how many answers were given, and what was known before each.
type position struct {
	inputs  []string
	results []*Result
	// seen holds for each answer, and last for the one to come, how many inputs and results stood before it
	seen []mark
}

type mark struct{ inputs, results int }

func read(r model.Request) position {
	var p position
	names := map[string]string{}
	for _, m := range r.Messages {
		switch m.Role {
		case message.User:
			p.inputs = append(p.inputs, m.Text)
		case message.Assistant:
			p.seen = append(p.seen, mark{len(p.inputs), len(p.results)})
			for _, c := range m.Calls {
				names[c.ID] = c.Tool
			}
		case message.Tool:
			p.results = append(p.results, result(m, names[m.CallID]))
		}
	}
	p.seen = append(p.seen, mark{len(p.inputs), len(p.results)})
	return p
}

func result(m message.Message, name string) *Result {
	r := &Result{Tool: name, Status: string(m.Status), Text: m.Text}
	var cell tool.Result
	if len(m.Result) == 0 || json.Unmarshal(m.Result, &cell) != nil {
		r.Output = m.Text
		return r
	}
	if r.Status == "" {
		r.Status = cell.Status
	}
	r.DurationMS, r.Value, r.Output = cell.DurationMS, cell.Value, cell.Output.Head+cell.Output.Tail
	if cell.Error != nil {
		r.ErrorType, r.Error = cell.Error.Type, cell.Error.Message
	}
	return r
}

// values is what a template may name at one point of the conversation.
func (p position) values(at mark, step int, req model.Request) map[string]any {
	v := map[string]any{}
	for k, fact := range req.Facts {
		v[k] = fact
	}
	v["Inputs"], v["Results"], v["Step"], v["Attempt"] = p.inputs[:at.inputs], p.results[:at.results], step, req.Attempt
	if at.inputs > 0 {
		v["Input"] = p.inputs[0]
	}
	if at.results > 0 {
		v["Last"] = p.results[at.results-1]
	}
	return v
}

// funcs are the functions of templates beside the standard ones.
func funcs(facts map[string]string) template.FuncMap {
	return template.FuncMap{
		"fact":  func(name string) string { return facts[name] },
		"json":  parseJSON,
		"field": field,
		"lines": func(s string) []string {
			if s = strings.TrimRight(s, "\n"); s == "" {
				return nil
			}
			return strings.Split(s, "\n")
		},
		"last": lastLine,
		"allOK": func(rs []*Result) bool {
			for _, r := range rs {
				if !r.OK() {
					return false
				}
			}
			return true
		},
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// parseJSON gives whole numbers as int64, so that they print and compare as such.
func parseJSON(s string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("no JSON: %.80q: %w", s, err)
	}
	return numbers(v), nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}

// field reads the JSON object in the last line of a text and gives one field of it.
func field(name, text string) (any, error) {
	v, err := parseJSON(lastLine(text))
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("no JSON object: %.80q", lastLine(text))
	}
	f, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("no field %q in %.80q", name, lastLine(text))
	}
	return f, nil
}

var errTooLong = errors.New("the text is longer than 1 MiB")

// bounded refuses what would grow without end.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxFile {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

func render(t *template.Template, values map[string]any, facts map[string]string) (string, error) {
	// the parsed template is shared between requests, its functions are this request's
	own, err := t.Clone()
	if err != nil {
		return "", err
	}
	var b bounded
	if err := own.Funcs(funcs(facts)).Execute(&b, values); err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), nil
}
