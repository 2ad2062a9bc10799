package python

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// P-119: the binary carries exactly the modules that lie here: a pattern that drops one would only show at a boot.
func TestEveryModuleIsEmbedded(t *testing.T) {
	embedded, err := fs.Glob(Sources, "*")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var here []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".py" {
			here = append(here, e.Name())
		}
	}
	if !slices.Contains(here, "soma_kernel.py") || !slices.Equal(embedded, here) {
		t.Errorf("embedded %v, in the folder %v", embedded, here)
	}
}
