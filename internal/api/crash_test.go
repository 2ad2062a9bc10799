//go:build crash

package api_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"soma/internal/crash"
	"soma/wire"
)

// The point end.committed kills before the end of a process is shown, and after everything else was.
func TestEndCommittedPoint(t *testing.T) { // I-22
	if os.Getenv("SOMA_CRASH") != "" {
		r := start(t)
		r.open(t, "s")
		in := r.read(t, "/v1/sessions/s/events")
		fmt.Println("shown:", in.event().kind)
		r.world.mu.Lock()
		r.world.end(1, 0)
		r.world.mu.Unlock()
		fmt.Println("shown:", in.event().kind)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndCommittedPoint$")
	child.Env = append(os.Environ(), "SOMA_CRASH="+string(crash.EndCommitted))
	out, err := child.CombinedOutput()
	if child.ProcessState == nil {
		t.Fatal(err)
	}
	if ws, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("the child was not killed: %v", err)
	}
	if text := string(out); !strings.Contains(text, "shown: "+wire.SessionOpened) || strings.Contains(text, "shown: "+wire.ProcessExited) {
		t.Errorf("the child has %s", text)
	}
}
