package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// Spec is a description of the API, ready for checks. It belongs to one goroutine.
type Spec struct {
	paths    map[string]map[string]any // path, then method or "parameters"
	schemas  map[string]any
	params   map[string]any
	resolved map[string]*jsonschema.Resolved
}

// Operation is what the description says of one method at one path.
type Operation struct {
	Access string
	Body   bool // takes one
	// MaxBody is the most bytes of the body where the description names them, else 0.
	MaxBody int64
	Query   []string
	Stream  bool
}

// Parse reads a description: OpenAPI 3.1 in YAML. The error says what cannot be understood.
func Parse(text []byte) (*Spec, error) {
	var doc struct {
		OpenAPI    string                    `yaml:"openapi"`
		Paths      map[string]map[string]any `yaml:"paths"`
		Components struct {
			Schemas    map[string]any `yaml:"schemas"`
			Parameters map[string]any `yaml:"parameters"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("cannot read the description: %w", err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("the description is of OpenAPI %q, not 3.1", doc.OpenAPI)
	}
	s := &Spec{
		paths: doc.Paths, schemas: doc.Components.Schemas, params: doc.Components.Parameters,
		resolved: map[string]*jsonschema.Resolved{},
	}
	// This resolves the references between all of them.
	if _, err := s.schema(map[string]any{"$ref": "#/components/schemas/Error"}); err != nil {
		return nil, err
	}
	return s, nil
}

// Schemas returns the named schemas, as YAML values. The caller must not change them.
func (s *Spec) Schemas() map[string]any { return s.schemas }

// EventBodies returns the kinds of committed events that a stream's description knows.
func (s *Spec) EventBodies(path string) map[string]any {
	return at[map[string]any](s.stream(path), "x-event-bodies")
}

func (s *Spec) stream(path string) map[string]any {
	return at[map[string]any](s.paths[path], "get", "responses", "200", "content", "text/event-stream")
}

// Operations returns all operations by "METHOD path".
func (s *Spec) Operations() map[string]Operation {
	all := map[string]Operation{}
	for path, methods := range s.paths {
		for method, v := range methods {
			if method == "parameters" {
				continue
			}
			o := Operation{Access: at[string](v, "x-access"), MaxBody: int64(at[int](v, "x-max-body"))}
			_, o.Body = at[map[string]any](v, "requestBody")["content"]
			_, o.Stream = at[map[string]any](v, "responses", "200", "content")["text/event-stream"]
			for _, p := range at[[]any](v, "parameters") {
				if name, ok := strings.CutPrefix(at[string](p, "$ref"), "#/components/parameters/"); ok {
					p = s.params[name]
				}
				if at[string](p, "in") == "query" {
					o.Query = append(o.Query, at[string](p, "name"))
				}
			}
			all[strings.ToUpper(method)+" "+path] = o
		}
	}
	return all
}

// Check returns an error if an answer is not what the description says of a method and path, given as in the description.
func (s *Spec) Check(method, path string, status int, contentType string, body []byte) error {
	operation := at[map[string]any](s.paths[path], strings.ToLower(method))
	if operation == nil {
		return fmt.Errorf("%s %s is not described", method, path)
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("%s %s: the content type %q cannot be read: %w", method, path, contentType, err)
	}
	if status != 200 {
		if kind != "application/problem+json" {
			return fmt.Errorf("%s %s: an error as %s", method, path, kind)
		}
		return s.validate("Error", map[string]any{"$ref": "#/components/schemas/Error"}, body)
	}
	content := at[map[string]any](operation, "responses", "200", "content")
	described, ok := content[kind]
	if !ok {
		return fmt.Errorf("%s %s: an answer as %s is not described", method, path, kind)
	}
	if kind != "application/json" {
		return nil
	}
	return s.validate(method+" "+path, at[map[string]any](described, "schema"), body)
}

// CheckEvent returns an error if an event of a stream is not what the description says of the stream's path: of its data,
// and of the body within that if the event is a committed one, which carries an id.
func (s *Spec) CheckEvent(path, kind, id string, data []byte) error {
	events := at[map[string]any](s.stream(path), "x-events")
	if schema, ok := events[kind]; ok {
		return s.validate(kind, schema, data)
	}
	body, ok := s.EventBodies(path)[kind]
	if !ok || id == "" {
		return fmt.Errorf("the event %q with id %q is not described", kind, id)
	}
	if err := s.validate("Event", map[string]any{"$ref": "#/components/schemas/Event"}, data); err != nil {
		return err
	}
	var event struct{ Body json.RawMessage }
	if err := json.Unmarshal(data, &event); err != nil {
		return err
	}
	return s.validate(kind, body, event.Body)
}

func (s *Spec) validate(what string, schema any, text []byte) error {
	r, err := s.schema(schema)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("%s: cannot read %q: %w", what, text, err)
	}
	if err := r.Validate(value); err != nil {
		return fmt.Errorf("%s: %s: %w", what, text, err)
	}
	return nil
}

// schema makes a schema of the description stand on its own: OpenAPI keeps the named ones where JSON Schema does not.
func (s *Spec) schema(schema any) (*jsonschema.Resolved, error) {
	name, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("cannot read a schema: %w", err)
	}
	if r := s.resolved[string(name)]; r != nil {
		return r, nil
	}
	text, err := json.Marshal(map[string]any{"allOf": []any{schema}, "$defs": s.schemas})
	if err != nil {
		return nil, fmt.Errorf("cannot read a schema: %w", err)
	}
	text = bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/"))
	root := new(jsonschema.Schema)
	if err := json.Unmarshal(text, root); err != nil {
		return nil, fmt.Errorf("cannot read a schema: %w", err)
	}
	r, err := root.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve a schema: %w", err)
	}
	s.resolved[string(name)] = r
	return r, nil
}

// at returns what lies under the keys of nested maps, or the zero value.
func at[T any](v any, keys ...string) T {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	t, _ := v.(T)
	return t
}
