package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"soma/internal/config"
)

// The log of a daemon that runs for ever stays within its bound, loses nothing that is not too old, and the runtime's last
// words, as well as what else goes to the standard error, are in the current file.
func TestDaemonLogIsBounded(t *testing.T) { // I-17
	home, err := config.HomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var beside bytes.Buffer
	w, err := newLogWriter(home, false, &beside)
	if err != nil {
		t.Fatal(err)
	}
	l := w.(*logWriter)
	l.max = 100
	line := strings.Repeat("x", 39) + "\n"
	for range 11 {
		if _, err := l.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string]int{"": 1, ".1": 2, ".2": 2, ".3": 0} {
		text, err := os.ReadFile(home.DaemonLog() + name)
		if lines > 0 && err != nil || string(text) != strings.Repeat(line, lines) {
			t.Errorf("daemon.log%s: %q (%v), want %d lines", name, text, err, lines)
		}
	}
	if info, err := os.Stat(home.DaemonLog()); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if n := strings.Count(beside.String(), line); n != 11 {
		t.Errorf("%d lines beside", n)
	}
}

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
		if err := os.WriteFile(name, bytes.Repeat([]byte("an earlier line\n"), maxLog/16-1), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "serve")
		cmd.Env = append(os.Environ(), "SOMA_HOME="+home, "SOMA_TEST_DAEMON=talks")
		var terminal bytes.Buffer
		cmd.Stderr = &terminal
		if background {
			cmd.Args = append(cmd.Args, "--background")
			f, err := openLog(name, maxLog)
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
		if info, err := os.Stat(name + ".1"); err != nil || info.Size() > maxLog || bytes.Contains(current, []byte("an earlier line")) {
			t.Errorf("background %v: the log before it: %v (%v)", background, info, err)
		}
		if !background && !strings.Contains(terminal.String(), "one line too many\n") {
			t.Errorf("the terminal has %q", terminal.String())
		}
	}
}
