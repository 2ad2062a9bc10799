package scripts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"soma/internal/cli"
	"soma/internal/config"
	"soma/internal/daemon"
)

// patience bounds every wait of a script.
const patience = 60 * time.Second

// TestMain is the program itself where a script runs it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"soma": func() {
		serve := func(ctx context.Context, home config.Home, cfg *config.Config, o cli.ServeOptions) error {
			if err := endWith(os.Getenv(owner)); err != nil {
				return err
			}
			return daemon.Run(ctx, home, cfg, daemon.Options{Build: o.Build, Log: o.Log, Env: os.LookupEnv, Environ: os.Environ})
		}
		os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Hooks{Serve: serve}))
	}})
}

// owner names the variable with the process of the test that a daemon belongs to.
const owner = "TEST_PROCESS"

// endWith kills this process when another one ends: a test that is killed tidies nothing.
func endWith(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return fmt.Errorf("cannot tell whose daemon this is: %w", err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return fmt.Errorf("cannot watch process %d: %w", n, err)
	}
	go func() {
		for {
			ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if ended == 1 || err != nil && !errors.Is(err, unix.EINTR) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}()
	return nil
}

// A daemon of a script does not outlive a test that is killed.
func TestDaemonsEndWithTheirTest(t *testing.T) {
	test := exec.CommandContext(t.Context(), "sleep", "600")
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(t.TempDir(), "home")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	daemon := exec.CommandContext(ctx, "soma", "serve")
	daemon.Env = append(os.Environ(), "SOMA_HOME="+home, owner+"="+strconv.Itoa(test.Process.Pid))
	said, err := daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 1)); err != nil { // it serves, or says why not
		t.Fatal(err)
	}
	if err := test.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = test.Wait()
	err = daemon.Wait()
	if status, ok := daemon.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Errorf("the daemon ended with %v (%v)", err, ctx.Err())
	}
}

// TestScripts runs each script as a test of its own; the rows that one proves stand in it.
func TestScripts(t *testing.T) {
	python, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("the scripts need python3: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			bin, _, _ := strings.Cut(env.Getenv("PATH"), string(filepath.ListSeparator))
			env.Setenv("PATH", strings.Join([]string{bin, filepath.Dir(strings.TrimSpace(string(python))), "/usr/bin", "/bin"}, ":"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv(owner, strconv.Itoa(os.Getpid()))
			env.Setenv("SOMA_HOME", filepath.Join(env.WorkDir, "home"))
			env.Defer(func() { tidy(t, env) })
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"until": until, "daemonpid": daemonPID, "gone": gone, "nobody": nobody, "tally": tally, "same": same, "capture": capture,
			"idle": idle,
		},
	})
}

// tidy ends what a script left behind, however it ended.
func tidy(t *testing.T, env *testscript.Env) {
	home := env.Getenv("SOMA_HOME")
	if len(processesOf(home)) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "soma", "stop", "--kernels")
	cmd.Env = env.Vars
	out, err := cmd.CombinedOutput()
	for _, pid := range processesOf(home) {
		t.Logf("process %d of %s was left behind: stop said %q, %v", pid, home, out, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processesOf lists the OS processes whose command line or environment names a home, without zombies and this one.
func processesOf(home string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Of a process that has ended meanwhile nothing can be read; of a zombie both are empty.
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		vars, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(args, []byte(home+"/")) || bytes.Contains(vars, []byte("SOMA_HOME="+home+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// await asks again until the answer is yes.
func await(ts *testscript.TestScript, what string, ask func() bool) {
	deadline := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ask() {
		select {
		case <-deadline:
			ts.Fatalf("waited %s for %s", patience, what)
		case <-again.C:
		}
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case len(args) == 2 && args[0] == "exists":
		await(ts, args[1], func() bool {
			_, err := os.Stat(ts.MkAbs(args[1]))
			return (err == nil) != neg
		})
	case len(args) > 2 && args[0] == "stdout":
		pattern, err := regexp.Compile(`(?m)` + args[1])
		ts.Check(err)
		await(ts, args[1], func() bool {
			_ = ts.Exec(args[2], args[3:]...) // what it prints counts
			return pattern.MatchString(ts.ReadFile("stdout")) != neg
		})
	case len(args) > 0:
		await(ts, strings.Join(args, " "), func() bool { return (ts.Exec(args[0], args[1:]...) == nil) != neg })
	default:
		ts.Fatalf("until what?")
	}
}

func daemonPID(ts *testscript.TestScript, _ bool, args []string) {
	text, err := os.ReadFile(filepath.Join(ts.Getenv("SOMA_HOME"), "soma.lock"))
	ts.Check(err)
	var holder config.Holder
	ts.Check(json.Unmarshal(text, &holder))
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	ts.Setenv(cmp.Or(name, "DAEMON"), strconv.Itoa(holder.PID))
}

func gone(ts *testscript.TestScript, _ bool, args []string) {
	await(ts, "the end of process "+args[0], func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", args[0]))
		_, state, _ := strings.Cut(string(text), ") ")
		return err != nil || strings.HasPrefix(state, "Z")
	})
}

func nobody(ts *testscript.TestScript, _ bool, _ []string) {
	await(ts, "the end of all processes of the home", func() bool { return len(processesOf(ts.Getenv("SOMA_HOME"))) == 0 })
}

func tally(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: tally N TEXT FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	n := 0
	for line := range strings.Lines(ts.ReadFile(args[2])) {
		if strings.Contains(line, args[1]) {
			n++
		}
	}
	if (n == want) == neg {
		ts.Fatalf("%d lines of %s hold %q", n, args[2], args[1])
	}
}

// What differs from run to run: times, ids of cells, and tokens, which a script estimates.
var varies = regexp.MustCompile(`\d+\.\d+ s\]|tokens \d+|seconds \d+\.\d+|--cell [0-9a-z]{26}`)

func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: same FILE FILE")
	}
	got := varies.ReplaceAllString(ts.ReadFile(args[0]), "*")
	want := varies.ReplaceAllString(ts.ReadFile(args[1]), "*")
	if (got == want) == neg {
		ts.Fatalf("%s is\n%s\nand %s\n%s", args[0], got, args[1], want)
	}
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: capture VARIABLE REGEXP")
	}
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	m := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("%q has no group that matches the output", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// idle watches an OS process for three seconds, a few times at most until it is at rest: it must not wake more often than it may.
func idle(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: idle PID WAKE-UPS")
	}
	most, err := strconv.Atoi(args[1])
	ts.Check(err)
	woke := 0
	for range 4 {
		before := wakeUps(ts, args[0])
		<-time.After(3 * time.Second)
		if woke = wakeUps(ts, args[0]) - before; neg || woke <= most {
			break
		}
	}
	if (woke <= most) == neg {
		ts.Fatalf("process %s woke %d times in 3 s", args[0], woke)
	}
}

// wakeUps counts how often the threads of an OS process have gone to sleep so far.
func wakeUps(ts *testscript.TestScript, pid string) (sum int) {
	files, err := filepath.Glob("/proc/" + pid + "/task/*/status")
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("there is no process %s", pid)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // of a thread that has ended nothing can be read
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, _ := strconv.Atoi(strings.TrimSpace(line))
		sum += n
	}
	return sum
}
