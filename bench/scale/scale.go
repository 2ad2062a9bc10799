// Package scale measures what one turn, one beat, one hint and one connection cost: the factors of the arithmetic in
// docs/scale.md. CPU time counts, not time, so that other programs disturb little.
//
// It wires the real engine and the real stores.
package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/bench/measure"
	"soma/bench/turns"
	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/internal/store/postgres"
	"soma/internal/store/postgres/postgrestest"
	"soma/internal/store/sqlite"
)

const (
	clients   = 64
	seconds   = 4
	nodes     = 1000
	listeners = 64
	waiting   = 100_000 // rows of the outbox
	page      = 4096    // of ids, as the engine reads them
)

// File returns the line turn_disk_bytes: what a turn writes on SQLite, the copies from the WAL into the database included.
func File(ctx context.Context, dir, fs string) (line measure.Line, err error) {
	s, err := sqlite.Open(ctx, filepath.Join(dir, "turns.db"), sqlite.Options{})
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	before, err := written()
	if err != nil {
		return line, err
	}
	r, err := drive(ctx, s, filepath.Join(dir, "inflight"))
	if err != nil {
		return line, err
	}
	after, err := written()
	return measure.Line{Name: "turn_disk_bytes", Value: (after - before) / float64(r.N), Unit: "bytes", N: r.N, FS: fs}, err
}

// drive lets clients send deliveries to neurons for some seconds.
func drive(ctx context.Context, s neuron.Store, inflight string) (r measure.Result, err error) {
	e, err := turns.Start(ctx, s, inflight)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, e.Stop(ctx)) }()
	return measure.Drive(seconds*time.Second, clients, turns.Deliver(ctx, e))
}

// server is a PostgreSQL of the bench's own, and a connection to look at it.
type server struct {
	*postgrestest.Server
	dsn   string
	watch *pgconn.PgConn
	root  int // pid of the server
}

// Shared returns the lines of PostgreSQL: turn_pg_wal_bytes, turn_pg_cpu, turn_pg_node_cpu, connection_mb,
// beat_1000_cpu, beat_1000_node_cpu, sweep_row_cpu, hint_cpu and hint_node_cpu.
func Shared(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	if err := os.Chmod(dir, 0o711); err != nil { // the server may be another user's
		return nil, err
	}
	p := &server{}
	if p.Server, err = postgrestest.Start(ctx, dir, "shared_buffers=512MB", "max_wal_size=8GB", "wal_buffers=16MB"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	name, err := p.Create(ctx, "")
	if err != nil {
		return nil, err
	}
	p.dsn = p.DSN(name)
	s, err := postgres.Open(ctx, p.dsn, postgres.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if p.watch, err = pgconn.Connect(ctx, p.dsn); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.watch.Close(ctx)) }()
	if p.root, _, err = stat(int(p.watch.PID())); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context, *postgres.Store, string) ([]measure.Line, error){p.turns, p.connections, p.beats, p.sweeps, p.hints} {
		more, err := part(ctx, s, dir)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	for i := range lines {
		lines[i].FS = fs
	}
	return lines, nil
}

// number reads one number from the server.
func (p *server) number(ctx context.Context, query string) (n float64, err error) {
	r, err := p.watch.Exec(ctx, query).ReadAll()
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(r[0].Rows[0][0]), &n)
	return n, err
}

// used returns the CPU time that the server and this program have used.
func (p *server) used() (theirs, ours time.Duration, err error) {
	theirs, err = tree(p.root)
	return theirs, own(), err
}

func micros(name string, d time.Duration, n int) measure.Line {
	return measure.Line{Name: name, Value: float64(d.Nanoseconds()) / 1000 / float64(n), Unit: "us", N: n}
}

const walBytes = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"

// turns measures what a turn costs the server and its node, clients included.
func (p *server) turns(ctx context.Context, s *postgres.Store, dir string) ([]measure.Line, error) {
	wal, err := p.number(ctx, walBytes)
	if err != nil {
		return nil, err
	}
	theirs, ours, err := p.used()
	if err != nil {
		return nil, err
	}
	r, err := drive(ctx, turns.Alone{Store: s}, filepath.Join(dir, "inflight"))
	if err != nil {
		return nil, err
	}
	theirsEnd, oursEnd, err := p.used()
	if err != nil {
		return nil, err
	}
	end, err := p.number(ctx, walBytes)
	return []measure.Line{
		{Name: "turn_pg_wal_bytes", Value: (end - wal) / float64(r.N), Unit: "bytes", N: r.N},
		micros("turn_pg_cpu", theirsEnd-theirs, r.N), micros("turn_pg_node_cpu", oursEnd-ours, r.N),
	}, err
}

