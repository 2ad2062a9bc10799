package osproc

import (
	"context"
	"os/exec"
	"runtime"
	"testing"
)

// A child that exited is reaped, also when its watcher is told to end at the same time: no zombie stays.
func TestExitedChildIsReaped(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid, "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Child(cmd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !p.Gone() { // a zombie is
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.WatchExit(ctx); err != nil || cmd.ProcessState == nil {
		t.Errorf("not reaped: %v", err)
		_ = cmd.Wait()
	}
}
