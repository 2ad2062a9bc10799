package instance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"soma/bench/measure"
	"soma/internal/config"
)

// socketRounds are the seconds of each loop.
const socketRounds = 5

// signals drives 64 clients over the socket, in turns of a second with the same ones at the bare server: each request is a
// signal, a committed turn of its process that changes nothing more. The clients speak plain HTTP/1.1 on a connection each
// and cost little, for they share the cores with the daemon, though not its OS process.
func (i *instance) signals(ctx context.Context, pids []uint64, fs string) (measure.Line, error) {
	line := measure.Line{Name: "turns_socket_64", Unit: "1/s", FS: fs}
	token, err := i.home.ReadToken()
	if err != nil {
		return line, err
	}
	bare, err := startBare(ctx, filepath.Join(i.home.Dir(), "bare.sock"))
	if err != nil {
		return line, err
	}
	defer bare.stop()
	ours, err := dialAll(ctx, i.home.Socket(), token.Reveal(), pids)
	defer closeAll(ours)
	if err != nil {
		return line, err
	}
	theirs, err := dialAll(ctx, bare.socket, token.Reveal(), pids)
	defer closeAll(theirs)
	if err != nil {
		return line, err
	}
	for range socketRounds {
		b, err := measure.Drive(time.Second, socketClients, func(c, _ int) error { return theirs[c].signal() })
		if err != nil {
			return line, err
		}
		r, err := measure.Drive(time.Second, socketClients, func(c, _ int) error { return ours[c].signal() })
		if err != nil {
			return line, err
		}
		line.Bare += b.PerSecond / socketRounds
		line.Value += r.PerSecond / socketRounds
		line.N += r.N
	}
	return line, nil
}

// rawClient sends signals to one process, each under an id of its own.
type rawClient struct {
	conn         net.Conn
	r            *bufio.Reader
	before, rest []byte // of a request, around the number in its id
	n            int64
	buffer       []byte
}

func dialAll(ctx context.Context, socket, token string, pids []uint64) ([]*rawClient, error) {
	var all []*rawClient
	for c := range socketClients {
		conn, err := config.DialSocket(ctx, socket)
		if err != nil {
			return all, err
		}
		const body = `{"signal":"pause"}`
		all = append(all, &rawClient{
			conn: conn, r: bufio.NewReader(conn),
			before: fmt.Appendf(nil, "PUT /v1/processes/%d/signals/bench-", pids[c]),
			rest: fmt.Appendf(nil, " HTTP/1.1\r\nHost: soma\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				token, len(body), body),
		})
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return all, err
		}
	}
	return all, nil
}

func closeAll(all []*rawClient) {
	for _, c := range all {
		_ = c.conn.Close()
	}
}

var lengthHeader = []byte("Content-Length: ")

// signal makes one request and reads its whole answer, which must be 200.
func (c *rawClient) signal() error {
	c.n++
	c.buffer = strconv.AppendInt(append(c.buffer[:0], c.before...), c.n, 10)
	c.buffer = append(c.buffer, c.rest...)
	if _, err := c.conn.Write(c.buffer); err != nil {
		return err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("answered %q", line)
	}
	length := -1
	for len(line) > len("\r\n") {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return err
		}
		if text, ok := bytes.CutPrefix(line, lengthHeader); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("an answer without its length")
	}
	_, err = c.r.Discard(length)
	return err
}
