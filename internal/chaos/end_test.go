package chaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startOnly is set for a run of this program that starts a daemon and then waits to be killed.
const startOnly = "TEST_START_ONLY"

// A daemon ends with the program that kills and starts it, however that ends.
func TestNothingOutlivesItsChaos(t *testing.T) {
	if dir := os.Getenv(startOnly); dir != "" {
		d, err := Start(filepath.Join(dir, "program"), filepath.Join(dir, "home"), os.Environ(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("started", d.cmd.Process.Pid)
		_ = d.cmd.Wait() // for ever
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingOutlivesItsChaos$")
	cmd.Env = append(os.Environ(), startOnly+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := 0
	for lines := bufio.NewScanner(out); child == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "started "); ok {
			child, err = strconv.Atoi(text)
		}
	}
	if child == 0 || err != nil {
		t.Fatalf("no daemon was started (%v): %v", err, cmd.Wait())
	}
	fd, err := unix.PidfdOpen(child, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
		t.Fatalf("the daemon has ended already (%v)", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(10*time.Second/time.Millisecond)); n != 1 || err != nil {
		t.Errorf("the daemon lives on (%v)", err)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
