package soma_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// table is what both engines of the store must agree on.
type table struct {
	owner   string
	columns []string
}

var (
	tableLine  = regexp.MustCompile(`^create table (\w+) \($`)
	ownerLine  = regexp.MustCompile(`^-- owner: (\S+)$`)
	columnLine = regexp.MustCompile(`^\t(\w+)\s+\w+`)
)

// tablesOf reads the migrations of an engine.
func tablesOf(t *testing.T, engine string) map[string]table {
	t.Helper()
	files, err := filepath.Glob("internal/store/" + engine + "/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no migrations: %v", engine, err)
	}
	out := map[string]table{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, owner := "", ""
		for _, line := range strings.Split(string(b), "\n") {
			if m := ownerLine.FindStringSubmatch(line); m != nil {
				owner = m[1]
			}
			if m := tableLine.FindStringSubmatch(line); m != nil {
				name = m[1]
				if owner == "" {
					t.Errorf("%s: the table %s names no owner", file, name)
				}
				out[name] = table{owner: owner}
				owner = ""
			}
			if m := columnLine.FindStringSubmatch(line); m != nil && name != "" && m[1] != "primary" && m[1] != "unique" {
				now := out[name]
				now.columns = append(now.columns, m[1])
				out[name] = now
			}
			if strings.HasPrefix(line, ")") {
				name = ""
			}
		}
	}
	return out
}

// N-35: both engines have the same tables and columns, in the same order, and each table has one owner.
func TestSchemasAgree(t *testing.T) {
	lite, shared := tablesOf(t, "sqlite"), tablesOf(t, "postgres")
	if len(lite) < 10 {
		t.Fatalf("only %d tables were found", len(lite))
	}
	for name, a := range lite {
		b, ok := shared[name]
		if !ok {
			t.Errorf("PostgreSQL lacks the table %s", name)
			continue
		}
		if a.owner != b.owner {
			t.Errorf("%s belongs to %s and to %s", name, a.owner, b.owner)
		}
		if !slices.Equal(a.columns, b.columns) {
			t.Errorf("%s has the columns %v and %v", name, a.columns, b.columns)
		}
		if room := filepath.Join("internal", filepath.FromSlash(a.owner)); !isDir(room) {
			t.Errorf("%s belongs to %s, which is no room", name, a.owner)
		}
	}
	for name := range shared {
		if _, ok := lite[name]; !ok {
			t.Errorf("SQLite lacks the table %s", name)
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
