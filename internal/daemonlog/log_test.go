package daemonlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log of a daemon that runs for ever stays within its bound, loses nothing that is not too old, and the runtime's last
// words, as well as what else goes to the standard error, are in the current file.
func TestDaemonLogIsBounded(t *testing.T) { // I-17
	name := filepath.Join(t.TempDir(), "daemon.log")
	var beside bytes.Buffer
	w, err := Open(name, false, &beside)
	if err != nil {
		t.Fatal(err)
	}
	l := w.(*writer)
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
	for suffix, lines := range map[string]int{"": 1, ".1": 2, ".2": 2, ".3": 0} {
		text, err := os.ReadFile(name + suffix)
		if lines > 0 && err != nil || string(text) != strings.Repeat(line, lines) {
			t.Errorf("daemon.log%s: %q (%v), want %d lines", suffix, text, err, lines)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if n := strings.Count(beside.String(), line); n != 11 {
		t.Errorf("%d lines beside", n)
	}
}
