package graph

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"soma/ident"
	"soma/internal/neuron"
)

// Schema is what is known of the fields of an alias. It does not change.
type Schema struct {
	alias  string
	fields map[string]field
	err    error
}

// field is one field of an object: its JSON Schema.
type field struct {
	required bool
	kinds    []string // of JSON Schema, without null; none: anything
	schema   *jsonschema.Resolved
}

// written are types that appear in JSON otherwise than their Go type says.
var written = jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[ident.ID]():        {Type: "string"},
	reflect.TypeFor[neuron.ID]():       {Type: "string"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {Types: []string{"null", "string"}},
	reflect.TypeFor[time.Duration]():   {Type: "integer"},
}}

// Describe returns what Go says of the fields of typ's struct. What is wrong with it comes out in New.
func Describe[T any](typ neuron.Type[T]) Schema {
	s := Schema{alias: typ.Alias(), fields: map[string]field{}}
	whole, err := jsonschema.For[T](&written)
	switch {
	case err != nil:
		s.err = err
	case whole.Type != "object" || whole.Properties == nil && whole.AdditionalProperties == nil:
		s.err = errors.New("it is no struct")
	default:
		s.err = s.fill(whole)
	}
	return s
}

func (s *Schema) fill(whole *jsonschema.Schema) error {
	for name, p := range whole.Properties {
		resolved, err := p.CloneSchemas().Resolve(nil)
		if err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
		kinds := slices.Clone(p.Types)
		if p.Type != "" {
			kinds = []string{p.Type}
		}
		kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "null" })
		s.fields[name] = field{required: slices.Contains(whole.Required, name), kinds: kinds, schema: resolved}
	}
	return nil
}

// value reports why a field cannot hold a value.
func (s *Schema) value(name string, v json.RawMessage) error {
	var decoded any
	if err := json.Unmarshal(v, &decoded); err != nil {
		return fmt.Errorf("field %q: %w", name, err)
	}
	if err := s.fields[name].schema.Validate(decoded); err != nil {
		return fmt.Errorf("field %q of %s: %w", name, s.alias, err)
	}
	return nil
}

// fits reports whether values of f may be values of to.
func (f field) fits(to field) bool {
	if len(f.kinds) == 0 || len(to.kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(f.kinds, func(k string) bool {
		return slices.Contains(to.kinds, k) || k == "integer" && slices.Contains(to.kinds, "number")
	})
}

func (f field) kind() string {
	if len(f.kinds) == 0 {
		return "anything"
	}
	return strings.Join(f.kinds, " or ")
}
