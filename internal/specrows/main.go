package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root, err := moduleRoot()
	if err == nil {
		err = run(root, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "docs", "spec")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("cannot find docs/spec in this directory or above")
		}
		dir = up
	}
}

func run(root string, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to do: verify, list ROWS, mark ROWS or unmark ROWS")
	}
	tables, err := readTables(filepath.Join(root, "docs", "spec"))
	if err != nil {
		return err
	}
	tests, err := findTests(root)
	if err != nil {
		return err
	}
	if args[0] == "verify" {
		problems := verify(tables, tests)
		if len(problems) > 0 {
			return errors.New(strings.Join(problems, "\n"))
		}
		_, err := fmt.Fprintln(out, tables.summary())
		return err
	}
	rows, err := tables.choose(args[1:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "list":
		return list(rows, tests, out)
	case "mark":
		return mark(tables, rows, tests)
	case "unmark":
		for _, row := range rows {
			tables.set(row, open, nil)
		}
		return tables.write()
	}
	return fmt.Errorf("cannot %s: say verify, list, mark or unmark", args[0])
}

// verify returns what is wrong, one line each.
func verify(tables *Tables, tests []Test) []string {
	var problems []string
	byKey := map[string]Test{}
	for _, test := range tests {
		byKey[test.key()] = test
		for _, id := range test.Rows {
			if tables.byID[id] == nil {
				problems = append(problems, fmt.Sprintf("%s: a comment names row %s, which does not exist", test.key(), id))
			}
		}
	}
	for _, row := range tables.rows {
		at := fmt.Sprintf("%s:%d: row %s", row.file, row.line+1, row.ID)
		if (row.Status == done) != (len(row.Tests) > 0) {
			problems = append(problems, fmt.Sprintf("%s is %s and names %d tests", at, row.Status, len(row.Tests)))
		}
		for _, key := range row.Tests {
			test, ok := byKey[key]
			switch {
			case !ok:
				problems = append(problems, fmt.Sprintf("%s names %s, which does not exist", at, key))
			case !slices.Contains(test.Rows, row.ID):
				problems = append(problems, fmt.Sprintf("%s names %s, which does not carry its id in a comment", at, key))
			}
		}
	}
	return problems
}

func (t *Tables) summary() string {
	n := 0
	for _, row := range t.rows {
		if row.Status == done {
			n++
		}
	}
	return fmt.Sprintf("%d rows, %d done", len(t.rows), n)
}

// carriers returns the tests that carry the row, real tests before benchmarks, each group sorted.
func carriers(row *Row, tests []Test) []string {
	var keys, benchmarks []string
	for _, test := range tests {
		switch {
		case !slices.Contains(test.Rows, row.ID):
		case strings.HasPrefix(test.Name, "Benchmark"):
			benchmarks = append(benchmarks, test.key())
		default:
			keys = append(keys, test.key())
		}
	}
	slices.Sort(keys)
	slices.Sort(benchmarks)
	return append(keys, benchmarks...)
}

func list(rows []*Row, tests []Test, out io.Writer) error {
	for _, row := range rows {
		found := carriers(row, tests)
		if _, err := fmt.Fprintf(out, "%-6s %-4s %2d  %s\n", row.ID, row.Status, len(found), strings.Join(found, " ")); err != nil {
			return err
		}
	}
	return nil
}

// mark writes the rows that tests carry, and fails naming those that no test carries.
func mark(tables *Tables, rows []*Row, tests []Test) error {
	var bare []string
	for _, row := range rows {
		found := carriers(row, tests)
		if len(found) == 0 {
			bare = append(bare, row.ID)
			continue
		}
		tables.set(row, done, found)
	}
	if err := tables.write(); err != nil {
		return err
	}
	if len(bare) > 0 {
		return fmt.Errorf("cannot mark %s: no test carries them (the others are marked)", strings.Join(bare, " "))
	}
	return nil
}
