package postgres

import (
	"sync"
	"testing"

	"soma/internal/neuron"
)

// M-12: all nodes of a database have one secret, made once, however many open it at the same moment.
func TestPeerSecret(t *testing.T) {
	a, b := pair(t, Options{})
	if len(a.PeerSecret()) != 64 || a.PeerSecret() != b.PeerSecret() {
		t.Errorf("the secrets have %d and %d characters, or differ", len(a.PeerSecret()), len(b.PeerSecret()))
	}
	exec(t, a, "delete from meta where name = 'peers'")
	dsn, o := dsnOf(t, a), Options{Migrations: withSuite(t)}
	var wg sync.WaitGroup
	found := make(chan string, 8)
	for range cap(found) {
		wg.Go(func() {
			s, err := Open(t.Context(), dsn, o)
			if err != nil {
				t.Error(err)
				return
			}
			found <- s.PeerSecret()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(found)
	first := ""
	for s := range found {
		if first == "" {
			first = s
		}
		if s != first || s == a.PeerSecret() {
			t.Error("another secret, or the old one")
		}
	}
}

// N-36: the zero hint, which says that places are free, reaches the other nodes like every other one.
func TestZeroHintIsAnnounced(t *testing.T) {
	words := messages("tag", []neuron.Hint{{}})
	if len(words) != 1 {
		t.Fatalf("%q", words)
	}
	if h, err := hint(words[0][len("tag "):]); err != nil || h != (neuron.Hint{}) {
		t.Errorf("%q is read as %v, %v", words[0], h, err)
	}
}
