package flow

import (
	"fmt"
	"maps"

	"soma/session"
)

// deepest is how many maps may lie in each other in a context; a map that contains itself has no end.
const deepest = 100

// contextKey is the key of a result, itself a map[string]any, whose value is merged into the flow's context.
const contextKey = "context"

// contribution is what a result adds to the context; nil if nothing. The error wraps ErrInvalid where it is no map.
func contribution(result any) (map[string]any, error) {
	m, ok := result.(map[string]any)
	if !ok {
		return nil, nil
	}
	v, ok := m[contextKey]
	if !ok {
		return nil, nil
	}
	add, ok := v.(map[string]any)
	if !ok || add == nil {
		return nil, fmt.Errorf("%w context in the result: a %T, not a map", session.ErrInvalid, v)
	}
	if !shallow(add, deepest) {
		return nil, fmt.Errorf("%w context in the result: more than %d maps in each other", session.ErrInvalid, deepest)
	}
	return add, nil
}

func shallow(m map[string]any, left int) bool {
	if left == 0 {
		return false
	}
	for _, v := range m {
		if inner, ok := v.(map[string]any); ok && !shallow(inner, left-1) {
			return false
		}
	}
	return true
}

// merged returns a map with all of both: maps under one key are merged in turn, of other values that of add stays. Neither map is
// changed, and of add no map is kept.
func merged(base, add map[string]any) map[string]any {
	all := make(map[string]any, len(base)+len(add))
	maps.Copy(all, base)
	for key, v := range add {
		inner, ok := v.(map[string]any)
		if !ok {
			all[key] = v
			continue
		}
		before, _ := all[key].(map[string]any)
		all[key] = merged(before, inner)
	}
	return all
}

// copied returns a copy with no map in common; other values are the same ones.
func copied(m map[string]any) map[string]any { return merged(nil, m) }
