package config

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is the second daemon as well: asked so, it tries to lock the home and says how that went, then waits for its
// input to end.
func TestMain(m *testing.M) {
	dir := os.Getenv("CONFIG_TEST_LOCK")
	if dir == "" {
		goleak.VerifyTestMain(m)
		return
	}
	h, _ := HomeAt(dir)
	lock, err := h.Lock()
	var locked *LockedError
	if errors.As(err, &locked) {
		_ = json.NewEncoder(os.Stdout).Encode(locked.Holder)
		os.Exit(0)
	}
	if err != nil {
		os.Exit(3)
	}
	os.Stdout.WriteString("holds\n")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	_ = lock.Release()
}

func env(pairs ...string) Env {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func newHome(t *testing.T) Home {
	t.Helper()
	h, err := HomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	return h
}

// I-01
func TestLocateHome(t *testing.T) {
	for _, c := range []struct{ somaHome, userHome, want string }{
		{"/srv/soma", "/home/eve", "/srv/soma"},
		{"", "/home/eve", "/home/eve/.soma"},
		{"/srv//soma/", "", "/srv/soma"},
	} {
		h, err := LocateHome(env("SOMA_HOME", c.somaHome, "HOME", c.userHome))
		if err != nil || h.Dir() != c.want {
			t.Errorf("%v: %q, %v", c, h.Dir(), err)
		}
	}
	if _, err := LocateHome(env()); err == nil {
		t.Error("a home without SOMA_HOME and HOME")
	}
	t.Chdir(t.TempDir())
	wd, _ := os.Getwd()
	if h, err := LocateHome(env("SOMA_HOME", "rel")); err != nil || h.Dir() != filepath.Join(wd, "rel") {
		t.Errorf("relative home: %q, %v", h.Dir(), err)
	}
}

// I-01
func TestCreateGivesTheTreeAndItsModes(t *testing.T) {
	h := newHome(t)
	modes := func() string {
		var b strings.Builder
		err := filepath.WalkDir(h.Dir(), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			rel, _ := filepath.Rel(h.Dir(), path)
			b.WriteString(rel + " " + info.Mode().String() + "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const want = `. drwx------
agents drwx------
cache drwx------
hooks drwx------
kernel-bundles drwx------
kernels drwx------
output drwx------
run drwx------
spool drwx------
`
	if got := modes(); got != want {
		t.Errorf("tree:\n%s", got)
	}
	if err := os.Chmod(h.Run(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	if got := modes(); got != want {
		t.Errorf("tree after the second Create:\n%s", got)
	}
	for got, want := range map[string]string{
		h.Database(): "soma.db", h.Socket(): "soma.sock", h.TokenFile(): "token", h.ConfigFile(): "config.yaml", h.DaemonLog(): "daemon.log",
	} {
		if got != filepath.Join(h.Dir(), want) {
			t.Errorf("%s is not %s", got, want)
		}
	}
}

// I-01
func TestCreateRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h, _ := HomeAt(dir)
	if err := h.Create(); err != nil {
		t.Errorf("an empty directory is not taken over: %v", err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var bad *HomeError
	if err := h.Create(); !errors.As(err, &bad) || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Errorf("a directory in use is taken over: %v", err)
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o755 {
		t.Errorf("the refused directory has mode %v now", info.Mode())
	}

	h = newHome(t)
	if err := os.Remove(h.Run()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), h.Run()); err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); !errors.As(err, &bad) {
		t.Errorf("a link is taken for a directory of the home: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h, _ = HomeAt(filepath.Join(file, "home"))
	if err := h.Create(); !errors.As(err, &bad) {
		t.Errorf("a home below a file: %v", err)
	}
}

func second(t *testing.T, h Home) (line string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CONFIG_TEST_LOCK="+h.Dir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), func() { _ = in.Close(); _ = cmd.Wait() }
}

// I-02
func TestLockNamesItsHolder(t *testing.T) {
	h := newHome(t)
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	line, end := second(t, h)
	end()
	var holder Holder
	if err := json.Unmarshal([]byte(line), &holder); err != nil || holder != (Holder{os.Getpid(), h.Socket()}) {
		t.Errorf("the second one says %q (%v)", line, err)
	}
	var locked *LockedError
	if _, err := h.Lock(); !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), h.Socket()) {
		t.Errorf("the same process locks twice: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	line, end = second(t, h)
	if line != "holds" {
		t.Errorf("after the release the second one says %q", line)
	}
	if _, err := h.Lock(); !errors.As(err, &locked) || locked.PID == os.Getpid() || locked.PID == 0 {
		t.Errorf("lock beside the second one: %v", err)
	}
	end()
	if lock, err = h.Lock(); err != nil {
		t.Fatal(err)
	}
	_ = lock.Release()
}

// What a killed daemon was about to start may hold its lock for a moment: a hold of a dead process is waited for, for a bound.
func TestHoldOfADeadProcess(t *testing.T) {
	h := newHome(t)
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(h.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	hold := func(pid int) {
		t.Helper()
		if err := os.WriteFile(h.lockFile(), fmt.Appendf(nil, `{"pid":%d,"socket":"s"}`, pid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var locked *LockedError
	hold(os.Getpid())
	began := time.Now()
	if _, err := h.Lock(); !errors.As(err, &locked) || time.Since(began) >= deadWait {
		t.Errorf("a living one: %v after %s", err, time.Since(began))
	}
	hold(cmd.Process.Pid)
	began = time.Now()
	if _, err := h.Lock(); !errors.As(err, &locked) || time.Since(began) < deadWait {
		t.Errorf("a dead one: %v after %s", err, time.Since(began))
	}
	freed := make(chan error, 1)
	time.AfterFunc(deadWait/10, func() { freed <- unix.Flock(int(f.Fd()), unix.LOCK_UN) })
	lock, err := h.Lock()
	if ferr := <-freed; ferr != nil {
		t.Error(ferr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// I-02: a python kernel that outlives its daemon must not keep the home locked.
func TestChildrenDoNotInheritTheLock(t *testing.T) {
	h := newHome(t)
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	in, _ := cmd.StdinPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if lock, err = h.Lock(); err != nil {
		t.Fatalf("with a child alive: %v", err)
	}
	_ = lock.Release()
}

// I-02
func TestLockOfAMissingHome(t *testing.T) {
	h, _ := HomeAt(filepath.Join(t.TempDir(), "none"))
	var bad *HomeError
	if _, err := h.Lock(); !errors.As(err, &bad) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// I-01: a home whose path is too long for a socket address works all the same.
func TestSocketAtPathsOfAnyLength(t *testing.T) {
	base := t.TempDir()
	for _, pad := range []int{0, 200} {
		dir := base
		for n := pad; n > 0; n -= 50 {
			dir = filepath.Join(dir, strings.Repeat("d", 50))
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "soma.sock")
		for range 2 { // the second round finds a dead socket in the way
			l, err := ListenSocket(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != fs.ModeSocket|0o600 {
				t.Errorf("socket %v, %v", info.Mode(), err)
			}
			greet(t, l, path)
			if pad == 0 {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the socket stays after Close: %v", err)
				}
			} else if err := l.UnixListener.Close(); err != nil { // like a killed daemon
				t.Error(err)
			}
		}
		if _, err := DialSocket(t.Context(), path); err == nil {
			t.Error("a dead socket answers")
		}
	}
}

func greet(t *testing.T, l net.Listener, path string) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte("hello\n"))
			_ = conn.Close()
		}
		done <- err
	}()
	conn, err := DialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "hello\n" {
		t.Errorf("read %q, %v", line, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The address of a long path names a directory by a number, which by the time of Close means another directory.
func TestCloseRemovesItsOwnSocketOnly(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	other := t.TempDir()
	theirs := filepath.Join(other, "soma.sock")
	for _, err := range []error{os.Mkdir(long, 0o700), os.WriteFile(theirs, nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := ListenSocket(filepath.Join(long, "soma.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		dir, err := os.Open(other)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Errorf("Close removed another socket: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(long, "soma.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close left its socket: %v", err)
	}
}

func TestSocketDoesNotReplaceAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soma.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil {
		t.Error("a file was taken for a dead socket")
	}
	if text, _ := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file holds %q now", text)
	}
}

// I-50
func TestTokenRotationWorksAtOnce(t *testing.T) {
	h := newHome(t)
	c := h.TokenChecker()
	if ok, err := c.Check(""); ok || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a token file: %v, %v", ok, err)
	}
	if err := h.EnsureToken(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(h.TokenFile())
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("token file %v, %v", info.Mode(), err)
	}
	first, err := h.ReadToken()
	if err != nil || len(first.Reveal()) != 64 {
		t.Fatalf("token of %d digits, %v", len(first.Reveal()), err)
	}
	if err := h.EnsureToken(); err != nil {
		t.Fatal(err)
	}
	check := func(token string, want bool) {
		t.Helper()
		if ok, err := c.Check(token); ok != want || err != nil {
			t.Errorf("accepted %v, want %v (%v)", ok, want, err)
		}
	}
	check(first.Reveal(), true)
	check(first.Reveal()[:63], false)
	check(first.Reveal()+"0", false)
	check("", false)
	if err := h.RotateToken(); err != nil {
		t.Fatal(err)
	}
	second, err := h.ReadToken()
	if err != nil || first == second {
		t.Fatalf("the token is not new (%v)", err)
	}
	check(first.Reveal(), false)
	check(second.Reveal(), true)
	left, err := filepath.Glob(filepath.Join(h.Dir(), ".token-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// I-50
func TestBadTokenFilesAcceptNothing(t *testing.T) {
	h := newHome(t)
	checker := h.TokenChecker()
	digits := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		text string
		mode fs.FileMode
	}{
		"empty":      {"", 0o600},
		"short":      {"abcd", 0o600},
		"not hex":    {strings.Repeat("zz", 32), 0o600},
		"long":       {digits + "ab", 0o600},
		"group read": {digits, 0o640},
	} {
		_ = os.Remove(h.TokenFile())
		if err := os.WriteFile(h.TokenFile(), []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if ok, err := checker.Check(c.text); ok || err == nil || strings.Contains(err.Error(), digits) {
			t.Errorf("%s: accepted %v, %v", name, ok, err)
		}
		// The next daemon replaces what is no token, and leaves a real one to the person whose mistake its mode is.
		if err := h.EnsureToken(); err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReadToken(); (err == nil) != (c.mode == 0o600) {
			t.Errorf("%s: after the next start: %v", name, err)
		}
	}
}
