package peer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/wire"
)

// Options are what Peers are made of. All are needed but those that say otherwise.
type Options struct {
	Node   string
	Secret string // what daemons of this store show each other
	// Table returns who held what at the last beat, nil before the first.
	Table func() *lease.Table
	// Holds reports whether this daemon runs what is at a place.
	Holds func(neuron.Place) bool
	// Hint takes what another daemon tells of one of its sessions, and Missed that such hints may have been lost. They must not
	// block.
	Hint   func(wire.Hint)
	Missed func()
	Log    *slog.Logger
	// Patience is how long a request waits for a holder of its place; 0 means 20 s.
	Patience time.Duration
	// RefusedGap is the time between two tries to listen to a daemon that has no room for it; 0 means 15 s.
	RefusedGap time.Duration
}

// Bounds of what goes between daemons.
const (
	dialTime      = 2 * time.Second
	handshakeTime = 3 * time.Second
	idleTime      = time.Minute
	idleConns     = 64
	// look is the time between two looks at who holds the place of a request that waits or is being answered.
	look = 50 * time.Millisecond
	// silence is how long a stream of another daemon may be without any byte.
	silence = 3 * wire.Heartbeat
)

// Peers are the other daemons of a store. Its methods are safe for concurrent use.
type Peers struct {
	o     Options
	tasks lifecycle.Tasks
	kick  chan struct{} // capacity 1: there is a listener now, or none any more
	// refused: a daemon had no room for a listener since that was last made good.
	refused atomic.Bool

	mu        sync.Mutex
	ways      map[string]*way // by node
	asked     map[*asking]bool
	listeners int
}

// way is how one node is reached.
type way struct {
	url, cert string
	http      *http.Transport
}

// New returns Peers; without Run they answer, but notice no move of a place while they do, and hear nothing.
func New(o Options) *Peers {
	if o.Patience <= 0 {
		o.Patience = 20 * time.Second
	}
	if o.RefusedGap <= 0 {
		o.RefusedGap = refusedGap
	}
	return &Peers{o: o, kick: make(chan struct{}, 1), ways: map[string]*way{}, asked: map[*asking]bool{}}
}

// Start begins to look after what is asked, and to listen while somebody wants it, until Stop.
func (p *Peers) Start(ctx context.Context) error {
	return errors.Join(p.tasks.Go(ctx, "places of requests", p.watch), p.tasks.Go(ctx, "hints of other daemons", p.listen))
}

// Stop ends all that was asked and waits for it until ctx is done.
func (p *Peers) Stop(ctx context.Context) error {
	err := p.tasks.Stop(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.ways {
		w.http.CloseIdleConnections()
		delete(p.ways, id)
	}
	return err
}

// Is reports whether a credential is the secret of the daemons of this store. It takes the same time wherever the texts differ.
func (p *Peers) Is(credential string) bool {
	a, b := sha256.Sum256([]byte(credential)), sha256.Sum256([]byte(p.o.Secret))
	return p.o.Secret != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// NodeOf names who holds a place, "" for nobody.
func (p *Peers) NodeOf(place neuron.Place) string {
	if p.o.Holds(place) {
		return p.o.Node
	}
	if n, ok := p.holder(place); ok {
		return n.ID
	}
	return ""
}

// holder returns the living node, other than this one, that holds a place.
func (p *Peers) holder(place neuron.Place) (lease.Node, bool) {
	t := p.o.Table()
	if t == nil {
		return lease.Node{}, false
	}
	id := t.Places[place].Holder
	if id == "" || id == p.o.Node {
		return lease.Node{}, false
	}
	for _, n := range t.Nodes {
		if n.ID == id {
			return n, n.Alive
		}
	}
	return lease.Node{}, false
}

// holders returns the living nodes that hold something and can be reached, without this one.
func (p *Peers) holders() map[string]lease.Node {
	all := map[string]lease.Node{}
	t := p.o.Table()
	if t == nil {
		return all
	}
	holds := map[string]bool{}
	for _, h := range t.Places {
		holds[h.Holder] = true
	}
	for _, n := range t.Nodes {
		if holds[n.ID] && n.ID != p.o.Node && n.Alive && n.URL != "" {
			all[n.ID] = n
		}
	}
	return all
}

// to returns how a node is reached. The fingerprint in its row is all that it is known by.
func (p *Peers) to(n lease.Node) (*way, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.ways[n.ID]; w != nil {
		if w.url == n.URL && w.cert == n.Cert {
			return w, nil
		}
		w.http.CloseIdleConnections()
		delete(p.ways, n.ID)
	}
	u, err := url.Parse(n.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("node %s has no address that can be used", n.ID)
	}
	pin, err := hex.DecodeString(n.Cert)
	if err != nil || len(pin) != sha256.Size {
		return nil, fmt.Errorf("node %s has no fingerprint of its certificate", n.ID)
	}
	w := &way{url: n.URL, cert: n.Cert, http: &http.Transport{
		Proxy: nil, // the secret must not go to another host
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTime}).DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS13,
			InsecureSkipVerify: true, // names and authorities say nothing here: VerifyConnection compares the certificate itself
			VerifyConnection: func(c tls.ConnectionState) error {
				if len(c.PeerCertificates) == 0 {
					return errors.New("no certificate")
				}
				if got := sha256.Sum256(c.PeerCertificates[0].Raw); subtle.ConstantTimeCompare(got[:], pin) != 1 {
					return errors.New("the certificate is not the one that the node's row names")
				}
				return nil
			},
		},
		TLSHandshakeTimeout: handshakeTime, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime, DisableCompression: true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	p.ways[n.ID] = w
	return w, nil
}

// send makes one request to a node and returns its answer.
func (p *Peers) send(ctx context.Context, n lease.Node, q Question) (*http.Response, error) {
	w, err := p.to(n)
	if err != nil {
		return nil, err
	}
	req, err := q.request(ctx, w.url)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.o.Secret)
	req.Header.Set(wire.HeaderHop, p.o.Node)
	return w.http.RoundTrip(req)
}
