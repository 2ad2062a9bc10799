//go:build crash

package power

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// N-33: the same test notices a store that does not wait for the disk.
func TestWithoutFsync(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPowerLoss$", "-for=0")
	cmd.Env = append(os.Environ(), "SOMA_FAULT=fsync_off")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "acknowledged of") {
		t.Errorf("the loss of power was not noticed: %v\n%s", err, out)
	}
	t.Logf("noticed: %s", out)
}
