package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"soma/internal/daemonlog"
)

// In the background and in the foreground a panic lands in the file that is the log at that moment.
func TestPanicsLandInTheCurrentLog(t *testing.T) { // I-17
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, background := range []bool{true, false} {
		home := t.TempDir()
		name := filepath.Join(home, "daemon.log")
		if err := os.Chmod(home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, bytes.Repeat([]byte("an earlier line\n"), (10<<20)/16-1), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "serve")
		cmd.Env = append(os.Environ(), "SOMA_HOME="+home, "SOMA_TEST_DAEMON=talks")
		var terminal bytes.Buffer
		cmd.Stderr = &terminal
		if background {
			cmd.Args = append(cmd.Args, "--background")
			f, err := daemonlog.Append(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.Stderr = f
		}
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("background %v: it ended with %v", background, err)
		}
		current, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(current, []byte("one line too many\n")) || !bytes.Contains(current, []byte("panic: the store is upside down")) {
			t.Errorf("background %v: the current log is %.200q (%v)", background, current, err)
		}
		if info, err := os.Stat(name + ".1"); err != nil || info.Size() > 10<<20 || bytes.Contains(current, []byte("an earlier line")) {
			t.Errorf("background %v: the log before it: %v (%v)", background, info, err)
		}
		if !background && !strings.Contains(terminal.String(), "one line too many\n") {
			t.Errorf("the terminal has %q", terminal.String())
		}
	}
}
