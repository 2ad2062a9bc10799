package files

import (
	"os"
	"os/exec"
	"testing"
)

// The functions and the traces, on real files, by their own tests.
func TestPython(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
