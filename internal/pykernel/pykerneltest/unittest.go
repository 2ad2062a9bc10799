package pykerneltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Unittest runs the modules of a binding's folder `tests`, each as a test of its own, with the kernel's sources in reach. It is
// called from a test of that binding.
func Unittest(t *testing.T, modules ...string) {
	t.Helper()
	core, err := filepath.Abs("../../pykernel/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
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
