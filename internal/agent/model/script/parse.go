package script

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
	"soma/internal/agent/model"
	"soma/internal/agent/tool"
)

const maxSteps = 10_000

// parser reads one file; every error is made by fail and so names file and line.
type parser struct{ file string }

func (p parser) fail(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.file, n.Line, fmt.Sprintf(format, args...))
}

// Parse reads a script; name stands for the file in errors, which say "cannot read the script: FILE:LINE: what".
func Parse(name string, data []byte) (*Script, error) {
	s, err := parser{name}.parse(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the script: %w", err)
	}
	return s, nil
}

func (p parser) parse(data []byte) (*Script, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: it has more than %d bytes", p.file, MaxFile)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, p.syntax(err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: it is empty", p.file)
	}
	s := &Script{file: p.file, name: p.file, speed: 1}
	err := p.mapping(doc.Content[0], func(k string, v *yaml.Node) (err error) {
		switch k {
		case "name":
			s.name, err = p.text(v)
		case "speed":
			s.speed, err = p.number(v)
		case "pace":
			s.pace, err = p.duration(v)
		case "steps":
			err = p.list(v, func(v *yaml.Node) error {
				st, err := p.step(v)
				s.steps = append(s.steps, st)
				return err
			})
		default:
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(s.steps) == 0:
		return nil, p.fail(doc.Content[0], "steps: at least one is needed")
	case len(s.steps) > maxSteps:
		return nil, p.fail(doc.Content[0], "steps: there are more than %d", maxSteps)
	}
	return s, nil
}

// syntax turns "yaml: line 3: what" into "file:3: what".
func (p parser) syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		return fmt.Errorf("%s:%s", p.file, rest)
	}
	return fmt.Errorf("%s: %s", p.file, text)
}

func (p parser) step(n *yaml.Node) (step, error) {
	st := step{line: n.Line, pace: -1}
	err := p.mapping(n, func(k string, v *yaml.Node) (err error) {
		switch k {
		case "if":
			st.cond, err = p.template(v)
		case "say":
			st.say, err = p.template(v)
		case "delay":
			st.delay, err = p.duration(v)
		case "pace":
			st.pace, err = p.duration(v)
		case "usage":
			st.usage, err = p.usage(v)
		case "error":
			st.faults, err = p.faults(v)
		case "calls":
			err = p.list(v, func(v *yaml.Node) error {
				c, err := p.call(v)
				st.calls = append(st.calls, c)
				return err
			})
		default:
			err = errUnknown
		}
		return err
	})
	if err == nil && len(st.calls) > model.MaxCalls {
		err = p.fail(n, "calls: there are more than %d", model.MaxCalls)
	}
	if err == nil && st.say == nil && len(st.calls) == 0 && len(st.faults) == 0 {
		err = p.fail(n, "a step needs say, calls or error")
	}
	return st, err
}

func (p parser) call(n *yaml.Node) (call, error) {
	var c call
	err := p.mapping(n, func(k string, v *yaml.Node) (err error) {
		switch k {
		case "python":
			c.tool = tool.PythonName
			c.python, err = p.template(v)
		case "timeout_ms":
			c.timeoutMS, err = p.count(v)
		case "tool":
			c.tool, err = p.text(v)
		case "arguments":
			c.arguments, err = p.arguments(v)
		default:
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
	case c.tool == "":
		err = p.fail(n, "a call needs python, or tool and arguments")
	case c.python != nil && (c.arguments != nil || c.tool != tool.PythonName):
		err = p.fail(n, "a call has either python, or tool and arguments")
	case c.python == nil && (c.arguments == nil || c.timeoutMS != 0):
		err = p.fail(n, "a call by tool needs arguments, and its timeout_ms stands in them")
	}
	return c, err
}

// arguments takes a text as it is, so that bad arguments can be played, and a mapping as the JSON of it.
func (p parser) arguments(n *yaml.Node) (*template.Template, error) {
	if n.Kind == yaml.ScalarNode {
		return p.template(n)
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, p.fail(n, "%v", err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, p.fail(n, "%v", err)
	}
	// JSON holds braces that are no template
	return p.template(&yaml.Node{Kind: yaml.ScalarNode, Line: n.Line, Value: fmt.Sprintf("{{print %s}}", strconv.Quote(string(b)))})
}

func (p parser) usage(n *yaml.Node) (*usage, error) {
	u := &usage{}
	err := p.mapping(n, func(k string, v *yaml.Node) (err error) {
		switch k {
		case "input":
			u.input, err = p.count(v)
		case "cache_read":
			u.cacheRead, err = p.count(v)
		case "cache_write":
			u.cacheWrite, err = p.count(v)
		case "output":
			u.output, err = p.count(v)
		case "reasoning":
			u.reasoning, err = p.count(v)
		default:
			err = errUnknown
		}
		return err
	})
	return u, err
}

// faults takes one error or a list of them.
func (p parser) faults(n *yaml.Node) (out []fault, err error) {
	if n.Kind != yaml.SequenceNode {
		f, err := p.fault(n)
		return []fault{f}, err
	}
	err = p.list(n, func(v *yaml.Node) error {
		f, err := p.fault(v)
		out = append(out, f)
		return err
	})
	return out, err
}

var classes = map[string]model.Class{
	"retryable": model.Retryable, "fatal": model.Fatal, "bad_request": model.BadRequest, "too_long": model.TooLong,
}

func (p parser) fault(n *yaml.Node) (fault, error) {
	f := fault{err: model.Error{Class: model.Retryable, Words: "the script says so"}}
	err := p.mapping(n, func(k string, v *yaml.Node) (err error) {
		switch k {
		case "class":
			name, err := p.text(v)
			if err != nil {
				return err
			}
			class, ok := classes[name]
			if !ok {
				return p.fail(v, "class %q: want retryable, fatal, bad_request or too_long", name)
			}
			f.err.Class = class
		case "message":
			f.err.Words, err = p.text(v)
		case "status":
			var n int64
			n, err = p.count(v)
			f.err.Status = int(n)
		case "retry_after":
			f.err.RetryAfter, err = p.duration(v)
		case "after_tokens":
			f.after, err = p.count(v)
		case "attempts":
			err = p.list(v, func(v *yaml.Node) error {
				n, err := p.count(v)
				f.attempts = append(f.attempts, n)
				return err
			})
		default:
			err = errUnknown
		}
		return err
	})
	return f, err
}

func (p parser) template(n *yaml.Node) (*template.Template, error) {
	text, err := p.text(n)
	if err != nil {
		return nil, err
	}
	line := n.Line
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		line++
	}
	// A comment of line breaks makes the template's own errors count from the top of the file.
	text = "{{/*" + strings.Repeat("\n", line-1) + "*/}}" + text
	t, err := template.New(p.file).Option("missingkey=error").Funcs(funcs(nil)).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "template: "))
	}
	return t, nil
}

func (p parser) duration(n *yaml.Node) (time.Duration, error) {
	text, err := p.text(n)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, p.fail(n, "%q is no duration, such as 300ms or 2s", text)
	}
	return d, nil
}
