package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"soma/internal/neuron"
)

// Bounds of a declarative transform.
const (
	maxFields    = 64
	maxTransform = 4 << 10 // bytes of constants and names
)

// Transform says how a connection changes what it carries: by the Go function registered under Name, or declaratively into
// an object of the alias To.
type Transform struct {
	Name string `json:"name,omitempty"`
	To   string `json:"to,omitempty"`
	// Fields says where fields of the result come from, by name. A field that is not listed takes the source's field of the
	// same name, if there is one; the source's other fields go.
	Fields map[string]Field `json:"fields,omitempty"`
}

// Field is one of: a field of the source, a constant, or left out.
type Field struct {
	From     string          `json:"from,omitempty"`
	Constant json.RawMessage `json:"constant,omitempty"`
	Omit     bool            `json:"omit,omitempty"`
}

// apply turns a payload into that of the result's alias.
type apply func(payload json.RawMessage) (alias string, out json.RawMessage, err error)

// Registered is a transform in Go.
type Registered struct {
	name, from string
	apply      apply
}

// Register returns a transform that connections name. fn must depend on its parameter only; an error or a panic of it is a
// settled refusal with TransformFailed.
func Register[F, T any](name string, from neuron.Type[F], to neuron.Type[T], fn func(F) (T, error)) Registered {
	return Registered{name: name, from: from.Alias(), apply: func(payload json.RawMessage) (string, json.RawMessage, error) {
		var msg F
		d := json.NewDecoder(bytes.NewReader(payload))
		d.DisallowUnknownFields()
		if err := d.Decode(&msg); err != nil {
			return "", nil, neuron.SettleAs(InvalidField, fmt.Errorf("%s does not fit transform %s: %w", from.Alias(), name, err))
		}
		out, err := guarded(fn, msg)
		if err != nil {
			return "", nil, &neuron.Refusal{Code: TransformFailed, Err: fmt.Errorf("transform %s: %w", name, err)}
		}
		b, err := to.Encode(out)
		if err != nil {
			return "", nil, neuron.SettleAs(TransformFailed, err)
		}
		return to.Alias(), b, nil
	}}
}

func guarded[F, T any](fn func(F) (T, error), msg F) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return fn(msg)
}

// resolve checks a transform of what alias holds, and returns what it does. Errors are settled: UnknownTransform,
// InvalidField.
func (g *Graph) resolve(alias string, t *Transform) (apply, error) {
	if t.Name != "" {
		if t.To != "" || len(t.Fields) > 0 {
			return nil, neuron.SettleAs(InvalidField, fmt.Errorf("transform %q is registered and declared at once", t.Name))
		}
		r, ok := g.transforms[t.Name]
		switch {
		case !ok:
			return nil, neuron.SettleAs(UnknownTransform, fmt.Errorf("no transform is called %q", t.Name))
		case r.from != alias:
			return nil, neuron.SettleAs(UnknownTransform, fmt.Errorf("transform %q is for %s, not for %s", t.Name, r.from, alias))
		}
		return r.apply, nil
	}
	from, to := g.schemas[alias], g.schemas[t.To]
	switch {
	case from == nil:
		return nil, neuron.SettleAs(UnknownTransform, fmt.Errorf("nothing is known of the fields of %q", alias))
	case to == nil:
		return nil, neuron.SettleAs(UnknownTransform, fmt.Errorf("nothing is known of the fields of %q", t.To))
	}
	d := &declared{from: from, to: to, fields: t.Fields}
	if err := d.check(); err != nil {
		return nil, neuron.SettleAs(InvalidField, err)
	}
	return d.apply, nil
}

// declared is a declarative transform between two known aliases.
type declared struct {
	from, to *Schema
	fields   map[string]Field
}

func (d *declared) check() error {
	if len(d.fields) > maxFields {
		return fmt.Errorf("%d fields, at most %d", len(d.fields), maxFields)
	}
	size := 0
	for _, name := range sorted(d.fields) {
		f := d.fields[name]
		if size += len(name) + len(f.From) + len(f.Constant); size > maxTransform {
			return fmt.Errorf("the transform is over %d bytes", maxTransform)
		}
		to, ok := d.to.fields[name]
		if !ok {
			return fmt.Errorf("%s has no field %q", d.to.alias, name)
		}
		if err := d.checkField(name, to, f); err != nil {
			return err
		}
	}
	for _, name := range sorted(d.to.fields) {
		to := d.to.fields[name]
		if _, ok := d.fields[name]; ok {
			continue
		}
		from, ok := d.from.fields[name]
		if ok && !from.fits(to) {
			return fmt.Errorf("field %q of %s is %s, in %s it is %s", name, d.from.alias, from.kind(), d.to.alias, to.kind())
		}
		if !ok && to.required {
			return fmt.Errorf("field %q of %s comes from nowhere", name, d.to.alias)
		}
	}
	return nil
}

func (d *declared) checkField(name string, to field, f Field) error {
	ways := 0
	for _, set := range []bool{f.From != "", len(f.Constant) > 0, f.Omit} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("field %q is not exactly one of from, constant, omit", name)
	}
	switch {
	case f.Omit:
		if to.required {
			return fmt.Errorf("field %q of %s cannot be left out", name, d.to.alias)
		}
	case f.From != "":
		from, ok := d.from.fields[f.From]
		if !ok {
			return fmt.Errorf("%s has no field %q", d.from.alias, f.From)
		}
		if !from.fits(to) {
			return fmt.Errorf("field %q of %s is %s, %q of %s is %s", f.From, d.from.alias, from.kind(), name, d.to.alias, to.kind())
		}
	default:
		return d.to.value(name, f.Constant)
	}
	return nil
}

func (d *declared) apply(payload json.RawMessage) (string, json.RawMessage, error) {
	out, err := d.object(payload)
	if err != nil {
		return "", nil, neuron.SettleAs(InvalidField, err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return "", nil, neuron.SettleAs(InvalidField, err)
	}
	return d.to.alias, b, nil
}

func (d *declared) object(payload json.RawMessage) (map[string]json.RawMessage, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(payload, &in); err != nil || in == nil {
		return nil, errors.Join(fmt.Errorf("%s is no object", d.from.alias), err)
	}
	for _, name := range sorted(in) {
		if _, ok := d.from.fields[name]; !ok {
			return nil, fmt.Errorf("%s has no field %q", d.from.alias, name)
		}
	}
	out := make(map[string]json.RawMessage, len(d.to.fields))
	for _, name := range sorted(d.to.fields) {
		source := name
		f, listed := d.fields[name]
		switch {
		case f.Omit:
			continue
		case len(f.Constant) > 0:
			out[name] = f.Constant
			continue
		case listed:
			source = f.From
		}
		v, ok := in[source]
		if !ok {
			if d.to.fields[name].required {
				return nil, fmt.Errorf("field %q of %s is not there, %q of %s needs it", source, d.from.alias, name, d.to.alias)
			}
			continue
		}
		if err := d.to.value(name, v); err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
