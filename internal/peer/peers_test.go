package peer_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/internal/peer"
	"soma/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const refused = 700 * time.Millisecond

// world is what one daemon knows of the others.
type world struct {
	mu     sync.Mutex
	table  *lease.Table
	holds  neuron.PlaceSet
	hints  chan wire.Hint
	missed chan struct{}
	*peer.Peers
}

func newWorld(t *testing.T, patience time.Duration) *world {
	w := &world{table: &lease.Table{}, hints: make(chan wire.Hint, 16), missed: make(chan struct{}, 16)}
	w.Peers = peer.New(peer.Options{
		Node: "me", Secret: secret, Log: slog.New(slog.DiscardHandler), Patience: patience, RefusedGap: refused,
		Table: func() *lease.Table {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.table
		},
		Holds: func(p neuron.Place) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.holds.Has(p)
		},
		Hint: func(h wire.Hint) { w.hints <- h }, Missed: func() { w.missed <- struct{}{} },
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return w
}

// is changes the table: the nodes are alive, and places are held as said.
func (w *world) is(nodes []lease.Node, holders map[neuron.Place]string) {
	t := &lease.Table{Nodes: nodes}
	for p, id := range holders {
		t.Places[p].Holder = id
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table = t
	w.holds = neuron.PlaceSet{}
	for p, id := range holders {
		if id == "me" {
			w.holds.Add(p)
		}
	}
}

// serve starts another daemon, as far as it matters here.
func serve(t *testing.T, id string, h http.HandlerFunc) lease.Node {
	s := httptest.NewTLSServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	t.Cleanup(s.Close)
	sum := sha256.Sum256(s.Certificate().Raw)
	return lease.Node{ID: id, URL: s.URL, Cert: hex.EncodeToString(sum[:]), Alive: true}
}

func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return string(b)
}

func isUnavailable(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == wire.Unavailable
}

// M-12: a request goes to the holder of its place with the secret, the mark of a hop and what it says itself, and nothing of who
// asks; where this daemon is the holder, nobody is asked.
func TestAsk(t *testing.T) {
	w := newWorld(t, time.Second)
	var got *http.Request
	var body string
	n := serve(t, "other", func(out http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		out.WriteHeader(409)
		_, _ = io.WriteString(out, "answer")
	})
	w.is([]lease.Node{n}, map[neuron.Place]string{1: "other", 2: "me"})
	resp, err := w.Ask(t.Context(), 1, peer.Question{Method: "PUT", Path: "/v1/x?y=z", Header: http.Header{"Content-Type": {"a/b"}}, Body: []byte("body")})
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 409 || text(t, resp) != "answer" {
		t.Errorf("answered %d", resp.StatusCode)
	}
	if got.Method != "PUT" || got.URL.String() != "/v1/x?y=z" || body != "body" || got.Header.Get("Content-Type") != "a/b" ||
		got.Header.Get("Authorization") != "Bearer "+secret || got.Header.Get(wire.HeaderHop) != "me" {
		t.Errorf("asked %s %s %q %v", got.Method, got.URL, body, got.Header)
	}
	if resp, err := w.Ask(t.Context(), 2, peer.Question{Method: "GET", Path: "/"}); err != nil || resp != nil {
		t.Errorf("for its own place: %v, %v", resp, err)
	}
	if w.NodeOf(1) != "other" || w.NodeOf(2) != "me" || w.NodeOf(3) != "" {
		t.Errorf("holders %q %q %q", w.NodeOf(1), w.NodeOf(2), w.NodeOf(3))
	}
}

// M-12: a node with another certificate than its row names, without a fingerprint or in the clear is not spoken to at all.
func TestPinning(t *testing.T) {
	w := newWorld(t, 200*time.Millisecond)
	asked := make(chan string, 64)
	good := serve(t, "other", func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") })
	clear := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(clear.Close)
	for name, n := range map[string]lease.Node{
		"another certificate": {ID: "other", URL: good.URL, Cert: strings.Repeat("ab", sha256.Size), Alive: true},
		"no fingerprint":      {ID: "other", URL: good.URL, Alive: true},
		"part of one":         {ID: "other", URL: good.URL, Cert: good.Cert[:62], Alive: true},
		"in the clear":        {ID: "other", URL: clear.URL, Cert: good.Cert, Alive: true},
		"no address":          {ID: "other", Cert: good.Cert, Alive: true},
	} {
		w.is([]lease.Node{n}, map[neuron.Place]string{1: "other"})
		if _, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"}); !isUnavailable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case got := <-asked:
		t.Errorf("a request went out with %q", got)
	default:
	}
	w.is([]lease.Node{good}, map[neuron.Place]string{1: "other"})
	resp, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// M-12: while nobody holds the place, or the holder says that it moves, a request waits, goes to the next holder, and is refused
// in the end with what to do. One under way is broken off when its place moves.
func TestMoves(t *testing.T) {
	w := newWorld(t, 300*time.Millisecond)
	if _, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"}); !isUnavailable(err) {
		t.Errorf("without a holder: %v", err)
	}
	moving := serve(t, "moving", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(503) })
	w.is([]lease.Node{moving}, map[neuron.Place]string{1: "moving"})
	if _, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"}); !isUnavailable(err) {
		t.Errorf("while it moves: %v", err)
	}
	dead := moving
	dead.Alive = false
	w.is([]lease.Node{dead}, map[neuron.Place]string{1: "moving"})
	if _, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"}); !isUnavailable(err) || w.NodeOf(1) != "" {
		t.Errorf("with a dead holder: %v, held by %q", err, w.NodeOf(1))
	}
	reached, end := make(chan struct{}), make(chan struct{})
	asleep := serve(t, "asleep", func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-end
	})
	heir := serve(t, "heir", func(out http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(out, "heir") })
	w.is([]lease.Node{asleep, heir}, map[neuron.Place]string{1: "asleep"})
	go func() {
		<-reached
		w.is([]lease.Node{heir}, map[neuron.Place]string{1: "heir"})
	}()
	resp, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"})
	close(end)
	if err != nil || text(t, resp) != "heir" {
		t.Fatalf("after the move: %v", err)
	}
}

