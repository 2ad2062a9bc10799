package fault_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/store/fault"
	"soma/internal/store/sqlite"
)

func open(t *testing.T) *fault.Store {
	t.Helper()
	inner, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "soma.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fault.Wrap(inner)
}

func record(key int64) *neuron.Record {
	id := neuron.ID{Owner: "me", Kind: "fault", Key: "x"}
	return &neuron.Record{Neuron: id, Key: key, New: true, Turn: &neuron.TurnRow{Seq: 1, DeliveryID: ident.Named("fault", "x"), Incoming: []byte("{}"), OutFirst: 1}}
}

func TestFaults(t *testing.T) {
	s := open(t)
	defer s.Close()
	f, err := s.Claim(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	disk := errors.New("disk on fire")
	s.Next(fault.Commit, fault.Fault{Before: disk})
	s.At(fault.Commit, 2, fault.Fault{After: neuron.ErrOutcomeUnknown})
	if err := s.Commit(t.Context(), f, []*neuron.Record{record(1)}); !errors.Is(err, disk) {
		t.Fatalf("first commit: %v", err)
	}
	if n, _, err := s.ReserveKeys(t.Context()); n != 1 || err != nil {
		t.Fatalf("the failed commit left the first key at %d, %v", n, err)
	}
	if err := s.Commit(t.Context(), f, []*neuron.Record{record(1)}); !errors.Is(err, neuron.ErrOutcomeUnknown) {
		t.Fatalf("second commit: %v", err)
	}
	if n, _, err := s.ReserveKeys(t.Context()); n != 2 || err != nil {
		t.Fatalf("the commit without an answer left the first key at %d, %v", n, err)
	}
	if n := s.Calls(fault.Commit); n != 2 {
		t.Errorf("%d commits counted", n)
	}
}

func TestHold(t *testing.T) {
	s := open(t)
	defer s.Close()
	hold, held := make(chan struct{}), make(chan struct{})
	s.Next(fault.ReserveKeys, fault.Fault{Hold: hold, Held: held})
	done := make(chan error)
	go func() { _, _, err := s.ReserveKeys(t.Context()); done <- err }()
	<-held
	select {
	case err := <-done:
		t.Fatalf("a held call came back: %v", err)
	default:
	}
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	held = make(chan struct{})
	s.Next(fault.ReserveKeys, fault.Fault{Hold: make(chan struct{}), Held: held})
	go func() { _, _, err := s.ReserveKeys(ctx); done <- err }()
	<-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled call: %v", err)
	}
}
