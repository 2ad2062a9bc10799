package sqlrecord

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"soma/session"
)

// maxDepth and maxParts bound how far a value is looked into that has no JSON form as a whole; what lies beyond is named by
// its type.
const (
	maxDepth = 32
	maxParts = 1_000
)

var envelope = reflect.TypeFor[session.Envelope]()

// encodable returns the JSON of v. Where v has none as a whole, its parts are taken singly, and those that have none become text.
func encodable(v any) any {
	if encoded, err := json.Marshal(v); err == nil {
		return json.RawMessage(encoded)
	}
	left := walk(maxParts)
	return left.parts(reflect.ValueOf(v), maxDepth)
}

// walk is how many parts may still be looked at.
type walk int

func (w *walk) parts(v reflect.Value, depth int) any {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && !v.IsNil() && depth > 0 {
		v, depth = v.Elem(), depth-1
	}
	if !v.IsValid() || !v.CanInterface() {
		return nil
	}
	if *w--; *w < 0 || depth <= 0 {
		return v.Type().String()
	}
	switch v.Kind() {
	case reflect.Map:
		out := map[string]any{}
		for it := v.MapRange(); it.Next() && *w >= 0; {
			out[text(it.Key())] = w.part(it.Value(), depth)
		}
		return out
	case reflect.Slice, reflect.Array:
		out := []any{}
		for i := 0; i < v.Len() && *w >= 0; i++ {
			out = append(out, w.part(v.Index(i), depth))
		}
		return out
	case reflect.Struct:
		out := map[string]any{}
		for field, value := range v.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case !field.IsExported() || name == "-" || field.Type == envelope:
				continue
			case name == "":
				name = field.Name
			}
			out[name] = w.part(value, depth)
		}
		return out
	}
	if encoded, err := json.Marshal(v.Interface()); err == nil {
		return json.RawMessage(encoded)
	}
	return text(v)
}

// part is one value inside another. What writes itself is tried as it is; all else is walked through, so that a cycle is
// not tried at each of its turns.
func (w *walk) part(v reflect.Value, depth int) any {
	if v.IsValid() && v.CanInterface() {
		switch v.Interface().(type) {
		case json.Marshaler, encoding.TextMarshaler, []byte:
			if encoded, err := json.Marshal(v.Interface()); err == nil {
				return json.RawMessage(encoded)
			}
		}
	}
	return w.parts(v, depth-1)
}

// text writes what has no parts: a number that JSON does not know, a channel, a function.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Interface:
		return v.Type().String()
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return v.Type().String()
	}
	return fmt.Sprint(v.Interface())
}
