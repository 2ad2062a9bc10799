package soma_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// words splits an identifier or a comment into lower-case words: toolCallID gives tool, call, id.
func words(text string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			out = append(out, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsLetter(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && i > 0 {
			lowBefore := unicode.IsLower(runes[i-1])
			lowAfter := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if lowBefore || lowAfter {
				flush()
			}
		}
		word.WriteRune(r)
	}
	flush()
	return out
}

func foreignToNeurons(text string) string {
	for _, w := range words(text) {
		switch strings.TrimSuffix(w, "s") {
		case "agent", "session", "model", "tool":
			return w
		}
	}
	return ""
}

// N-38
func TestNeuronsKnowNoAgents(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !within(s.room, "internal/neuron") {
			continue
		}
		check := func(n ast.Node, text string) {
			if w := foreignToNeurons(text); w != "" {
				t.Errorf("%s: the word %q has no place in this room", s.at(n), w)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				check(id, id.Name)
			}
			return true
		})
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				check(c, c.Text)
			}
		}
	}
}

// N-38
func TestForeignWords(t *testing.T) {
	for text, want := range map[string]string{
		"toolCallID": "tool", "AgentID": "agent", "// no session here": "session", "HTTPModel": "model", "Tools": "tools",
		"agentive": "", "toolbox": "", "remodel": "", "// stateless": "", "TURN": "", "multiTOOL": "tool",
	} {
		if got := foreignToNeurons(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

var pythonSkip = regexp.MustCompile(`unittest\.skip|\bskipTest\(|@skip|expectedFailure`)

func TestNoPythonTestIsSkipped(t *testing.T) {
	files, err := filepath.Glob("internal/pykernel/python/tests/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if pythonSkip.MatchString(line) {
				t.Errorf("%s:%d: a test is skipped", file, i+1)
			}
		}
	}
}

var requirement = regexp.MustCompile(`^(?:require\s+)?([^\s/]+\.[^\s]+) v\S+$`)

// Each direct dependency has a reason in docs/decisions/0001-dependencies.md, and no more stand there than are used.
func TestDependenciesHaveReasons(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile("docs/decisions/0001-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var direct, given []string
	for line := range strings.Lines(string(mod)) {
		if m := requirement.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			direct = append(direct, m[1])
		}
	}
	for line := range strings.Lines(string(reasons)) {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.Contains(cells[1], "`") && len(strings.TrimSpace(cells[3])) > 10 {
			given = append(given, strings.Trim(cells[1], " `"))
		}
	}
	if len(direct) == 0 || len(direct) > 22 {
		t.Errorf("%d direct dependencies, 22 are allowed", len(direct))
	}
	slices.Sort(direct)
	slices.Sort(given)
	if !slices.Equal(direct, given) {
		t.Errorf("go.mod requires\n%s\nreasons are given for\n%s", strings.Join(direct, "\n"), strings.Join(given, "\n"))
	}
}

var (
	createTable = regexp.MustCompile(`(?i)^\s*create\s+(?:virtual\s+)?table\s+(?:if\s+not\s+exists\s+)?(\w+)`)
	tableOwner  = regexp.MustCompile(`^-- owner: ([a-z][a-z0-9/]*)$`)
)

// ownerless returns the tables of a migration whose `create table` has no comment `-- owner: ROOM` right above it, and all
// rooms that are named.
func ownerless(sql string) (tables, rooms []string) {
	above := ""
	for line := range strings.Lines(sql) {
		line = strings.TrimSpace(line)
		if m := createTable.FindStringSubmatch(line); m != nil {
			if owner := tableOwner.FindStringSubmatch(above); owner != nil {
				rooms = append(rooms, owner[1])
			} else {
				tables = append(tables, m[1])
			}
		}
		above = line
	}
	return tables, rooms
}

func TestEveryTableHasAnOwner(t *testing.T) {
	files, err := filepath.Glob("internal/store/*/migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tables, rooms := ownerless(string(text))
		for _, table := range tables {
			t.Errorf("%s: nothing above table %s says -- owner: ROOM", file, table)
		}
		for _, room := range slices.Compact(slices.Sorted(slices.Values(rooms))) {
			_, _, inside := areaOf("internal/" + room)
			if _, _, outside := areaOf(room); !inside && !outside {
				t.Errorf("%s: a table belongs to %s, which is no room", file, room)
			}
		}
	}

	tables, rooms := ownerless("-- owner: neuron\ncreate table a (\n);\n\nCREATE TABLE IF NOT EXISTS b (x);\n-- owner: x\n\ncreate table c (y);")
	if !slices.Equal(tables, []string{"b", "c"}) || !slices.Equal(rooms, []string{"neuron"}) {
		t.Errorf("the check itself finds tables %q, rooms %q", tables, rooms)
	}
}

// The engines have the same migrations by name, numbered without a gap.
func TestMigrationsMatchAcrossEngines(t *testing.T) {
	dirs, err := filepath.Glob("internal/store/*/migrations")
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for i, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for n, file := range files {
			name := filepath.Base(file)
			names = append(names, name)
			if want := "000" + string(rune('1'+n)); n < 9 && !strings.HasPrefix(name, want+"_") {
				t.Errorf("%s: the number %s is next", file, want)
			}
		}
		if i == 0 {
			first = names
		} else if !slices.Equal(first, names) {
			t.Errorf("%s has %q, %s has %q", dirs[0], first, dir, names)
		}
	}
}
