package postgrestest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inChild makes the test binary a process that starts a server and waits to be killed.
const inChild = "POSTGRESTEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(inChild); dir != "" {
		child(dir)
	}
	os.Exit(Main(m))
}

func child(dir string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := Start(ctx, dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.process.Pid)
	<-ctx.Done()
}

// The server does not outlive the process that started it, though that is killed without a word.
func TestEndsWithItsProcess(t *testing.T) {
	dir, err := os.MkdirTemp("", "postgrestest-") // the server's user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), inChild+"="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the child says %q", line)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); syscall.Kill(pid, 0) == nil; <-tick.C {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") Z ") {
			break // only its name is left
		}
		if time.Now().After(end) {
			t.Fatal("the server lives on")
		}
	}
}

// fsync is on, and what was committed is there after a kill.
func TestKilledServerRecovers(t *testing.T) {
	s := Shared(t)
	name, err := s.Create(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) {
		t.Helper()
		if err := s.Exec(t.Context(), name, text); err != nil {
			t.Fatal(err)
		}
	}
	check("create table t (n int); insert into t values (7); do $$ begin assert current_setting('fsync') = 'on'; end $$")
	if err := errors.Join(s.Kill(), s.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	check("do $$ begin assert (select n from t) = 7; end $$")
	copied, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), copied, "do $$ begin assert (select n from t) = 7; end $$"); err != nil {
		t.Error(err)
	}
}

func TestFoundPrograms(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	if v := major(dir); v < least {
		t.Errorf("version %d in %s", v, dir)
	}
	if v := major(t.TempDir()); v != 0 {
		t.Errorf("version %d in an empty folder", v)
	}
	old := t.TempDir()
	for program, text := range map[string]string{"initdb": "", "postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.24 (old)'\n"} {
		if err := os.WriteFile(filepath.Join(old, program), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if v := major(old); v != 9 {
		t.Errorf("version %d, want 9", v)
	}
}
