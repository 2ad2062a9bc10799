package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tests in Python, on real files and against a real kernel.
func TestPython(t *testing.T) {
	core, err := filepath.Abs("../../pykernel/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"test_files", "test_kernel"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", module)
			cmd.Dir = "tests"
			cmd.Env = append(os.Environ(), "PYTHONPATH="+core, "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
