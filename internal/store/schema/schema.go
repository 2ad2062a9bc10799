package schema

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Error reports a database whose schema this build cannot use: one of a later build, or no database of Soma at all.
type Error struct {
	Found string // the schema's number, or what the database is
	Known int    // the last schema that this build knows
}

func (e *Error) Error() string {
	return fmt.Sprintf("the home has schema %s, this build knows up to %d: use the build that made it, or another home", e.Found, e.Known)
}

// Foreign returns the error for a database of another program.
func Foreign(known int) error { return &Error{Found: foreign, Known: known} }

// Migration is one step from a schema to the next.
type Migration struct {
	Number int
	Name   string
	Script string
}

// Load reads the migrations in order. They are files NNNN_name.sql, numbered 1, 2, … without a gap.
func Load(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []Migration
	for i, name := range names {
		digits, _, _ := strings.Cut(name, "_")
		n, err := strconv.Atoi(digits)
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s: want number %04d", name, i+1)
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		out = append(out, Migration{n, name, string(b)})
	}
	return out, nil
}

// Foreign reports whether the database is of another program.
func (e *Error) Foreign() bool { return e.Found == foreign }

// foreign is what is found in a database of another program.
const foreign = "of another program"
