package exchange

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"soma/ident"
	"soma/session"
)

// Bound is the number of letters that an outbox holds, those that wait there for a full inbox included (once for each who has not
// got it), and the number that all inboxes of one owner hold together. A broadcast counts once until it is collected: more may
// wait then than Bound, one for each letter and recipient at most, and Send is refused until fewer do.
const Bound = 10_000

// Interval is the time between two rounds of Run where none is given.
const Interval = time.Second

// Options are the settings of an exchange. The zero value is usable.
type Options struct {
	// Bound is the number of letters in an outbox, and in all inboxes of one owner; 0 means the constant Bound.
	Bound int
	// Now is the clock that letters are stamped with; nil means [time.Now].
	Now func() time.Time
}

// Exchange is a set of mailboxes, and a [session.Mail]. All methods may be called from any goroutine; none calls code of the
// program but the clock, and none but Run waits for anything that lasts. New makes one; the zero value is of no use.
type Exchange struct {
	bound   int
	now     func() time.Time
	dropped atomic.Uint64

	mu    sync.RWMutex // guards boxes; it is locked before that of a box
	boxes map[ident.ID]*Mailbox
}

var _ session.Mail = (*Exchange)(nil)

// New makes an exchange without mailboxes.
func New(o Options) *Exchange {
	if o.Bound <= 0 {
		o.Bound = Bound
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Exchange{bound: o.Bound, now: o.Now, boxes: map[ident.ID]*Mailbox{}}
}

// Register makes an empty mailbox. A session registers its members by itself. The error wraps [session.ErrExists] where the owner
// has one, [session.ErrInvalid] for the zero id.
func (x *Exchange) Register(owner ident.ID) error {
	if owner.IsZero() {
		return fmt.Errorf("cannot register: %w owner: the id is zero", session.ErrInvalid)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.boxes[owner] != nil {
		return fmt.Errorf("cannot register: a mailbox of %s %w", owner, session.ErrExists)
	}
	x.boxes[owner] = &Mailbox{owner: owner, inboxes: map[ident.ID]*inbox{}}
	return nil
}

// RegisterParticipant gives a mailbox to somebody who is no branch. It is Register under the name that sessions use.
func (x *Exchange) RegisterParticipant(id ident.ID) error { return x.Register(id) }

// Unregister takes a mailbox away with all that is in it, and returns that: what waited in the outbox, then what had arrived. All of
// it counts as dropped. An unknown owner has nothing. Who registers again begins with an empty mailbox.
func (x *Exchange) Unregister(owner ident.ID) []session.Letter {
	x.mu.Lock()
	box := x.boxes[owner]
	delete(x.boxes, owner)
	x.mu.Unlock()
	if box == nil {
		return nil
	}
	letters := box.close()
	x.dropped.Add(uint64(len(letters)))
	return letters
}

// Has says whether the owner has a mailbox.
func (x *Exchange) Has(owner ident.ID) bool { return x.box(owner) != nil }

// Get returns the owner's mailbox, to look into.
func (x *Exchange) Get(owner ident.ID) (*Mailbox, bool) {
	box := x.box(owner)
	return box, box != nil
}

func (x *Exchange) box(owner ident.ID) *Mailbox {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.boxes[owner]
}

// Owners returns who has a mailbox, in the order of the ids.
func (x *Exchange) Owners() []ident.ID {
	x.mu.RLock()
	owners := make([]ident.ID, 0, len(x.boxes))
	for id := range x.boxes {
		owners = append(owners, id)
	}
	x.mu.RUnlock()
	slices.SortFunc(owners, func(a, b ident.ID) int { return bytes.Compare(a[:], b[:]) })
	return owners
}

// Dropped is the number of letters that are lost: whose recipient had no mailbox, broadcasts that found nobody, copies whose
// recipient left meanwhile, and what lay in mailboxes that were unregistered.
func (x *Exchange) Dropped() uint64 { return x.dropped.Load() }

// Send queues a letter in the sender's outbox, and returns it. Nothing is delivered yet, and whether the recipient has a mailbox is
// seen only then. A zero recipient means everybody else; mail to oneself is mail like any other. The channel is carried along, and
// nothing depends on it. The error wraps [session.ErrNotFound] for a sender without a mailbox, [session.ErrFull] for a full outbox.
func (x *Exchange) Send(sender, recipient ident.ID, content any, channel string) (session.Letter, error) {
	box := x.box(sender)
	if box == nil {
		return session.Letter{}, fmt.Errorf("cannot send: a mailbox of %s is %w", sender, session.ErrNotFound)
	}
	return x.send(box, recipient, content, channel)
}

func (x *Exchange) send(box *Mailbox, recipient ident.ID, content any, channel string) (session.Letter, error) {
	now := x.now()
	l := &session.Letter{ID: ident.New(now), Sender: box.owner, Recipient: recipient, Content: content, Channel: channel, Time: now}
	if err := box.queue(l, x.bound); err != nil {
		return session.Letter{}, fmt.Errorf("cannot send: %w", err)
	}
	return *l, nil
}

// Receive returns the letters that have arrived for the owner, of these senders only where any are given, in the order of their
// arrival, and leaves them there. An unknown owner has none.
func (x *Exchange) Receive(owner ident.ID, senders ...ident.ID) []session.Letter {
	if box := x.box(owner); box != nil {
		return box.arrived(senders)
	}
	return nil
}

// Pop takes out the oldest letter that has arrived from the sender; false where there is none.
func (x *Exchange) Pop(owner, sender ident.ID) (session.Letter, bool) {
	if box := x.box(owner); box != nil {
		return box.pop(sender)
	}
	return session.Letter{}, false
}

// Run collects from all owners at once and then every interval (0 or less means the constant Interval), until the context ends,
// whose error it returns. It runs in the goroutine that calls it. A session never starts it.
func (x *Exchange) Run(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		interval = Interval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := x.CollectAll(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
