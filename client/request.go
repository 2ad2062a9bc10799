package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"soma/wire"
)

// ErrLost is what every LostError is.
var ErrLost = errors.New("the daemon does not answer")

// LostError says that the daemon is not there, or that the connection to it broke before the answer or stream was whole.
type LostError struct {
	// Unsent is true if there was no connection at all: nobody has seen the request.
	Unsent bool
	Err    error
}

func (e *LostError) Error() string {
	if e.Unsent {
		return fmt.Sprintf("cannot reach the daemon: %v", e.Err)
	}
	return fmt.Sprintf("cannot hear the daemon any more: %v", e.Err)
}

// Unwrap returns ErrLost and the cause, such as syscall.ECONNREFUSED.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Err} }

// get asks for a path and reads the answer into out.
func (c *Client) get(ctx context.Context, out any, path string, query ...string) error {
	return c.do(ctx, http.MethodGet, out, nil, path, query...)
}

// do makes one request under the client's timeout. The query's names and values alternate; empty values are left out.
func (c *Client) do(ctx context.Context, method string, out, in any, path string, query ...string) error {
	return c.within(ctx, c.options.Timeout, method, out, in, path, query...)
}

func (c *Client) within(ctx context.Context, limit time.Duration, method string, out, in any, path string, query ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if q := values(query); len(q) > 0 {
		path += "?" + q.Encode()
	}
	resp, err := c.send(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	return read(ctx, resp, out)
}

// single makes a request that must not be made again by itself, under a limit. After a lost answer nobody knows what it did.
func (c *Client) single(ctx context.Context, limit time.Duration, out any, path string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := c.once(ctx, http.MethodPut, path, nil, nil, false)
	if err != nil {
		return err
	}
	return read(ctx, resp, out)
}

// read takes an answer of JSON, and closes its body.
func read(ctx context.Context, resp *http.Response, out any) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return failed(ctx, err)
	}
	if len(body) > maxAnswer {
		return fmt.Errorf("cannot read the daemon's answer: it is larger than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("cannot read the daemon's answer: %w", err)
	}
	return nil
}

// Bounds of trying again where nobody answers for a session at the moment: it is moving from one daemon to another.
const (
	movingTime = time.Minute
	movingGap  = 500 * time.Millisecond
)

// send makes a request and returns the answer if it is a success; the caller closes its body. Anything else is an error. What
// is refused with wire.Unavailable is tried again for a while, unless it is no write under an id.
func (c *Client) send(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var last error // the refusal before; it says more than that the time is over
	for began := time.Now(); ; {
		resp, err := c.once(ctx, method, path, in, header, true)
		var refusal *wire.Error
		if err != nil && last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, last
		}
		if !errors.As(err, &refusal) || refusal.Code != wire.Unavailable || method == http.MethodPost || time.Since(began) > movingTime {
			return resp, err
		}
		last = err
		again := time.NewTimer(movingGap)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

// once makes a request; with again the transport may repeat it where a connection breaks.
func (c *Client) once(ctx context.Context, method, path string, in any, header http.Header, again bool) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("cannot write the request: %w", err)
		}
		if err := fits(in, len(text)); err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	for name, v := range header {
		req.Header[name] = v
	}
	token, err := c.options.Token()
	switch {
	case err == nil:
		req.Header.Set("Authorization", "Bearer "+token)
	case path != "/healthz" && path != "/readyz":
		return nil, err
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if again && (method == http.MethodPut || method == http.MethodDelete) {
		// Present without a value it is not sent, but lets the transport repeat the request on a fresh connection when the
		// one that it took from the pool turns out to be dead.
		req.Header["Idempotency-Key"] = nil
	}
	req.Header.Set(wire.HeaderVersion, strconv.Itoa(wire.Version))
	req.Header.Set(wire.HeaderBuild, c.options.Build)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, failed(ctx, err)
	}
	if err := c.check(ctx, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// fits refuses a body that the daemon would refuse: it answers without reading the whole of a large one, and that may look
// like a broken connection.
func fits(in any, size int) error {
	most := wire.MaxBody
	switch in.(type) {
	case wire.RunCell:
		most = wire.MaxCellBody
	case wire.RunShell:
		most = wire.MaxShellBody
	}
	if size > most {
		return wire.Errorf(wire.TooLarge, "the request has %d bytes, more than %d", size, most)
	}
	return nil
}

// check turns an answer that is no success into an error.
func (c *Client) check(ctx context.Context, resp *http.Response) error {
	build := resp.Header.Get(wire.HeaderBuild)
	if build != "" && build != c.options.Build && c.options.OtherBuild != nil && resp.StatusCode != wire.WireVersion.Status() {
		c.notice.Do(func() { c.options.OtherBuild(build) })
	}
	if resp.StatusCode != http.StatusOK {
		return c.refusal(ctx, resp)
	}
	if v := resp.Header.Get(wire.HeaderVersion); v != strconv.Itoa(wire.Version) {
		return wire.Errorf(wire.WireVersion, "the daemon speaks wire version %q, this program version %d", v, wire.Version).
			Do("stop the daemon and start it again with this program")
	}
	return nil
}

func (c *Client) refusal(ctx context.Context, resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxBody))
	if err != nil {
		return failed(ctx, err)
	}
	var e wire.Error
	if json.Unmarshal(text, &e) != nil || e.Code == "" {
		return fmt.Errorf("cannot understand the daemon's answer: HTTP status %d without an error code", resp.StatusCode)
	}
	return &e
}

// failed sorts an error of the transport: the caller's own end of the context, or a lost daemon.
func failed(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // its text repeats method and address
	}
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("cannot get an answer from the daemon in time: %w", ctx.Err())
		}
		return ctx.Err()
	}
	var dial *dialError
	if errors.As(err, &dial) {
		return &LostError{Unsent: true, Err: dial.error}
	}
	return &LostError{Err: err}
}

func values(pairs []string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// number is a query's value; zero, the default, is left out.
func number[N int | int64 | uint64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
