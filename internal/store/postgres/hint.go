package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/ident"
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

// Announce tells the other nodes of outbox rows, after their commit: within it a notification would cost most of the
// throughput, for the server sends them one transaction at a time.
func (s *Store) Announce(ctx context.Context, ids []ident.ID) error {
	err := s.hints.use(ctx, func(c *session) error {
		for _, text := range messages(s.tag, ids) {
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

// messages are the tag and the ids, as many as one notification holds.
func messages(tag string, ids []ident.ID) []string {
	var out []string
	var b strings.Builder
	for _, id := range ids {
		text := " " + id.String()
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

// Listen calls fn with the ids that other stores announce, on a connection of its own, until ctx ends or that breaks. What is
// announced meanwhile is lost to this node.
func (s *Store) Listen(ctx context.Context, fn func(ids []ident.ID)) error {
	config := s.listener.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		words := strings.Fields(n.Payload)
		if len(words) < 2 || words[0] == s.tag {
			return
		}
		ids := make([]ident.ID, 0, len(words)-1)
		for _, w := range words[1:] {
			if id, err := ident.Parse(w); err == nil { // what is no id is of nobody here
				ids = append(ids, id)
			}
		}
		fn(ids)
	}
	c, err := pgconn.ConnectConfig(ctx, config)
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
