//go:build crash

package crash

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain is the child as well: asked so, it passes two points three times each, or none, and says how far it came.
func TestMain(m *testing.M) {
	if os.Getenv("CRASH_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("CRASH_TEST_CHILD") == "idle" {
		os.Stdout.WriteString("end")
		return
	}
	for range 3 {
		Point(DispatchCommitted)
		Point(CellMid)
	}
	if Off(EarlyFrame) {
		os.Stdout.WriteString("early_frame ")
	}
	if Off(DedupeOff) {
		os.Stdout.WriteString("dedupe_off ")
	}
	os.Stdout.WriteString("end")
}

// child runs this test binary again; killed says that SIGKILL ended it.
func child(t *testing.T, env ...string) (out, errText string, killed bool, code int) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), "CRASH_TEST_CHILD=1"), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return stdout.String(), stderr.String(), status.Signaled() && status.Signal() == syscall.SIGKILL, cmd.ProcessState.ExitCode()
}

func TestKillAtTheChosenHit(t *testing.T) {
	for crash, want := range map[string]string{
		"dispatch.committed":   "dispatch.committed",
		"dispatch.committed:1": "dispatch.committed",
		"cell.mid":             "dispatch.committed cell.mid",
		"cell.mid:2":           "dispatch.committed cell.mid dispatch.committed cell.mid",
		"dispatch.committed:3": "dispatch.committed cell.mid dispatch.committed cell.mid dispatch.committed",
	} {
		hits := filepath.Join(t.TempDir(), "hits")
		out, _, killed, _ := child(t, "SOMA_CRASH="+crash, "SOMA_CRASH_HITS="+hits)
		if !killed || out != "" {
			t.Errorf("%s: killed %v with output %q", crash, killed, out)
		}
		text, err := os.ReadFile(hits)
		if got := strings.Join(strings.Fields(string(text)), " "); err != nil || got != want {
			t.Errorf("%s: hits %q (%v), want %q", crash, got, err, want)
		}
	}
}

func TestRunToTheEndWhenThePointIsNotReached(t *testing.T) {
	for _, crash := range []string{"", "cell.mid:4", "done.read"} {
		if out, _, killed, code := child(t, "SOMA_CRASH="+crash); killed || code != 0 || out != "end" {
			t.Errorf("%q: killed %v, exit %d, output %q", crash, killed, code, out)
		}
	}
}

func TestFaults(t *testing.T) {
	if out, _, _, _ := child(t, "SOMA_FAULT=dedupe_off, early_frame"); out != "early_frame dedupe_off end" {
		t.Errorf("output %q", out)
	}
}

func TestUnknownNamesEndTheProgram(t *testing.T) {
	for _, env := range []string{"SOMA_CRASH=cell.middle", "SOMA_CRASH=cell.mid:0", "SOMA_CRASH=cell.mid:x", "SOMA_FAULT=dedupe"} {
		out, errText, killed, code := child(t, env, "CRASH_TEST_CHILD=idle")
		if killed || code != 2 || out != "" || !strings.HasPrefix(errText, "cannot use SOMA_") {
			t.Errorf("%s: killed %v, exit %d, output %q, error %q", env, killed, code, out, errText)
		}
	}
}
