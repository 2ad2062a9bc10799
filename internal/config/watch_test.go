package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func held(t *testing.T) (Home, *Lock, *SocketListener) {
	t.Helper()
	h, err := HomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Release() })
	socket, err := ListenSocket(h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return h, lock, socket
}

// I-02: what is closed late does not take away the socket of the one that came after it.
func TestCloseLeavesTheSocketOfAnother(t *testing.T) {
	h, _, old := held(t)
	if err := os.Remove(h.Socket()); err != nil {
		t.Fatal(err)
	}
	fresh, err := ListenSocket(h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := DialSocket(t.Context(), h.Socket())
	if err != nil {
		t.Fatalf("the first one has removed the second one's socket: %v", err)
	}
	_ = conn.Close()
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(h.Socket()); err == nil {
		t.Error("the second one has left its socket")
	}
}

// I-02: a home that was taken away under its holder is noticed; what else happens in it is not taken for that.
func TestWatchNoticesALostHome(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(h Home) error
		want string
	}{
		"home":     {func(h Home) error { return os.RemoveAll(h.Dir()) }, "its "},
		"moved":    {func(h Home) error { return os.Rename(h.Dir(), h.Dir()+"2") }, "its lock file"},
		"lock":     {func(h Home) error { return os.Remove(h.lockFile()) }, "its lock file"},
		"socket":   {func(h Home) error { return os.Remove(h.Socket()) }, "its socket"},
		"replaced": {func(h Home) error { return os.Rename(h.TokenFile(), h.Socket()) }, "its socket"},
	} {
		t.Run(name, func(t *testing.T) {
			h, lock, socket := held(t)
			watch, err := lock.Watch(socket)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.EnsureToken(); err != nil { // a rename
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- watch.Wait(t.Context()) }()
			if err := h.RotateToken(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				t.Fatalf("a new token ended it: %v", err)
			default:
			}
			if err := c.lose(h); err != nil {
				t.Fatal(err)
			}
			err = <-ended
			var lost *HomeError
			if !errors.As(err, &lost) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	_, lock, socket := held(t)
	watch, err := lock.Watch(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait(ctx) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// I-02: who holds a home is told without a trace.
func TestHolder(t *testing.T) {
	h, lock, _ := held(t)
	if holder := h.Holder(); holder == nil || holder.PID != os.Getpid() {
		t.Errorf("the holder is %v", holder)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if holder := h.Holder(); holder != nil {
		t.Errorf("nobody holds it, but %v", holder)
	}
	if err := os.Remove(h.lockFile()); err != nil {
		t.Fatal(err)
	}
	if holder := h.Holder(); holder != nil {
		t.Errorf("there is no lock file, but %v", holder)
	}
	if _, err := os.Lstat(h.lockFile()); err == nil {
		t.Error("looking has made a lock file")
	}
}
