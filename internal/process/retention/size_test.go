package retention_test

import (
	"context"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"soma/internal/neuron"
	"soma/internal/process/retention"
	"soma/internal/store/sqlite"
)

type neuronPlace = neuron.Place

var tableLine = regexp.MustCompile(`(?m)^create table (\w+) \(`)

// schema are the tables of the migrations.
func schema(t *testing.T) (names []string) {
	t.Helper()
	files, err := fs.Glob(sqlite.Migrations(), "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := fs.ReadFile(sqlite.Migrations(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range tableLine.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// S-62: each table belongs to a group whose size status tells, and the page on retention says what bounds it, who removes its rows, and
// by which test that is proved.
func TestEveryTableHasABound(t *testing.T) {
	page, err := os.ReadFile("../../../docs/formats/retention.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 6 {
			for _, name := range strings.Split(cells[1], ",") {
				lines[strings.Trim(name, " `")] = line
			}
		}
	}
	for _, table := range schema(t) {
		if retention.GroupOf(table) == "" {
			t.Errorf("%s is in no group of sizes", table)
		}
		line, ok := lines[table]
		if !ok {
			t.Errorf("docs/formats/retention.md has no line for %s", table)
			continue
		}
		for i, cell := range strings.Split(line, "|")[1:5] {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("column %d of %s is empty", i+1, table)
			}
		}
		test := regexp.MustCompile(`Test\w+`).FindString(strings.Split(line, "|")[4])
		file := regexp.MustCompile(`[\w/]+_test\.go`).FindString(strings.Split(line, "|")[4])
		if text, err := os.ReadFile("../../../" + file); err != nil || !strings.Contains(string(text), "func "+test+"(") {
			t.Errorf("%s: there is no %s in %s (%v)", table, test, file, err)
		}
	}
}

// S-62: the sizes are told by groups, and of what was not looked at nothing.
func TestSizes(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		sizes, ok := w.store.Store.(interface {
			TableSizes(ctx context.Context) ([]neuron.TableSize, error)
		})
		if !ok {
			t.Fatal("the store tells no sizes")
		}
		k := retention.New(retention.Options{Sizes: sizes.TableSizes, Now: now})
		if list, at := k.Sizes(); len(list) != 0 || !at.IsZero() {
			t.Errorf("sizes %v of %v", list, at)
		}
		w.run("a", "work", "i1")
		w.must(k.Measure(t.Context()))
		list, at := k.Sizes()
		if len(list) != 8 || at.IsZero() {
			t.Fatalf("sizes %v of %v", list, at)
		}
		for i, g := range list {
			if g.Bytes <= 0 || g.Name == "other" || i > 0 && g.Bytes > list[i-1].Bytes {
				t.Errorf("group %+v", g)
			}
		}
	})
}
