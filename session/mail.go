package session

import (
	"context"
	"fmt"
	"time"

	"soma/ident"
)

// Letter is one message between owners of mailboxes.
type Letter struct {
	// ID is the same in every copy of a broadcast.
	ID     ident.ID `json:"id"`
	Sender ident.ID `json:"sender"`
	// Recipient is zero for a broadcast.
	Recipient ident.ID  `json:"recipient,omitzero"`
	Content   any       `json:"content"`
	Channel   string    `json:"channel,omitempty"`
	Time      time.Time `json:"time"`
}

// Mail is a set of mailboxes in this program; package session/exchange has one. A session registers and unregisters its
// members while it holds its lock, so an implementation must not call sessions, and must not wait for anything that lasts.
// It is safe for use by several goroutines.
type Mail interface {
	// Register makes an empty mailbox. The error wraps ErrExists where the owner has one.
	Register(owner ident.ID) error
	// Unregister drops a mailbox with all that is in it, and returns what was dropped; nothing for an unknown owner.
	Unregister(owner ident.ID) []Letter
	// Has says whether the owner has a mailbox.
	Has(owner ident.ID) bool
	// Send queues a letter in the sender's outbox; a zero recipient means everybody else. Nothing is delivered yet. The error wraps
	// ErrNotFound for an unknown sender, ErrFull for a full outbox.
	Send(sender, recipient ident.ID, content any, channel string) (Letter, error)
	// Receive returns what the owner's inboxes hold, of these senders only where any are given, and takes nothing out.
	Receive(owner ident.ID, senders ...ident.ID) []Letter
	// Pop takes out the oldest letter from the sender.
	Pop(owner, sender ident.ID) (Letter, bool)
	// Collect delivers what waits in the owner's outbox, and returns how many letters that were. The error wraps ErrNotFound.
	Collect(ctx context.Context, owner ident.ID) (int, error)
	// Sync collects from all owners.
	Sync(ctx context.Context) (int, error)
}

// RegisterParticipant gives a mailbox to somebody who is no branch. The error wraps ErrNoMail, or ErrExists where the id has one.
func (s *Session) RegisterParticipant(id ident.ID) error {
	if s.mail == nil {
		return fmt.Errorf("cannot register %s: %w", id, ErrNoMail)
	}
	return s.mail.Register(id)
}

// Send queues a letter of a member or participant; a zero recipient means everybody else. It arrives once somebody calls
// Collect or Sync. The error wraps ErrNoMail, ErrNotFound for a sender without a mailbox, ErrFull.
func (s *Session) Send(sender, recipient ident.ID, content any, channel string) (Letter, error) {
	if s.mail == nil {
		return Letter{}, fmt.Errorf("cannot send: %w", ErrNoMail)
	}
	return s.mail.Send(sender, recipient, content, channel)
}

// Receive returns the letters that have arrived for the owner, of these senders only where any are given, and leaves them there.
func (s *Session) Receive(owner ident.ID, senders ...ident.ID) []Letter {
	if s.mail == nil {
		return nil
	}
	return s.mail.Receive(owner, senders...)
}

// Pop takes out the oldest letter from the sender.
func (s *Session) Pop(owner, sender ident.ID) (Letter, bool) {
	if s.mail == nil {
		return Letter{}, false
	}
	return s.mail.Pop(owner, sender)
}

// Collect delivers what the owner has sent, and returns how many letters that were. The error wraps ErrNoMail or ErrNotFound.
func (s *Session) Collect(ctx context.Context, owner ident.ID) (int, error) {
	if s.mail == nil {
		return 0, fmt.Errorf("cannot collect: %w", ErrNoMail)
	}
	return s.mail.Collect(ctx, owner)
}

// Sync delivers what all have sent. A session never does so by itself. The error wraps ErrNoMail.
func (s *Session) Sync(ctx context.Context) (int, error) {
	if s.mail == nil {
		return 0, fmt.Errorf("cannot sync: %w", ErrNoMail)
	}
	return s.mail.Sync(ctx)
}
