package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"soma/internal/api"
)

// I-50: who shows no credential over TCP can hold so many connections and no more, also while the daemon begins anew: the oldest
// makes room, and those of others stay.
func TestStrangersOverTCP(t *testing.T) {
	s, err := api.New(options(newWorld(), io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for name, serve := range map[string]func(context.Context, net.Listener) error{"serving": s.Serve, "away": api.Away} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- serve(ctx, l) }()
			defer func() {
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			dial := func() net.Conn {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
					t.Fatal(err)
				}
				return c
			}
			ask := func(c net.Conn, header string) int {
				if _, err := io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: "+l.Addr().String()+"\r\n"+header+"\r\n"); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				return resp.StatusCode
			}
			own := "Authorization: Bearer " + secret + "\r\n"
			known := dial()
			if name == "serving" {
				if status := ask(known, own); status != 200 {
					t.Fatalf("with the token: %d", status)
				}
			}
			oldest, refused := dial(), dial()
			if name == "serving" { // a wrong token is none
				if status := ask(refused, "Authorization: Bearer "+secret[1:]+"\r\n"); status != 401 {
					t.Fatalf("with a wrong token: %d", status)
				}
			}
			for range api.MaxStrangers {
				dial()
			}
			for _, c := range []net.Conn{oldest, refused} {
				if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("an old connection stays: %v", err)
				}
			}
			if name == "serving" {
				if status := ask(known, own); status != 200 {
					t.Errorf("with the token: %d", status)
				}
			}
			if newest := dial(); ask(newest, own) == 0 {
				t.Error("no answer")
			}
		})
	}
}