// connections measures the memory that a connection of a node takes at the server, once it has been used.
func (p *server) connections(ctx context.Context, _ *postgres.Store, _ string) ([]measure.Line, error) {
	r, err := p.watch.Exec(ctx, "select pid from pg_stat_activity where application_name = 'soma' and backend_type = 'client backend'").ReadAll()
	if err != nil {
		return nil, err
	}
	var sum float64
	for _, row := range r[0].Rows {
		var pid int
		if _, err := fmt.Sscan(string(row[0]), &pid); err != nil {
			return nil, err
		}
		n, err := private(pid)
		if err != nil {
			return nil, err
		}
		sum += n
	}
	n := len(r[0].Rows)
	if n == 0 {
		return nil, errors.New("the server shows no connection of the store")
	}
	return []measure.Line{{Name: "connection_mb", Value: sum / 1e6 / float64(n), Unit: "MB", N: n}}, nil
}

// beats measures one beat among a thousand nodes, at the server and at the node; bare is one of a node that is alone.
func (p *server) beats(ctx context.Context, s *postgres.Store, _ string) ([]measure.Line, error) {
	fence, err := s.Claim(ctx, "bench")
	if err != nil {
		return nil, err
	}
	beat := func() (server, node measure.Line, err error) {
		theirs, ours, err := p.used()
		if err != nil {
			return server, node, err
		}
		r, err := measure.Drive(seconds*time.Second, 1, func(int, int) error {
			_, err := s.Beat(ctx, fence, lease.NodeInfo{URL: "https://127.0.0.1:1", Cert: strings.Repeat("c", 64)})
			return err
		})
		if err != nil {
			return server, node, err
		}
		theirsEnd, oursEnd, err := p.used()
		return micros("beat_1000_cpu", theirsEnd-theirs, r.N), micros("beat_1000_node_cpu", oursEnd-ours, r.N), err
	}
	server, node, err := beat()
	if err != nil {
		return nil, err
	}
	_, err = p.watch.Exec(ctx, fmt.Sprintf(`insert into node (id, epoch, url, cert, beat, started_at)
		select 'node ' || n, 1, 'https://127.0.0.1:1', repeat('c', 64), 0, 0 from generate_series(1, %d) n`, nodes)).ReadAll()
	if err != nil {
		return nil, err
	}
	bare := [2]float64{server.Value, node.Value}
	server, node, err = beat()
	server.Bare, node.Bare = bare[0], bare[1]
	return []measure.Line{server, node}, err
}

// sweeps measures what a row that waits in the outbox costs the server at each look that a node takes at all of them.
func (p *server) sweeps(ctx context.Context, s *postgres.Store, _ string) ([]measure.Line, error) {
	_, err := p.watch.Exec(ctx, fmt.Sprintf(`insert into outbox (id, place, target, delivery, due, first_try, tried, attempts, crashes, alarm)
		select decode(lpad(to_hex(n), 32, '0'), 'hex'), n %% 256, 'me/bench/' || n, convert_to(repeat('x', 400), 'UTF8'), 0, 0, 0, 0, 0, 1
		from generate_series(1, %d) n`, waiting)).ReadAll()
	if err != nil {
		return nil, err
	}
	theirs, _, err := p.used()
	if err != nil {
		return nil, err
	}
	rows := 0
	_, err = measure.Drive(seconds*time.Second, 1, func(int, int) error {
		for after, n := (ident.ID{}), page; n == page; {
			n = 0
			err := s.Query(ctx, neuron.SelectOutboxIDs, []any{after[:], int64(page)}, func(scan func(...any) error) error {
				var id []byte
				var place int64
				if err := scan(&id, &place); err != nil {
					return err
				}
				n++
				copy(after[:], id)
				return nil
			})
			if err != nil {
				return err
			}
			rows += n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	theirsEnd, _, err := p.used()
	return []measure.Line{micros("sweep_row_cpu", theirsEnd-theirs, rows)}, err
}

// hints measures what one announcement costs for each node that listens: at the server, and at the node.
func (p *server) hints(ctx context.Context, s *postgres.Store, _ string) (lines []measure.Line, err error) {
	listen, stop := context.WithCancel(ctx)
	var heard atomic.Int64
	ended := make(chan error, listeners)
	var others []*postgres.Store
	defer func() {
		stop()
		for range others {
			<-ended // as it was told to
		}
		for _, o := range others {
			err = errors.Join(err, o.Close())
		}
	}()
	for range listeners {
		o, err := postgres.Open(ctx, p.dsn, postgres.Options{})
		if err != nil {
			return nil, err
		}
		others = append(others, o)
		go func() {
			ended <- o.Listen(listen, func(h []neuron.Hint) { heard.Add(int64(len(h))) })
		}()
	}
	one := []neuron.Hint{{ID: ident.New(time.Now()), Place: 7}}
	for n := int64(0); n < listeners; n = heard.Swap(0) { // until all listen
		if err := s.Announce(ctx, one); err != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	theirs, ours, err := p.used()
	if err != nil {
		return nil, err
	}
	r, err := measure.Drive(seconds*time.Second, 1, func(int, int) error { return s.Announce(ctx, one) })
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); heard.Load() < int64(r.N*listeners); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d hints were heard %d times", r.N, heard.Load())
		}
	}
	theirsEnd, oursEnd, err := p.used()
	return []measure.Line{
		micros("hint_cpu", theirsEnd-theirs, r.N*listeners), micros("hint_node_cpu", oursEnd-ours, r.N*listeners),
	}, err
}
