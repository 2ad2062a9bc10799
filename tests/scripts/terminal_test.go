package scripts

import (
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

	"golang.org/x/sys/unix"
)

// person sits at a terminal where a program runs.
type person struct {
	t       *testing.T
	master  *os.File
	fd      int          // its number: asking the file for it would make reads of it unending
	before  unix.Termios // how the terminal was set
	program *exec.Cmd
	pieces  chan string
	raw     strings.Builder // all that the program has written
	unread  string          // of it, without what moves the cursor
}

// sit runs a program at a terminal of its own, in a folder, until the test ends.
func sit(t *testing.T, env []string, folder, program string, args ...string) *person {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	p := &person{t: t, master: master, fd: fd, program: exec.Command(program, args...), pieces: make(chan string)}
	p.resize(80, 24)
	p.before = p.mode()
	p.program.Env, p.program.Dir = env, folder
	p.program.Stdin, p.program.Stdout, p.program.Stderr = slave, slave, slave
	p.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.program.Process.Kill(); _ = p.program.Wait() })
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		defer close(p.pieces)
		for {
			b := make([]byte, 4096)
			n, err := master.Read(b)
			if err != nil {
				return
			}
			select {
			case p.pieces <- string(b[:n]):
			case <-over:
				return
			}
		}
	}()
	return p
}

func (p *person) resize(width, height uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(p.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		p.t.Fatal(err)
	}
}

// mode is how the terminal is set.
func (p *person) mode() unix.Termios {
	p.t.Helper()
	mode, err := unix.IoctlGetTermios(p.fd, unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *mode
}

func (p *person) types(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// moves are the sequences that say how and where text is shown.
var moves = regexp.MustCompile(`\x1b\[[0-?]*[@-~]|\r`)

// until reads on until a text has come, and returns what came before it.
func (p *person) until(text string) string {
	p.t.Helper()
	late := time.After(patience)
	for {
		if before, after, found := strings.Cut(p.unread, text); found {
			p.unread = after
			return before
		}
		select {
		case piece, ok := <-p.pieces:
			if !ok {
				p.t.Fatalf("it ended before %q; it wrote %q", text, p.raw.String())
			}
			p.raw.WriteString(piece)
			p.unread += moves.ReplaceAllString(piece, "")
		case <-late:
			p.t.Fatalf("no %q within %s; it wrote %q", text, patience, p.raw.String())
		}
	}
}

// ends reads to the end and returns the exit code.
func (p *person) ends() int {
	p.t.Helper()
	late := time.After(patience)
	for open := true; open; {
		var piece string
		select {
		case piece, open = <-p.pieces:
			p.raw.WriteString(piece)
			p.unread += moves.ReplaceAllString(piece, "")
		case <-late:
			p.t.Fatalf("it does not end; it wrote %q", p.raw.String())
		}
	}
	_ = p.program.Wait()
	return p.program.ProcessState.ExitCode()
}

// place is a home and a folder to work in, for programs of one test.
func place(t *testing.T, more ...string) (env []string, home, folder string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "py") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	home, folder = filepath.Join(dir, "home"), filepath.Join(dir, "ws")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	env = append(os.Environ(), "SOMA_HOME="+home, owner+"="+strconv.Itoa(os.Getpid()), "TERM=xterm-256color", "NO_COLOR=", "VIRTUAL_ENV=")
	env = append(env, more...)
	t.Cleanup(func() {
		stop := exec.Command("soma", "stop", "--kernels")
		stop.Env = env
		_ = stop.Run() // there may be none
		_ = os.RemoveAll(dir)
	})
	return env, home, folder
}

// killDaemon kills the daemon of a home with SIGKILL.
func killDaemon(t *testing.T, env []string) {
	t.Helper()
	status := exec.CommandContext(t.Context(), "soma", "status", "-o", "json")
	status.Env = env
	out, err := status.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"pid":(\d+)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("no pid in %s", out)
	}
	pid, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(fmt.Errorf("daemon %d: %w", pid, err))
	}
}
