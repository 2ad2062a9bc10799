package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Row is one requirement as its table shows it.
type Row struct {
	ID, Text, Status string
	Tests            []string // path#Test
	file             string
	line             int // from 0
}

const (
	open = "open"
	done = "done"
)

// header opens every table of rows.
const header = "| id | requirement | status | test |"

var (
	rowID   = regexp.MustCompile(`\b[NKSPIM]-\d{2,3}[a-z]?\b`)
	anyRow  = regexp.MustCompile(`^\|\s*[A-Z]-\d`)
	wellRow = regexp.MustCompile(`^\| ([NKSPIM]-\d{2,3}[a-z]?) \| (.+) \| (\w+) \| ?(.*?) ?\|$`)
)

// Tables are all rows, in the order of the files and their lines.
type Tables struct {
	rows  []*Row
	byID  map[string]*Row
	lines map[string][]string // by file
}

// readTables reads the tables of dir. Errors name the file and line of a row that is malformed or stands twice.
func readTables(dir string) (*Tables, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	t := &Tables{byID: map[string]*Row{}, lines: map[string][]string{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t.lines[file] = strings.Split(string(text), "\n")
		inTable := false
		for i, line := range t.lines[file] {
			// Other tables may name rows too.
			inTable = line == header || inTable && strings.HasPrefix(line, "|")
			if !inTable || !anyRow.MatchString(line) {
				continue
			}
			m := wellRow.FindStringSubmatch(line)
			if m == nil || m[3] != open && m[3] != done {
				return nil, fmt.Errorf("%s:%d: a row is | id | requirement | open or done | tests |", file, i+1)
			}
			if first := t.byID[m[1]]; first != nil {
				return nil, fmt.Errorf("%s:%d: row %s stands in %s:%d too", file, i+1, m[1], first.file, first.line+1)
			}
			row := &Row{ID: m[1], Text: m[2], Status: m[3], file: file, line: i}
			for test := range strings.SplitSeq(m[4], ",") {
				if test = strings.TrimSpace(test); test != "" {
					row.Tests = append(row.Tests, test)
				}
			}
			t.rows = append(t.rows, row)
			t.byID[row.ID] = row
		}
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("%s holds no rows", dir)
	}
	return t, nil
}

// set changes a row's status and tests in memory; write brings it to the files.
func (t *Tables) set(row *Row, status string, tests []string) {
	row.Status, row.Tests = status, tests
	t.lines[row.file][row.line] = fmt.Sprintf("| %s | %s | %s | %s |", row.ID, row.Text, status, strings.Join(tests, ", "))
}

func (t *Tables) write() error {
	for file, lines := range t.lines {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// choose gives the rows that args name, each once, in the order of the tables.
func (t *Tables) choose(args []string) ([]*Row, error) {
	chosen := map[*Row]bool{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if file, ok := strings.CutPrefix(arg, "@"); ok {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			args = append(strings.Fields(string(text)), args...)
			continue
		}
		first, last, ranged := strings.Cut(strings.Trim(strings.ReplaceAll(arg, "…", ".."), ","), "..")
		if !ranged {
			last = first
		}
		from, to := t.byID[first], t.byID[last]
		if from == nil || to == nil || first[0] != last[0] {
			return nil, fmt.Errorf("%s: no such rows", arg)
		}
		for _, row := range t.rows {
			if row == from || row == to || ranged && row.ID[0] == first[0] && number(first) <= number(row.ID) && number(row.ID) <= number(last) {
				chosen[row] = true
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no rows are given")
	}
	rows := slices.Clone(t.rows)
	return slices.DeleteFunc(rows, func(r *Row) bool { return !chosen[r] }), nil
}

func number(id string) int {
	n, _ := strconv.Atoi(strings.TrimRight(id[2:], "abcdefghijklmnopqrstuvwxyz")) // the pattern of ids makes it a number
	return n
}
