package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"soma/wire"
)

// DefaultTimeout bounds a request, unless Options say another or the request is a stream or a wait.
const DefaultTimeout = 30 * time.Second

// maxAnswer bounds the body of an answer in bytes.
const maxAnswer = 64 << 20

// Options say where the daemon is and how to speak to it.
type Options struct {
	// Dial opens a connection to the daemon's Unix socket. If it is nil, Address is used.
	Dial func(ctx context.Context) (net.Conn, error)
	// Address is the host and port of a daemon that listens on TCP: "127.0.0.1:7621".
	Address string
	// TLS is how Address is spoken to; nil: in the clear. The certificate of a home of one's own is its file tls.crt.
	TLS *tls.Config
	// Token returns the token. It is called for each request, so that a rotated token works at once.
	Token func() (string, error)
	// Build names the caller's build and goes into every request.
	Build string
	// OtherBuild, if set, is called once, at the first answer of a daemon whose build is not Build, with that build.
	OtherBuild func(daemon string)
	// Timeout bounds each request that is no stream, with its answer; zero means DefaultTimeout.
	Timeout time.Duration
}

// Client speaks to one daemon. It is safe for use from many goroutines. It holds no connection that must be open: a daemon
// that was started again is found by the next request.
type Client struct {
	options Options
	base    string
	http    *http.Client
	silence time.Duration // of a stream, until its daemon counts as lost
	notice  sync.Once
}

// New returns a client. It connects to nothing yet. The error says which option is missing.
func New(o Options) (*Client, error) {
	if o.Token == nil {
		return nil, errors.New("cannot make a client: it needs a token")
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	transport := &http.Transport{
		Proxy:               nil, // the token must not go to another host
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
	c := &Client{options: o, silence: silence, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}}
	dial := o.Dial
	switch {
	case dial != nil:
		c.base = "http://soma"
	case o.Address != "":
		c.base = "http://" + o.Address
		if o.TLS != nil {
			c.base, transport.TLSClientConfig = "https://"+o.Address, o.TLS
		}
		dial = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", o.Address) }
	default:
		return nil, errors.New("cannot make a client: it needs a socket or an address")
	}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
	return c, nil
}

// dialError marks an error as that of a connection which was never there.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections. Requests that run are not touched; the client may be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Health asks whether a daemon answers; it needs no token.
func (c *Client) Health(ctx context.Context) error {
	var h wire.Health
	return c.get(ctx, &h, "/healthz")
}

// Ready asks whether the daemon takes work; it needs no token. A *wire.Error says why it does not (wire.Unavailable,
// wire.Stopping); it is not asked again by itself.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	resp, err := c.once(ctx, http.MethodGet, "/readyz", nil, nil, true)
	if err != nil {
		return err
	}
	return read(ctx, resp, new(wire.Health))
}

// Status returns what the daemon tells of itself.
func (c *Client) Status(ctx context.Context) (wire.Status, error) {
	var s wire.Status
	return s, c.get(ctx, &s, "/v1/status")
}

// Models returns the models that the daemon can run.
func (c *Client) Models(ctx context.Context) ([]wire.Model, error) {
	var l wire.List[wire.Model]
	return l.Items, c.get(ctx, &l, "/v1/models")
}

// OpenAPI returns the daemon's description of its API, in YAML.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	return c.text(ctx, "/v1/openapi.yaml")
}

// Metrics returns what the daemon counts, in the Prometheus text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.text(ctx, "/metrics") }

func (c *Client) text(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, failed(ctx, err)
	}
	return text, nil
}

// Stop tells the daemon to stop, and its python kernels too if s says so. The daemon goes on to stop after the answer; it
// is gone when it has let go of the home's lock.
func (c *Client) Stop(ctx context.Context, s wire.Stop) (wire.Stopped, error) {
	var stopped wire.Stopped
	return stopped, c.do(ctx, http.MethodPost, &stopped, s, "/v1/daemon/stop")
}
