package run

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"soma/internal/binding"
	"soma/internal/pykernel/pykerneltest"
)

// P-027: the binding's modules are those that lie here, and its rules name what its python modules provide.
func TestBinding(t *testing.T) {
	b := Binding()
	r, err := binding.NewRouter([]binding.Binding{b})
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Glob("soma_*.py")
	if err != nil {
		t.Fatal(err)
	}
	var carried []string
	for _, m := range r.Sources() {
		file := m.Name + ".py"
		carried = append(carried, file)
		if source, err := os.ReadFile(file); err != nil || !bytes.Equal(source, m.Source) {
			t.Errorf("%s is not what the binding carries: %v", file, err)
		}
	}
	slices.Sort(carried)
	if !slices.Equal(carried, here) {
		t.Errorf("carried %v, in the folder %v", carried, here)
	}
	if !slices.Equal(r.Modules(), []string{"soma_run"}) {
		t.Errorf("set up: %v", r.Modules())
	}
	for _, name := range []string{"run", "jobs"} {
		if !bytes.Contains(b.Source, []byte(`api.provide("`+name+`"`)) || !strings.Contains(b.Rules, "`"+name) {
			t.Errorf("%s is not provided, or no rule names it", name)
		}
	}
}

// The tests in python, against a real kernel and real processes.
func TestPython(t *testing.T) { pykerneltest.Unittest(t, "test_run", "test_frames") }
