package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// patience bounds the start and the end of a server.
const patience = 60 * time.Second

// Server is one PostgreSQL server in a folder of its own, on a unix socket and a loopback port, without a password. Its
// methods are for one goroutine at a time.
type Server struct {
	bin, dir string
	as       *syscall.Credential
	port     int
	settings []string
	made     atomic.Int64 // databases

	process *os.Process
	ended   chan error
}

// Start makes a server in a new folder below parent and starts it. settings are lines such as "shared_buffers=256MB"; the
// server's own defaults stay for all others, so fsync is on. The caller must Stop it.
func Start(ctx context.Context, parent string, settings ...string) (_ *Server, err error) {
	s := &Server{settings: settings}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	if s.as, err = account(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(parent, "soma-pg-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot start PostgreSQL: %w", err), os.RemoveAll(s.dir))
		}
	}()
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	init := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8",
		"--locale=C", "--no-sync")
	init.Dir, init.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: s.as}
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	return s, s.run(ctx)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// run starts the server's process and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir, "-h", "127.0.0.1"}
	for _, line := range s.settings {
		args = append(args, "-c", line)
	}
	started := make(chan error)
	s.ended = make(chan error, 1)
	go func() {
		// The signal at the parent's death is bound to the thread that started the process, so this one stays with it. It must
		// not end with the goroutine: other processes may have been started on it before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c := exec.Command(filepath.Join(s.bin, "postgres"), args...)
		c.Dir, c.Stdout, c.Stderr = s.dir, log, log
		c.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
		err := c.Start()
		s.process = c.Process
		started <- err
		if err == nil {
			s.ended <- c.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case end := <-s.ended:
			s.ended <- end
			return fmt.Errorf("the server ended (%v): %s", end, s.lastLog())
		case <-ctx.Done():
			return errors.Join(err, s.Kill())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) lastLog() []byte {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return bytes.TrimSpace(b[max(0, len(b)-2000):])
}

func (s *Server) ping(ctx context.Context) error {
	c, err := pgconn.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// DSN returns how a database is reached through the unix socket.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s sslmode=disable", s.dir, s.port, database)
}

// Address returns the loopback address, for tests that put something between.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Exec runs SQL as the server's owner in a database.
func (s *Server) Exec(ctx context.Context, database, text string) error {
	c, err := pgconn.Connect(ctx, s.DSN(database))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, text).ReadAll()
	return errors.Join(err, c.Close(ctx))
}

// Create makes an empty database, or a copy of template where that is not empty; nobody may be connected to that one.
func (s *Server) Create(ctx context.Context, template string) (name string, err error) {
	name = fmt.Sprintf("t%d", s.made.Add(1))
	text := "create database " + name
	if template != "" {
		text += " template " + template
	}
	return name, s.Exec(ctx, "postgres", text)
}

// Stop ends the server in order and deletes its folder.
func (s *Server) Stop() error {
	err := s.end(syscall.SIGINT)
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Kill ends the server and all its sessions at once with SIGKILL, as a crash would.
func (s *Server) Kill() error {
	// A new server does not start while one of them is left.
	pid := strconv.Itoa(s.process.Pid)
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		return err
	}
	// All at once: a session that notices the death of the server says goodbye.
	_ = s.process.Kill()
	pids := make([]int, 0, 16)
	for _, child := range strings.Fields(string(children)) {
		n, err := strconv.Atoi(child)
		if err != nil {
			return err
		}
		_ = syscall.Kill(n, syscall.SIGKILL)
		pids = append(pids, n)
	}
	if err := s.end(syscall.SIGKILL); err != nil {
		return err
	}
	for _, n := range pids {
		if err := gone(n); err != nil {
			return err
		}
	}
	return nil
}

// gone kills a process that is nobody's child any more, and waits for its end.
func gone(pid int) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		switch err := syscall.Kill(pid, syscall.SIGKILL); {
		case errors.Is(err, syscall.ESRCH):
			return nil
		case err != nil:
			return err
		}
	}
	return fmt.Errorf("process %d of PostgreSQL does not end", pid)
}

// Restart starts the server again after Kill; it recovers what was committed.
func (s *Server) Restart(ctx context.Context) error { return s.run(ctx) }

func (s *Server) end(sig syscall.Signal) error {
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(patience):
		_ = s.process.Kill()
		<-s.ended
		return errors.New("PostgreSQL did not end in time")
	}
}
