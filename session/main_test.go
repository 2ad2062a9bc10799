package session_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"soma/ident"
	"soma/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTest = errors.New("of the test")

// quiet makes a session whose log is silent.
func quiet(t *testing.T, o session.Options) *session.Session {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := session.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func free(t *testing.T, o session.BranchOptions) *session.Branch {
	t.Helper()
	b, err := session.NewBranch(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

// boxes is a Mail of the test: mailboxes without a pump.
type boxes struct {
	mu       sync.Mutex
	of       map[ident.ID][]session.Letter
	register func(ident.ID) // called when a mailbox is made
}

func newBoxes() *boxes { return &boxes{of: map[ident.ID][]session.Letter{}} }

func (m *boxes) Register(owner ident.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.of[owner]; ok {
		return session.ErrExists
	}
	m.of[owner] = nil
	if m.register != nil {
		m.register(owner)
	}
	return nil
}

func (m *boxes) Unregister(owner ident.ID) []session.Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	dropped := m.of[owner]
	delete(m.of, owner)
	return dropped
}

func (m *boxes) Has(owner ident.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.of[owner]
	return ok
}

func (m *boxes) Send(sender, recipient ident.ID, content any, channel string) (session.Letter, error) {
	l := session.Letter{Sender: sender, Recipient: recipient, Content: content, Channel: channel}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.of[sender]; !ok {
		return l, session.ErrNotFound
	}
	m.of[recipient] = append(m.of[recipient], l)
	return l, nil
}

func (m *boxes) Receive(owner ident.ID, _ ...ident.ID) []session.Letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[owner]
}

func (m *boxes) Pop(owner, _ ident.ID) (session.Letter, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.of[owner]) == 0 {
		return session.Letter{}, false
	}
	l := m.of[owner][0]
	m.of[owner] = m.of[owner][1:]
	return l, true
}

func (m *boxes) Collect(context.Context, ident.ID) (int, error) { return 3, nil }

func (m *boxes) Sync(context.Context) (int, error) { return 7, nil }
