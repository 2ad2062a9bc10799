package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table in the docs names the tests that there are, and each of them.
func TestTheTableIsWhole(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(string(text), -1) {
			if m[1] != "TestMain" && m[1] != t.Name() && m[1] != "TestStatusNamesTheKernel" {
				want = append(want, m[1])
			}
		}
	}
	text, err := os.ReadFile("../../docs/bad-input.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| **") || strings.HasPrefix(line, "| input") {
			continue
		}
		if len(cells) != 5 {
			t.Errorf("%d cells in %q", len(cells), line)
			continue
		}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("cell %d is empty in %q", i+1, line)
			}
		}
		named = append(named, strings.TrimSpace(cells[4]))
	}
	slices.Sort(want)
	slices.Sort(named)
	if named = slices.Compact(named); !slices.Equal(named, want) {
		t.Errorf("the table names\n%s\nand there are\n%s", strings.Join(named, " "), strings.Join(want, " "))
	}
}
