package tool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"soma/message"
)

// Definition is what a provider is told of one tool.
type Definition struct {
	// Name has 1 to 64 letters, digits, "_" or "-".
	Name string `json:"name"`
	// Description is written for a model.
	Description string `json:"description"`
	// Schema is the JSON Schema (2020-12) of the arguments, an object.
	Schema json.RawMessage `json:"schema"`
}

// Registry holds definitions by name. It never changes and is safe for concurrent use.
type Registry struct {
	defs    []Definition
	schemas map[string]*jsonschema.Resolved
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// NewRegistry returns a registry of these tools in this order. It fails on a bad or doubled name and on a schema that is
// no schema of an object.
func NewRegistry(defs ...Definition) (*Registry, error) {
	r := &Registry{defs: slices.Clone(defs), schemas: map[string]*jsonschema.Resolved{}}
	for _, d := range defs {
		if !namePattern.MatchString(d.Name) {
			return nil, fmt.Errorf("cannot register tool %q: bad name", d.Name)
		}
		if r.schemas[d.Name] != nil {
			return nil, fmt.Errorf("cannot register tool %q: two tools have this name", d.Name)
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(d.Schema, &s); err != nil {
			return nil, fmt.Errorf("cannot register tool %q: schema: %w", d.Name, err)
		}
		if s.Type != "object" {
			return nil, fmt.Errorf("cannot register tool %q: its schema is not of type object", d.Name)
		}
		resolved, err := s.Resolve(nil)
		if err != nil {
			return nil, fmt.Errorf("cannot register tool %q: schema: %w", d.Name, err)
		}
		r.schemas[d.Name] = resolved
	}
	return r, nil
}

// List returns the definitions in the order of registration.
func (r *Registry) List() []Definition { return slices.Clone(r.defs) }

// Refusal says why a call never reaches its handler; the text is written for the model, as the call's error result.
type Refusal struct{ Text string }

func (r *Refusal) Error() string { return r.Text }

// Check judges a call before it runs, and again after its arguments were rewritten: well-formed arguments, a known tool,
// its schema. The error is a *Refusal.
func (r *Registry) Check(c message.Call) error {
	schema := r.schemas[c.Tool]
	if schema == nil {
		var names []string
		for _, d := range r.defs {
			names = append(names, d.Name)
		}
		return &Refusal{fmt.Sprintf("there is no tool %q; the tools are: %s", c.Tool, strings.Join(names, ", "))}
	}
	if c.Malformed != "" {
		return &Refusal{fmt.Sprintf("%s was not called: %s", c.Tool, c.Malformed)}
	}
	var args any
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return &Refusal{fmt.Sprintf("%s was not called: its arguments are no JSON: %v", c.Tool, err)}
	}
	if _, ok := args.(map[string]any); !ok {
		return &Refusal{fmt.Sprintf("%s was not called: its arguments must be a JSON object, not %s", c.Tool, excerpt(string(c.Arguments), 0))}
	}
	if err := schema.Validate(args); err != nil {
		return &Refusal{fmt.Sprintf("%s was not called: its arguments do not fit its schema: %v", c.Tool, err)}
	}
	return nil
}
