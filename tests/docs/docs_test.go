package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"soma/internal/agent/turn"
	"soma/internal/api"
	"soma/internal/api/apitest"
	"soma/internal/store/sqlite"
)

const root = "../.."

// read returns a document with its line breaks as they are.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// says reports whether a document holds the words, however its lines are broken.
func says(text, words string) bool {
	return strings.Contains(strings.Join(strings.Fields(text), " "), words)
}

// N-42: what is not promised is said where a newcomer and a user read.
func TestDocsSayWhatIsNotPromised(t *testing.T) {
	const words = "not promise exactly-once delivery, an order across targets, or an archive without bound"
	for _, path := range []string{"README.md", "docs/guide.md"} {
		if !says(read(t, path), words) {
			t.Errorf("%s lacks the words %q", path, words)
		}
	}
}

// M-14: the promise stands in these words.
func TestDocsSayWhatIsPromised(t *testing.T) {
	const words = "no committed turn is lost; inside the dedupe window none is repeated; inference happens at least once, " +
		"a `once` tool at most once, an outside effect that may have happened is reported as unknown and never silently repeated; " +
		"everything shown is committed first, except live tokens."
	for _, path := range []string{"README.md", "docs/guide.md"} {
		if !says(read(t, path), words) {
			t.Errorf("%s lacks the promise", path)
		}
	}
}

// M-13
func TestDocsTellTheOutboxesApart(t *testing.T) {
	for path, words := range map[string]string{
		"docs/architecture.md":  "The bounds of the one are not the bounds of the other.",
		"docs/formats/store.md": "The outbox of kernel frames is not the neuron outbox",
	} {
		if !says(read(t, path), words) {
			t.Errorf("%s lacks the words %q", path, words)
		}
	}
}

// K-01: the diagram in the map is the table of moves.
func TestDiagramIsTheTableOfMoves(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "docs/architecture.md"), "<!-- generated: turn.Diagram() -->\n```mermaid\n")
	got, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed || got != turn.Diagram() {
		t.Errorf("the diagram in docs/architecture.md is\n%s\nbut the table says\n%s", got, turn.Diagram())
	}
}

var (
	tableHead = regexp.MustCompile(`(?s)-- owner: ([\w/]+)\ncreate table (\w+) \((.*?)\n\)`)
	columnRow = regexp.MustCompile(`(?m)^\t(\w+) +(?:text|integer|blob)`)
	part      = regexp.MustCompile(`(?m)^\*\*(\w+)\*\* \(owner: ([\w/]+)\)`)
)

// Each table with its owner and all its columns is in the format's page, and nothing else is.
func TestStorePageHasEveryColumn(t *testing.T) {
	page := read(t, "docs/formats/store.md")
	parts := map[string]string{}
	owners := map[string]string{}
	at := part.FindAllStringSubmatchIndex(page, -1)
	for i, m := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text := page[m[0]:end]
		if j := strings.Index(text, "\n#"); j >= 0 {
			text = text[:j]
		}
		parts[page[m[2]:m[3]]], owners[page[m[2]:m[3]]] = text, page[m[4]:m[5]]
	}
	files, err := fs.Glob(sqlite.Migrations(), "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	columns := 0
	for _, name := range files {
		script, err := fs.ReadFile(sqlite.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tableHead.FindAllStringSubmatch(string(script), -1) {
			owner, table, body := m[1], m[2], m[3]
			if owners[table] != owner {
				t.Errorf("table %s of %s has no part in store.md, or another owner there: %q", table, owner, owners[table])
			}
			for _, c := range columnRow.FindAllStringSubmatch(body, -1) {
				if columns++; !strings.Contains(parts[table], "`"+c[1]+"`") {
					t.Errorf("the part of %s in store.md lacks the column %s", table, c[1])
				}
			}
			delete(owners, table)
		}
	}
	for table := range owners {
		t.Errorf("store.md has a part for %s, which is no table", table)
	}
	if columns < 150 {
		t.Errorf("only %d columns were found in the migrations", columns)
	}
}

// Each kind of event is in the format's page.
func TestStorePageHasEveryKindOfEvent(t *testing.T) {
	spec, err := apitest.Parse(api.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/formats/store.md")
	for kind := range spec.EventBodies("/v1/sessions/{session}/events") {
		if !strings.Contains(page, "`"+kind+"`") {
			t.Errorf("store.md lacks the event %s", kind)
		}
	}
}

var (
	link   = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	source = regexp.MustCompile("`((?:internal|cmd|client|wire|message|ident|tests|bench|protocol|tools)/[A-Za-z0-9_./-]+)`")
)

// documents are all pages for people, without the tables of requirements.
func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err == nil && filepath.Dir(rel) != filepath.Join("docs", "spec") {
			paths = append(paths, rel)
		}
		return err
	})
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	return paths
}

// What a document links to or names of the tree is there.
func TestWhatDocsNameExists(t *testing.T) {
	for _, path := range documents(t) {
		text := read(t, path)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
		for _, m := range source.FindAllStringSubmatch(text, -1) {
			name := m[1]
			if strings.Contains(name, "NAME") || strings.Contains(name, "NNNN") { // stands for what is to come
				continue
			}
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s: %v", path, name, err)
			}
		}
	}
}

// A decision has a number of its own, and all four parts.
func TestDecisionsAreWhole(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/decisions/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		number := name[:4]
		if other := seen[number]; other != "" {
			t.Errorf("%s and %s have one number", name, other)
		}
		seen[number] = name
		text := read(t, filepath.Join("docs/decisions", name))
		if number != "0000" && !strings.HasPrefix(text, "# "+number+": ") {
			t.Errorf("%s does not begin with its number", name)
		}
		for _, head := range []string{"What made it necessary", "What was decided", "What else was looked at", "What follows"} {
			if !strings.Contains(text, "\n## "+head+"\n") {
				t.Errorf("%s lacks %q", name, head)
			}
		}
	}
}
