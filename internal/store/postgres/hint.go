package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/ident"
	"soma/internal/neuron"
)

const (
	// channel is where nodes tell each other of outbox rows.
	channel = "soma_outbox"
	// hintBytes is a little less than what a notification holds.
	hintBytes = 7900
)

// newTag returns a name for this store by which it knows its own hints.
func newTag() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Announce tells the other nodes of what was committed for them, after the commit: within it a notification would cost most of the
// throughput, for the server sends them one transaction at a time.
func (s *Store) Announce(ctx context.Context, hints []neuron.Hint) error {
	err := s.hints.use(ctx, func(c *session) error {
		for _, text := range messages(s.tag, hints) {
			if _, err := c.exec(ctx, "select pg_notify('"+channel+"', $1)", text); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot announce outbox rows: %w", err)
	}
	return nil
}

// hint reads place:id.
func hint(word string) (neuron.Hint, error) {
	place, text, _ := strings.Cut(word, ":")
	p, err := strconv.ParseUint(place, 10, 8)
	if err != nil {
		return neuron.Hint{}, err
	}
	id, err := ident.Parse(text)
	return neuron.Hint{ID: id, Place: neuron.Place(p)}, err
}

// messages are the tag and the hints, place:id, as many as one notification holds.
func messages(tag string, hints []neuron.Hint) []string {
	var out []string
	var b strings.Builder
	for _, h := range hints {
		text := " " + strconv.Itoa(int(h.Place)) + ":" + h.ID.String()
		if b.Len() > 0 && b.Len()+len(text) > hintBytes {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(tag)
		}
		b.WriteString(text)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// Listen calls fn with what other stores announce, on a connection of its own, until ctx ends or that breaks. What is
// announced meanwhile is lost to this node.
func (s *Store) Listen(ctx context.Context, fn func([]neuron.Hint)) error {
	config := s.listener.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		words := strings.Fields(n.Payload)
		if len(words) < 2 || words[0] == s.tag {
			return
		}
		hints := make([]neuron.Hint, 0, len(words)-1)
		for _, w := range words[1:] {
			if h, err := hint(w); err == nil { // what is no hint is of nobody here
				hints = append(hints, h)
			}
		}
		fn(hints)
	}
	c, err := connect(ctx, config)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	defer newSession(c).hangUp()
	if _, err := c.Exec(ctx, "listen "+channel).ReadAll(); err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	for {
		if err := c.WaitForNotification(ctx); err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
	}
}
