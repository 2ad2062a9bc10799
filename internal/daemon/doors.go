package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"soma/internal/api"
	"soma/internal/config"
	"soma/internal/lifecycle"
)

// doors are the listeners of a daemon. They stay open while it begins anew, so that its clients find somebody.
type doors struct {
	socket *config.SocketListener
	tcp    *net.TCPListener // nil for none
	tls    *tls.Config      // of tcp; nil: in the clear
	// url is where tcp is reached, with the fingerprint of its certificate and the names under which it may be asked.
	url, fingerprint string
	hosts            []string
	exposed          bool
}

// openDoors listens, on TCP where the settings say so.
func openDoors(home config.Home, cfg *config.Config) (_ *doors, err error) {
	d := &doors{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if address := cfg.Address(); address != "" {
		if err := d.listen(home, cfg, address); err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
		}
	}
	if d.socket, err = config.ListenSocket(home.Socket()); err != nil {
		return nil, &config.HomeError{Home: home.Dir(), Err: err}
	}
	return d, nil
}

// listen opens the TCP listener. It is spoken to in the clear on the loopback alone, and only where no other daemon shows its
// secret there.
func (d *doors) listen(home config.Home, cfg *config.Config, address string) error {
	certFile, keyFile, err := cfg.KeyPair()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	d.tcp = l.(*net.TCPListener)
	at := d.tcp.Addr().(*net.TCPAddr)
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port := strconv.Itoa(at.Port)
	names := []string{host}
	if at.IP.IsUnspecified() {
		names = ownNames()
	} else if !at.IP.IsLoopback() && at.IP.String() != host {
		names = append(names, at.IP.String())
	}
	for _, name := range names {
		d.hosts = append(d.hosts, net.JoinHostPort(name, port))
	}
	d.exposed = !at.IP.IsLoopback()
	scheme := "http"
	if d.exposed || certFile != "" || cfg.Store != "" {
		cert, err := certificate(home, certFile, keyFile, names)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(cert.Certificate[0])
		d.fingerprint, scheme = hex.EncodeToString(sum[:]), "https"
		d.tls = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	}
	d.url = scheme + "://" + net.JoinHostPort(names[0], port)
	return nil
}

func certificate(home config.Home, certFile, keyFile string, names []string) (tls.Certificate, error) {
	if certFile == "" {
		return home.EnsureCertificate(names, time.Now())
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return cert, &config.ValueError{Where: "tls_cert and tls_key", Err: err}
	}
	return cert, nil
}

// ownNames are how this machine may be called: its addresses, the ones that others can reach first, and its name.
func ownNames() []string {
	var names []string
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				names = append(names, ip.IP.String())
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { // IPv4 is what most networks route
		return len(net.ParseIP(b).To4()) - len(net.ParseIP(a).To4())
	})
	if name, err := os.Hostname(); err == nil && name != "" {
		names = append(names, name)
	}
	return append(names, "127.0.0.1")
}

// serve adds a server of one life to the group, at each listener.
func (d *doors) serve(g *lifecycle.Group, s *api.Server) {
	g.Add("api", func(ctx context.Context) error { return s.Serve(ctx, newVisit(d.socket)) })
	if d.tcp != nil {
		g.Add("api on TCP", func(ctx context.Context) error { return s.Serve(ctx, newVisit(d.tcp)) })
	}
}

// leaveOpen answers who comes while there is no life, until the function that it returns is called.
func (d *doors) leaveOpen(ctx context.Context) (end func() error, err error) {
	var away lifecycle.Tasks
	ctx, cancel := context.WithCancel(ctx)
	err = away.Go(ctx, "away", func(ctx context.Context) error { return api.Away(ctx, newVisit(d.socket)) })
	if err == nil && d.tcp != nil {
		err = away.Go(ctx, "away on TCP", func(ctx context.Context) error {
			if d.tls == nil {
				return api.Away(ctx, newVisit(d.tcp))
			}
			return api.Away(ctx, tls.NewListener(newVisit(d.tcp), d.tls))
		})
	}
	return func() error {
		cancel()
		wait, done := context.WithTimeout(context.WithoutCancel(ctx), detachTime)
		defer done()
		return away.Stop(wait)
	}, err
}

func (d *doors) close() {
	if d.tcp != nil {
		_ = d.tcp.Close()
	}
	if d.socket != nil {
		_ = d.socket.Close()
	}
}

// visit is a listener as one life sees it: its Close ends Accept and leaves the listener open for the next.
type visit struct {
	listener
	over atomic.Bool
}

type listener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

func newVisit(l listener) *visit {
	_ = l.SetDeadline(time.Time{}) // a listener that is closed says so at Accept
	return &visit{listener: l}
}

func (v *visit) Accept() (net.Conn, error) {
	c, err := v.listener.Accept()
	if v.over.Load() {
		if err == nil {
			err = c.Close()
		}
		return nil, errors.Join(net.ErrClosed, err)
	}
	return c, err
}

func (v *visit) Close() error {
	v.over.Store(true)
	return v.SetDeadline(time.Unix(1, 0))
}
