package library

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const example = "../../examples/library"

// golang runs the go command in the example's module, which may fetch nothing and change nothing.
func golang(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = example
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, complaint.Bytes())
	}
	return out.Bytes()
}

// S-08, S-13, S-15: the example is vetted, built and run, and prints what stands in output.txt.
func TestExampleRuns(t *testing.T) {
	golang(t, "vet", "./...")
	program := filepath.Join(t.TempDir(), "library")
	golang(t, "build", "-o", program, ".")
	got, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	want, err := os.ReadFile(filepath.Join(example, "output.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the example prints\n%s\nwant\n%s", got, want)
	}
}

// The example shows that the library is light: it depends on no other module than this one.
func TestExampleNeedsNothingElse(t *testing.T) {
	for path := range bytes.Lines(golang(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
		path = bytes.TrimSpace(path)
		if !bytes.HasPrefix(path, []byte("soma/")) && !bytes.Equal(path, []byte("example.org/library")) || bytes.Contains(path, []byte("/internal/")) {
			t.Errorf("the example needs %s", path)
		}
	}
}
