package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"soma/bench/measure"
	"soma/internal/store/postgres/postgrestest"
	"soma/wire"
)

const (
	// takeovers is how often a daemon is killed, severalRounds the seconds of each loop of two_daemons.
	takeovers     = 2
	severalRounds = 4
	// places is how many of them a store has.
	places = 256
)

// Several returns the lines of two daemons on one PostgreSQL: takeover, from the kill of the holder to the first commit of the
// other, and two_daemons, signals of 64 clients at both beside the same ones at one daemon alone. The server waits for the disk.
func Several(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // the server may be another user's
		return nil, err
	}
	server, err := postgrestest.Start(ctx, dir, "shared_buffers=512MB", "max_wal_size=8GB", "wal_buffers=16MB")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	name, err := server.Create(ctx, "")
	if err != nil {
		return nil, err
	}
	s := &several{dir: dir, bin: bin, store: server.DSN(name)}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if s.model, err = s.script(); err != nil {
		return nil, err
	}
	two, err := s.throughput(ctx, fs)
	if err != nil {
		return nil, err
	}
	moved, err := s.takeover(ctx, fs)
	return []measure.Line{moved, two}, err
}

type several struct {
	dir, bin, store, model string
	all                    []*instance // that run
	sessions               int
}

func (s *several) script() (string, error) {
	file := filepath.Join(s.dir, "echo.yaml")
	return "script:" + file, os.WriteFile(file, []byte("name: echo\nsteps:\n  - say: hello\n"), 0o600)
}

// join starts one more daemon on the database.
func (s *several) join(ctx context.Context, name string) (*instance, error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	i, err := place(s.bin, dir)
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, i)
	if err := i.start(ctx, "--store", s.store); err != nil {
		return nil, err
	}
	return i, s.settle(ctx)
}

func (s *several) close(ctx context.Context) error {
	var errs []error
	for _, i := range s.all {
		errs = append(errs, i.close(ctx))
	}
	return errors.Join(errs...)
}

// settle waits until each daemon holds its share.
func (s *several) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for seen := ""; ; {
		shared := true
		for _, i := range s.all {
			st, err := i.client.Status(ctx)
			if err != nil {
				return err
			}
			seen = fmt.Sprintf("%+v", st.Nodes)
			sharing := 0
			for _, n := range st.Nodes {
				if n.Alive && n.Places >= places/len(s.all)-len(s.all) {
					sharing++
				}
			}
			shared = shared && sharing == len(s.all)
		}
		if shared {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the daemons do not share the places, %s: %w", seen, ctx.Err())
		}
	}
}

// open opens a session that the daemon itself holds, with a process that waits, and returns the pid.
func (s *several) open(ctx context.Context, at *instance) (session string, pid uint64, err error) {
	st, err := at.client.Status(ctx)
	if err != nil {
		return "", 0, err
	}
	for range 64 {
		s.sessions++
		session = fmt.Sprintf("bench-%d", s.sessions)
		opened, err := at.client.OpenSession(ctx, session, wire.OpenSession{Workspace: s.dir, Model: s.model, Keep: true})
		if err != nil {
			return "", 0, err
		}
		if got, err := at.client.Session(ctx, session); err != nil || got.Node == st.Node {
			return session, opened.PID, err
		}
	}
	return "", 0, errors.New("no session is held by the daemon")
}

// clients connects the clients, an equal part to each daemon, each to a process that this daemon holds.
func (s *several) clients(ctx context.Context) (all []*rawClient, err error) {
	for n, i := range s.all {
		token, err := i.home.ReadToken()
		if err != nil {
			return all, err
		}
		pids := make([]uint64, socketClients)
		for c := n; c < socketClients; c += len(s.all) {
			if _, pids[c], err = s.open(ctx, i); err != nil {
				return all, err
			}
		}
		connected, err := dialAll(ctx, i.home.Socket(), token.Reveal(), pids)
		for c, client := range connected {
			if pids[c] == 0 {
				_ = client.conn.Close()
			} else {
				all = append(all, client)
			}
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// drive is how many signals a second the daemons answer.
func (s *several) drive(ctx context.Context) (measure.Result, error) {
	all, err := s.clients(ctx)
	defer closeAll(all)
	if err != nil {
		return measure.Result{}, err
	}
	return measure.Drive(severalRounds*time.Second, len(all), func(c, _ int) error { return all[c].signal() })
}

// throughput drives one daemon, two, and one again.
func (s *several) throughput(ctx context.Context, fs string) (measure.Line, error) {
	line := measure.Line{Name: "two_daemons", Unit: "1/s", FS: fs}
	if _, err := s.join(ctx, "a"); err != nil {
		return line, err
	}
	before, err := s.drive(ctx)
	if err != nil {
		return line, err
	}
	b, err := s.join(ctx, "b")
	if err != nil {
		return line, err
	}
	both, err := s.drive(ctx)
	if err != nil {
		return line, err
	}
	s.all = s.all[:1]
	if err := b.close(ctx); err != nil {
		return line, err
	}
	if err := s.settle(ctx); err != nil {
		return line, err
	}
	after, err := s.drive(ctx)
	line.Value, line.Bare, line.N = both.PerSecond, (before.PerSecond+after.PerSecond)/2, both.N
	return line, err
}

// takeover kills the holder of a session and asks the other daemon for it at once.
func (s *several) takeover(ctx context.Context, fs string) (measure.Line, error) {
	line := measure.Line{Name: "takeover", Unit: "s", FS: fs, N: takeovers}
	for n := range takeovers {
		victim, err := s.join(ctx, fmt.Sprintf("victim%d", n))
		if err != nil {
			return line, err
		}
		session, _, err := s.open(ctx, victim)
		if err != nil {
			return line, err
		}
		s.all = s.all[:1]
		victim.kill()
		began := time.Now()
		if _, err := s.all[0].client.Admit(ctx, session, "after", wire.Input{Text: "hello"}); err != nil {
			return line, err
		}
		line.Value = max(line.Value, time.Since(began).Seconds())
	}
	return line, nil
}
