package exchange

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"soma/ident"
	"soma/session"
)

// The names under which a mailbox keeps its letters: the outbox, and for each sender the prefix with the sender's id.
const (
	Outbox      = "outbox"
	InboxPrefix = "inbox_"
)

// Mailbox is what one owner has sent and got. It is there to be looked into; the exchange fills and empties it. All methods may be
// called from any goroutine. A mailbox that has been unregistered is empty.
type Mailbox struct {
	owner ident.ID

	// delivering is held by who delivers from the outbox; it is locked before all others.
	delivering sync.Mutex

	mu      sync.Mutex // guards what follows
	closed  bool
	outbox  []*session.Letter // letters never change: copies of a broadcast are the same one
	spare   []*session.Letter // an empty outbox to take next
	waiting []parcel
	taken   int // letters that are on their way: they have room here until it is known whether they must wait
	inboxes map[ident.ID]*inbox
	last    *inbox // the one that was used last; nil or one of inboxes
	held    int    // letters in all inboxes
	next    uint64 // the number of the next arrival
}

// inbox is the queue of one sender; it is never empty.
type inbox struct {
	sender  ident.ID
	letters []arrival
	head    int
}

type arrival struct {
	letter *session.Letter
	nth    uint64
}

// parcel is a letter for one of those whom it is for.
type parcel struct {
	letter *session.Letter
	to     ident.ID
}

// Owner is whose mailbox it is.
func (b *Mailbox) Owner() ident.ID { return b.owner }

// Names returns "outbox", then the inboxes that hold letters, sorted.
func (b *Mailbox) Names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, len(b.inboxes))
	for sender := range b.inboxes {
		names = append(names, InboxPrefix+sender.String())
	}
	slices.Sort(names)
	return append([]string{Outbox}, names...)
}

// Letters returns a copy of what lies under a name, oldest first: in "outbox" what has not been collected yet, in
// "inbox_<sender>" what has arrived from that one. There is nothing under any other name.
func (b *Mailbox) Letters(name string) []session.Letter {
	if name == Outbox {
		b.mu.Lock()
		defer b.mu.Unlock()
		letters := make([]session.Letter, len(b.outbox))
		for i, l := range b.outbox {
			letters[i] = *l
		}
		return letters
	}
	text, ok := strings.CutPrefix(name, InboxPrefix)
	if !ok {
		return nil
	}
	sender, err := ident.Parse(text)
	if err != nil {
		return nil
	}
	return b.arrived([]ident.ID{sender})
}

func (b *Mailbox) queue(l *session.Letter, bound int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return fmt.Errorf("a mailbox of %s is %w", b.owner, session.ErrNotFound)
	case len(b.outbox)+len(b.waiting)+b.taken >= bound:
		return fmt.Errorf("the %w: %d letters wait at %s", session.ErrFull, bound, b.owner)
	}
	b.outbox = append(doubled(b.outbox), l)
	return nil
}

// doubled makes room in a full list for as much again: long lists of append grow by less, and are copied more often.
func doubled[T any](list []T) []T {
	if len(list) == cap(list) {
		return slices.Grow(list, max(8, len(list)))
	}
	return list
}

// take empties the outbox for a delivery, which ends with keep.
func (b *Mailbox) take() ([]parcel, []*session.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, letters := b.waiting, b.outbox
	b.waiting, b.outbox, b.spare = nil, b.spare, nil
	b.taken = len(waiting) + len(letters)
	return waiting, letters
}

// keep puts back what could not be delivered of what was taken, and returns how much of that is lost because the mailbox is gone.
func (b *Mailbox) keep(waiting []parcel, taken []*session.Letter) int {
	clear(taken)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
	if b.closed {
		return len(waiting)
	}
	b.waiting, b.spare = waiting, taken[:0]
	return 0
}

func (b *Mailbox) pending(out bool) []Waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	letters := make([]Waiting, len(b.waiting))
	for i, w := range b.waiting {
		letters[i] = Waiting{*w.letter, w.to}
	}
	if out {
		b.waiting = nil
	}
	return letters
}

// from returns the inbox of a sender; nil where nothing of it is here. mu is held.
func (b *Mailbox) from(sender ident.ID) *inbox {
	if b.last == nil || b.last.sender != sender {
		b.last = b.inboxes[sender]
	}
	return b.last
}

// accept puts a letter into the inbox of its sender; it is not open where the mailbox is gone. The error wraps ErrFull.
func (b *Mailbox) accept(l *session.Letter, bound int) (open bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, nil
	}
	if b.held >= bound {
		return true, fmt.Errorf("the %w of %s", session.ErrFull, b.owner)
	}
	in := b.from(l.Sender)
	if in == nil {
		in = &inbox{sender: l.Sender}
		b.inboxes[l.Sender], b.last = in, in
	}
	in.letters = append(doubled(in.letters), arrival{l, b.next})
	b.next++
	b.held++
	return true, nil
}

// arrived returns what the inboxes hold, of these senders only where any are given, in the order of arrival.
func (b *Mailbox) arrived(senders []ident.ID) []session.Letter {
	b.mu.Lock()
	found := b.gather(senders)
	b.mu.Unlock()
	return inOrder(found)
}

// gather is arrived before it is sorted. mu is held.
func (b *Mailbox) gather(senders []ident.ID) []arrival {
	var found []arrival
	if len(senders) == 0 {
		for _, in := range b.inboxes {
			found = append(found, in.letters[in.head:]...)
		}
	}
	for i, sender := range senders {
		if in := b.inboxes[sender]; in != nil && !slices.Contains(senders[:i], sender) {
			found = append(found, in.letters[in.head:]...)
		}
	}
	return found
}

func inOrder(found []arrival) []session.Letter {
	slices.SortFunc(found, func(x, y arrival) int { return cmp.Compare(x.nth, y.nth) })
	letters := make([]session.Letter, len(found))
	for i, a := range found {
		letters[i] = *a.letter
	}
	return letters
}

func (b *Mailbox) pop(sender ident.ID) (session.Letter, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.from(sender)
	if in == nil {
		return session.Letter{}, false
	}
	l := *in.letters[in.head].letter
	in.letters[in.head] = arrival{} // what has left is not held any longer
	in.head++
	b.held--
	switch left := len(in.letters) - in.head; {
	case left == 0:
		delete(b.inboxes, sender)
		b.last = nil
	case in.head > left: // each letter is moved at most once for each that has left
		in.letters, in.head = append(in.letters[:0:0], in.letters[in.head:]...), 0
	}
	return l, true
}

// close ends the mailbox and returns what was in it.
func (b *Mailbox) close() []session.Letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	letters := make([]session.Letter, 0, len(b.waiting)+len(b.outbox)+b.held)
	for _, w := range b.waiting {
		letters = append(letters, *w.letter)
	}
	for _, l := range b.outbox {
		letters = append(letters, *l)
	}
	letters = append(letters, inOrder(b.gather(nil))...)
	b.closed, b.waiting, b.outbox, b.spare, b.inboxes, b.last, b.held = true, nil, nil, nil, map[ident.ID]*inbox{}, nil, 0
	return letters
}
