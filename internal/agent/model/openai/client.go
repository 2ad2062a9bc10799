package openai

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/internal/agent/model"
)

// DefaultIdleTimeout is how long a stream may bring nothing that counts.
const DefaultIdleTimeout = 5 * time.Minute

const (
	maxErrorBody = 64 << 10
	maxListBody  = 8 << 20
	maxWords     = 1000
)

// Config says where an endpoint is.
type Config struct {
	// BaseURL is the part before /chat/completions, such as http://127.0.0.1:11434/v1.
	BaseURL string
	// Key is sent as a bearer token; empty sends none. It appears in no error and no log.
	Key string
	// IdleTimeout is the longest wait for the next event that counts; 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
}

// Client is one endpoint. It is safe for concurrent use.
type Client struct {
	base   string
	key    string
	family string
	idle   time.Duration
	grace  time.Duration
	http   *http.Client
	// blind holds the names of models that have refused images and answered without, with when that was.
	blind sync.Map
}

var errIdle = errors.New("idle")

// New returns a client; nothing is sent. It fails on a base URL that is not http or https, or carries a password or query,
// and on a key that no header can hold.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil:
		return nil, errors.New("cannot use the base URL of the model: it is no URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("cannot use base URL %q: it must begin with http:// or https:// and a host", u.Redacted())
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("cannot use the base URL of the model: a password, query or fragment does not belong into it")
	}
	key := strings.TrimSpace(c.Key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("cannot use the model's key: it holds spaces or characters that are not ASCII")
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // a compressed stream comes in lumps
	return &Client{
		base: strings.TrimRight(c.BaseURL, "/"), key: key, family: "openai@" + u.Host, idle: c.IdleTimeout, grace: lastWords,
		http: &http.Client{
			Transport: transport,
			// A redirect would carry the conversation to a place that nobody configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes connections that wait for reuse.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Stream makes one attempt. See model.Provider.
func (c *Client) Stream(ctx context.Context, r model.Request) (model.Stream, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	book, err := c.pictures(ctx, r)
	if err != nil {
		return nil, err
	}
	body, asked, err := c.body(r, book)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{
		client: c, cancel: cancel, cause: func() error { return context.Cause(ctx) },
		asked: asked,
	}
	s.idle = time.AfterFunc(c.idle, func() { cancel(errIdle) })
	resp, err := c.send(ctx, http.MethodPost, "/chat/completions", body)
	if book.count() > 0 && takesNoImages(err) {
		// Else no request of this conversation would ever be answered again.
		if body, s.asked, err = c.body(r, nil); err == nil {
			s.idle.Reset(c.idle)
			if resp, err = c.send(ctx, http.MethodPost, "/chat/completions", body); err == nil {
				c.blind.Store(r.Model, time.Now())
			}
		}
	}
	s.idle.Stop()
	if err != nil {
		cancel(nil)
		return nil, s.reason(err)
	}
	s.body = resp.Body
	s.kind = resp.Header.Get("Content-Type")
	s.sse = newReader(resp.Body, s.kind)
	return s, nil
}

// List returns the names of the endpoint's models, sorted. The error is an *model.Error, or ctx's.
func (c *Client) List(ctx context.Context) ([]string, error) {
	resp, err := c.send(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxListBody)).Decode(&list); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &model.Error{Class: model.BadRequest, Words: "the list of models cannot be read: " + c.clean(err.Error())}
	}
	var names []string
	for _, m := range list.Data {
		if m.ID != "" {
			names = append(names, m.ID)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// send returns a response of status 200, or an *model.Error, or the cause of ctx.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, &model.Error{Class: model.BadRequest, Words: c.clean(err.Error())}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		class := model.Retryable
		var cert *tls.CertificateVerificationError
		var record tls.RecordHeaderError
		if errors.As(err, &cert) || errors.As(err, &record) {
			class = model.Fatal
		}
		return nil, &model.Error{Class: class, Words: c.clean("no answer from " + c.base + ": " + innermost(err))}
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	e := c.refusal(resp.StatusCode, text)
	e.RetryAfter = model.RetryAfter(resp.Header, time.Now())
	return nil, e
}

// innermost leaves the method and URL of a *url.Error away, which the words already name.
func innermost(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// clean makes foreign text fit for people: without the key, one line, bounded.
func (c *Client) clean(s string) string {
	if c.key != "" {
		s = strings.ReplaceAll(s, c.key, "[key]")
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if r := []rune(s); len(r) > maxWords {
		s = string(r[:maxWords]) + "…"
	}
	return s
}
