package neurontest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tables run the plain statements that the rooms beside the engine share with all stores: insert of one row, update, delete
// and select with conditions that all hold, order by one column, limit.
type tables map[string][]record

type record map[string]any

// keys are how many columns, from the first, name a row.
var keys = map[string]int{"call": 1, "call_part": 2}

var (
	insertForm = regexp.MustCompile(`^insert into (\w+) \(([^)]*)\) values \(([^)]*)\)$`)
	updateForm = regexp.MustCompile(`^update (\w+) set (.*) where (.*)$`)
	deleteForm = regexp.MustCompile(`^delete from (\w+) where (.*)$`)
	selectForm = regexp.MustCompile(`^select (.*) from (\w+) where (.*?)(?: order by (\w+))?( limit \?)?$`)
	termForm   = regexp.MustCompile(`^(\w+) ([=><]) (.*)$`)
)

var errForm = errors.New("this store knows no such statement")

// values hands out arguments in the order of the placeholders.
type values struct{ args []any }

func (v *values) of(text string) (any, error) {
	switch {
	case text == "?" && len(v.args) > 0:
		a := v.args[0]
		v.args = v.args[1:]
		if b, ok := a.([]byte); ok {
			return bytes.Clone(b), nil
		}
		return a, nil
	case text == "null":
		return nil, nil
	case len(text) > 1 && text[0] == '\'':
		return strings.Trim(text, "'"), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: value %q", errForm, text)
	}
	return n, nil
}

func compare(a, b any) (int, bool) {
	switch x := a.(type) {
	case []byte:
		y, ok := b.([]byte)
		return bytes.Compare(x, y), ok
	case string:
		y, ok := b.(string)
		return cmp.Compare(x, y), ok
	case int64:
		y, ok := b.(int64)
		return cmp.Compare(x, y), ok
	}
	return 0, false
}

// where returns what the conditions ask.
func (v *values) where(text string) (func(record) bool, error) {
	type term struct {
		column, sign string
		value        any
	}
	var terms []term
	for _, part := range strings.Split(text, " and ") {
		m := termForm.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("%w: condition %q", errForm, part)
		}
		value, err := v.of(m[3])
		if err != nil {
			return nil, err
		}
		terms = append(terms, term{m[1], m[2], value})
	}
	signs := map[string]int{"<": -1, "=": 0, ">": 1}
	return func(r record) bool {
		return !slices.ContainsFunc(terms, func(t term) bool {
			n, ok := compare(r[t.column], t.value)
			return !ok || n != signs[t.sign]
		})
	}, nil
}

// exec runs a statement that writes and returns how many rows it changed.
func (s *Store) exec(u *undo, text string, args []any) (int, error) {
	v := &values{args}
	if m := insertForm.FindStringSubmatch(text); m != nil {
		columns, marks := strings.Split(m[2], ", "), strings.Split(m[3], ", ")
		if len(columns) != len(marks) {
			return 0, fmt.Errorf("%w: %d columns, %d values", errForm, len(columns), len(marks))
		}
		r := record{}
		for i, c := range columns {
			value, err := v.of(marks[i])
			if err != nil {
				return 0, err
			}
			r[c] = value
		}
		for _, other := range s.tables[m[1]] {
			if !slices.ContainsFunc(columns[:keys[m[1]]], func(c string) bool { n, ok := compare(r[c], other[c]); return !ok || n != 0 }) {
				return 0, fmt.Errorf("table %s has a row of that key", m[1])
			}
		}
		set(u, s.tables, m[1], append(slices.Clip(s.tables[m[1]]), r))
		return 1, nil
	}
	changed := 0
	if m := deleteForm.FindStringSubmatch(text); m != nil {
		match, err := v.where(m[2])
		if err != nil {
			return 0, err
		}
		kept := slices.DeleteFunc(slices.Clone(s.tables[m[1]]), func(r record) bool {
			hit := match(r)
			if hit {
				changed++
			}
			return hit
		})
		set(u, s.tables, m[1], kept)
		return changed, nil
	}
	m := updateForm.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%w: %q", errForm, text)
	}
	change := record{}
	for _, part := range strings.Split(m[2], ", ") {
		column, mark, _ := strings.Cut(part, " = ")
		value, err := v.of(mark)
		if err != nil {
			return 0, err
		}
		change[column] = value
	}
	match, err := v.where(m[3])
	if err != nil {
		return 0, err
	}
	rows := slices.Clone(s.tables[m[1]])
	for i, r := range rows {
		if match(r) {
			changed++
			rows[i] = maps.Clone(r)
			maps.Copy(rows[i], change)
		}
	}
	set(u, s.tables, m[1], rows)
	return changed, nil
}

// query returns the rows of a statement that reads, column by column.
func (s *Store) query(text string, args []any) ([][]any, error) {
	m := selectForm.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%w: %q", errForm, text)
	}
	v := &values{args}
	match, err := v.where(m[3])
	if err != nil {
		return nil, err
	}
	var found []record
	for _, r := range s.tables[m[2]] {
		if match(r) {
			found = append(found, r)
		}
	}
	if m[4] != "" {
		slices.SortStableFunc(found, func(a, b record) int { n, _ := compare(a[m[4]], b[m[4]]); return n })
	}
	if m[5] != "" {
		limit, err := v.of("?")
		if err != nil {
			return nil, err
		}
		found = found[:min(len(found), int(limit.(int64)))]
	}
	var out [][]any
	for _, r := range found {
		var row []any
		for _, c := range strings.Split(m[1], ", ") {
			row = append(row, r[c]) // null is no column and stays nil
		}
		out = append(out, row)
	}
	return out, nil
}

// scan stores a row in what dest points to.
func scan(row, dest []any) error {
	if len(row) != len(dest) {
		return fmt.Errorf("%d columns for %d variables", len(row), len(dest))
	}
	for i, value := range row {
		to := reflect.ValueOf(dest[i]).Elem()
		if value == nil {
			to.SetZero()
			continue
		}
		from := reflect.ValueOf(value)
		if !from.CanConvert(to.Type()) || from.Kind() != to.Kind() && !(from.CanInt() && to.CanInt()) {
			return fmt.Errorf("column %d is a %s and not a %s", i+1, from.Type(), to.Type())
		}
		to.Set(from.Convert(to.Type()))
	}
	return nil
}