// M-12: a stream of another daemon ends when the place moves.
func TestStreamEndsWithTheMove(t *testing.T) {
	w := newWorld(t, time.Second)
	n := serve(t, "other", func(out http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(out, "first\n")
		_ = http.NewResponseController(out).Flush()
		<-r.Context().Done()
	})
	w.is([]lease.Node{n}, map[neuron.Place]string{1: "other"})
	resp, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/", Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("first\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	w.is([]lease.Node{n}, map[neuron.Place]string{1: "me"})
	// The other daemon may be quick enough to end its answer well.
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 {
		t.Errorf("the stream goes on: %q, %v", rest, err)
	}
}

// M-12: hints of the others come while somebody listens, after word that some may have been missed; a lost stream is opened again.
func TestHints(t *testing.T) {
	w := newWorld(t, time.Second)
	var mu sync.Mutex
	streams := 0
	n := serve(t, "other", func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/events" || r.Header.Get(wire.HeaderHop) != "me" {
			t.Errorf("asked for %s by %q", r.URL, r.Header.Get(wire.HeaderHop))
		}
		mu.Lock()
		streams++
		nth := streams
		mu.Unlock()
		fmt.Fprintf(out, ": soma\n\nevent: hint\ndata: {\"session\":\"s\",\"seq\":%d}\n\nevent: new\ndata: [\n\n", nth)
		_ = http.NewResponseController(out).Flush()
		if nth > 1 {
			<-r.Context().Done()
		}
	})
	w.is([]lease.Node{n}, map[neuron.Place]string{7: "other"})
	select {
	case <-w.missed:
		t.Error("somebody is listened to for nobody")
	case <-time.After(10 * time.Millisecond):
	}
	end := w.Listen()
	for want := range uint64(2) {
		<-w.missed
		if h := <-w.hints; h != (wire.Hint{Session: "s", Seq: want + 1}) {
			t.Errorf("hint %+v", h)
		}
	}
	end()
}

// M-12: only who holds something is listened to, and who has no room for it is asked seldom; as often it is said, once for all of
// those, that hints were missed.
func TestWhoIsListenedTo(t *testing.T) {
	asked := make(chan string, 1024)
	node := func(id string, status int) lease.Node {
		return serve(t, id, func(out http.ResponseWriter, r *http.Request) {
			asked <- id
			if out.WriteHeader(status); status == http.StatusOK {
				_ = http.NewResponseController(out).Flush()
				<-r.Context().Done()
			}
		})
	}
	w := newWorld(t, time.Second)
	w.is([]lease.Node{node("holds", 200), node("spare", 200), node("full", 429), node("fuller", 429)}, map[neuron.Place]string{1: "holds", 2: "full", 3: "fuller"})
	defer w.Listen()()
	seen := map[string]int{}
	for len(seen) < 3 {
		seen[<-asked]++
	}
	<-w.missed // the stream of the one that has room begins
	began := time.Now()
	<-w.missed // once for the two that have none
	select {
	case <-w.missed:
		if d := time.Since(began); d < refused/2 {
			t.Errorf("missed again after %v", d)
		}
	case <-time.After(3 * refused):
		t.Error("nothing was missed any more")
	}
	took := time.Since(began)
	for len(asked) > 0 {
		seen[<-asked]++
	}
	if n := seen["full"] + seen["fuller"]; n > 4+2*int(took/refused) {
		t.Errorf("those without room were asked %d times in %v", n, took)
	}
	if seen["holds"] != 1 || seen["spare"] != 0 {
		t.Errorf("asked %v", seen)
	}
}

// I-50: a node that does not take the secret refuses this daemon, and not who asks it.
func TestSecretIsRefused(t *testing.T) {
	w := newWorld(t, 20*time.Second)
	n := serve(t, "other", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(401) })
	w.is([]lease.Node{n}, map[neuron.Place]string{1: "other"})
	began := time.Now()
	resp, err := w.Ask(t.Context(), 1, peer.Question{Method: "GET", Path: "/"})
	if resp != nil || !isUnavailable(err) || !strings.Contains(err.Error(), "secret") || time.Since(began) > 10*time.Second {
		t.Errorf("%v, %v after %s", resp, err, time.Since(began))
	}
}

// I-50: the secret is taken whole.
func TestSecret(t *testing.T) {
	w := newWorld(t, time.Second)
	for credential, want := range map[string]bool{secret: true, "": false, secret[:63]: false, secret + "0": false, strings.ToUpper(secret): false} {
		if w.Is(credential) != want {
			t.Errorf("%q is taken: %v", credential, !want)
		}
	}
	if peer.New(peer.Options{}).Is("") {
		t.Error("without a secret nothing is one")
	}
}
