package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// maxStatements bounds the prepared statements of one connection.
const maxStatements = 512

// session is one connection and its prepared statements. One goroutine at a time uses it.
type session struct {
	c     *pgconn.PgConn
	cache map[string]*prepared
	made  int
}

type prepared struct {
	name    string
	args    []uint32
	forms   []int16 // of args
	columns []uint32
	results []int16 // forms of columns
}

func newSession(c *pgconn.PgConn) *session { return &session{c: c, cache: map[string]*prepared{}} }

// prepare returns the prepared statement of a text with numbered placeholders.
func (s *session) prepare(ctx context.Context, text string) (*prepared, error) {
	if p, ok := s.cache[text]; ok {
		return p, nil
	}
	if len(s.cache) >= maxStatements {
		if _, err := s.c.Exec(ctx, "deallocate all").ReadAll(); err != nil {
			return nil, err
		}
		clear(s.cache)
	}
	s.made++
	d, err := s.c.Prepare(ctx, "s"+strconv.Itoa(s.made), text, nil)
	if err != nil {
		return nil, err
	}
	p := &prepared{name: d.Name, args: d.ParamOIDs}
	for _, oid := range d.ParamOIDs {
		p.forms = append(p.forms, form(oid))
	}
	for _, f := range d.Fields {
		p.columns, p.results = append(p.columns, f.DataTypeOID), append(p.results, form(f.DataTypeOID))
	}
	s.cache[text] = p
	return p, nil
}

// bind returns the arguments as the statement wants them.
func (p *prepared) bind(args []any) ([][]byte, error) {
	if len(args) != len(p.args) {
		return nil, fmt.Errorf("%d arguments are given, %d wanted", len(args), len(p.args))
	}
	values := make([][]byte, len(args))
	for i, a := range args {
		v, err := encode(p.args[i], a)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// exec runs one statement in a transaction of its own and returns its rows.
func (s *session) exec(ctx context.Context, text string, args ...any) (*pgconn.Result, error) {
	p, err := s.prepare(ctx, text)
	if err != nil {
		return nil, err
	}
	values, err := p.bind(args)
	if err != nil {
		return nil, err
	}
	r := s.c.ExecPrepared(ctx, p.name, values, p.forms, p.results).Read()
	return r, r.Err
}

// value runs a statement and decodes the first column of its first row; nil if there is none.
func (s *session) value(ctx context.Context, text string, args ...any) (any, error) {
	r, err := s.exec(ctx, text, args...)
	if err != nil || len(r.Rows) == 0 {
		return nil, err
	}
	return decode(r.FieldDescriptions[0].DataTypeOID, r.Rows[0][0])
}

func (s *session) number(ctx context.Context, text string, args ...any) (int64, error) {
	v, err := s.value(ctx, text, args...)
	n, ok := v.(int64)
	if err == nil && !ok && v != nil {
		err = fmt.Errorf("a number is wanted, not %T", v)
	}
	return n, err
}

// alive notices a server that went away since the last call, before the next one is sent and its outcome open. It waits for
// nothing. A server that ends a session says so first, and it says nothing else unasked.
func (s *session) alive() bool {
	conn := s.c.Conn()
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	// Not by raw.Read, which waits its turn: after a slow write the connection's own reader waits for the next answer.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && quiet
}

// transaction runs fn in one.
func (s *session) transaction(ctx context.Context, fn func() error) error {
	if _, err := s.c.Exec(ctx, "begin").ReadAll(); err != nil {
		return err
	}
	err := fn()
	end := "commit"
	if err != nil {
		end = "rollback"
	}
	if s.c.IsClosed() {
		return err
	}
	if _, eerr := s.c.Exec(ctx, end).ReadAll(); err == nil {
		err = eerr
	}
	return err
}

// hangUp ends the connection. It waits for what an interrupted call left behind.
func (s *session) hangUp() {
	if s.c.IsClosed() {
		<-s.c.CleanupDone()
		return
	}
	// Only courtesy: the server ends a session whose connection closes.
	_ = s.c.Conn().SetDeadline(time.Now().Add(time.Second))
	s.c.Frontend().Send(&pgproto3.Terminate{})
	_ = s.c.Frontend().Flush()
	_ = s.c.Conn().Close()
}

// line is a session that is opened when it is needed, and again after it broke. It is safe for concurrent use: one call
// after the other.
type line struct {
	config *pgconn.Config

	mu     sync.Mutex
	now    *session
	closed bool
}

// use calls fn with the open session.
func (l *line) use(ctx context.Context, fn func(*session) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.session(ctx)
	if err != nil {
		return err
	}
	return fn(s)
}

// session returns the open session. The caller holds the lock.
func (l *line) session(ctx context.Context) (*session, error) {
	if l.closed {
		return nil, errClosed
	}
	if l.now != nil && !l.now.c.IsClosed() && l.now.alive() {
		return l.now, nil
	}
	if l.now != nil {
		l.now.hangUp()
		l.now = nil
	}
	c, err := connect(ctx, l.config)
	if err != nil {
		return nil, &failed{unreachable(err), err}
	}
	l.now = newSession(c)
	return l.now, nil
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.now != nil {
		l.now.hangUp()
		l.now = nil
	}
}
