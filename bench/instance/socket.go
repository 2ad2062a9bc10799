package instance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"soma/bench/measure"
	"soma/internal/config"
)

// signals drives 64 clients over the socket: each request is a signal, a committed turn of its process that changes nothing
// more. The clients speak plain HTTP/1.1 on a connection each and cost little, for they share the cores with the daemon.
func (i *instance) signals(ctx context.Context, pids []uint64) (measure.Result, error) {
	token, err := i.home.ReadToken()
	if err != nil {
		return measure.Result{}, err
	}
	conns := make([]*rawClient, socketClients)
	for c := range conns {
		conn, err := config.DialSocket(ctx, i.home.Socket())
		if err != nil {
			return measure.Result{}, err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return measure.Result{}, err
		}
		conns[c] = &rawClient{conn: conn, r: bufio.NewReader(conn), token: token.Reveal()}
	}
	return measure.Drive(5*time.Second, socketClients, func(c, n int) error {
		return conns[c].put(fmt.Sprintf("/v1/processes/%d/signals/bench-%d", pids[c], n), `{"signal":"pause"}`)
	})
}

type rawClient struct {
	conn  net.Conn
	r     *bufio.Reader
	token string
}

// put makes one request and reads its whole answer, which must be 200.
func (c *rawClient) put(path, body string) error {
	_, err := fmt.Fprintf(c.conn, "PUT %s HTTP/1.1\r\nHost: soma\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, c.token, len(body), body)
	if err != nil {
		return err
	}
	status, err := c.r.ReadString('\n')
	if err != nil {
		return err
	}
	header, err := textproto.NewReader(c.r).ReadMIMEHeader()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil {
		return fmt.Errorf("an answer without its length: %w", err)
	}
	if _, err := io.CopyN(io.Discard, c.r, n); err != nil {
		return err
	}
	if !strings.Contains(status, " 200 ") {
		return fmt.Errorf("answered %s", strings.TrimSpace(status))
	}
	return nil
}
