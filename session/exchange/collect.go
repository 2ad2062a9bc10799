package exchange

import (
	"context"
	"fmt"

	"soma/ident"
	"soma/session"
)

// Waiting is a letter that could not be delivered to one of those whom it is for, because that one's inbox was full.
type Waiting struct {
	session.Letter
	// To is who has not got it: the recipient, or for a broadcast one of the others.
	To ident.ID
}

// report is told of each delivery: nil where the letter arrived, an error that wraps ErrFull where it waits, and ErrNotFound where
// it is lost. To is zero for a broadcast that finds nobody.
type report func(l *session.Letter, to ident.ID, err error)

// Collect takes what waits in the owner's outbox and delivers it. It returns how many different letters had somebody to be
// delivered to: a broadcast counts once, what is for nobody who is there not at all. It does not say that they arrived: a
// recipient may leave meanwhile, and a full inbox keeps a letter pending at the sender's, from where the next Collect tries again.
// The only error wraps [session.ErrNotFound], for an owner without a mailbox, or is that of a context that has ended before.
//
// Collections of one owner wait for each other, which keeps letters in order.
func (x *Exchange) Collect(ctx context.Context, owner ident.ID) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("cannot collect: %w", err)
	}
	box := x.box(owner)
	if box == nil {
		return 0, fmt.Errorf("cannot collect: a mailbox of %s is %w", owner, session.ErrNotFound)
	}
	box.delivering.Lock()
	defer box.delivering.Unlock()
	return x.deliver(box, nil), nil
}

// CollectAll collects from everybody who has a mailbox when it begins, skipping who leaves meanwhile, and returns the sum. The only
// error is that of the context, which is looked at before each owner.
func (x *Exchange) CollectAll(ctx context.Context) (int, error) {
	n := 0
	for _, owner := range x.Owners() {
		if err := ctx.Err(); err != nil {
			return n, fmt.Errorf("cannot collect: %w", err)
		}
		box := x.box(owner)
		if box == nil {
			continue
		}
		box.delivering.Lock()
		n += x.deliver(box, nil)
		box.delivering.Unlock()
	}
	return n, nil
}

// Sync is CollectAll.
func (x *Exchange) Sync(ctx context.Context) (int, error) { return x.CollectAll(ctx) }

// Pending returns what the owner has sent and a full inbox has not taken yet, in the order of sending.
func (x *Exchange) Pending(owner ident.ID) []Waiting {
	if box := x.box(owner); box != nil {
		return box.pending(false)
	}
	return nil
}

// Drain takes out what Pending returns: it will not be tried again, and does not count as dropped.
func (x *Exchange) Drain(owner ident.ID) []Waiting {
	if box := x.box(owner); box != nil {
		return box.pending(true)
	}
	return nil
}

// deliver empties the outbox of box, whose delivering is held. No other lock is held while a letter is handed over.
func (x *Exchange) deliver(box *Mailbox, tell report) int {
	waiting, letters := box.take()
	if len(waiting)+len(letters) == 0 {
		return 0
	}
	r := round{x: x, tell: tell}
	for _, w := range waiting {
		r.hand(w.letter, w.to)
	}
	var others []ident.ID
	for _, l := range letters {
		if !l.Recipient.IsZero() {
			r.hand(l, l.Recipient)
			continue
		}
		if others == nil {
			others = x.Owners()
		}
		found := false
		for _, to := range others {
			if to != box.owner {
				found = true
				r.hand(l, to)
			}
		}
		if !found {
			r.lose(l, ident.ID{})
		}
	}
	if lost := box.keep(r.waiting, letters); lost > 0 {
		x.dropped.Add(uint64(lost))
	}
	return r.letters
}

// round is one collection.
type round struct {
	x       *Exchange
	tell    report
	blocked map[ident.ID]bool // whose inbox was full: nothing may overtake what waits for it
	waiting []parcel
	last    ident.ID // the letter that was counted last; deliveries of one letter follow each other
	letters int
	to      ident.ID // whose mailbox was asked for last
	box     *Mailbox
}

func (r *round) hand(l *session.Letter, to ident.ID) {
	if r.box == nil || r.to != to {
		r.to, r.box = to, r.x.box(to)
	}
	box := r.box
	if box == nil {
		r.lose(l, to)
		return
	}
	if r.last != l.ID {
		r.last = l.ID
		r.letters++
	}
	err := session.ErrFull
	if !r.blocked[to] {
		var open bool
		if open, err = box.accept(l, r.x.bound); !open {
			r.lose(l, to)
			return
		}
	}
	if err != nil {
		if r.blocked == nil {
			r.blocked = map[ident.ID]bool{}
		}
		r.blocked[to] = true
		r.waiting = append(r.waiting, parcel{l, to})
	}
	if r.tell != nil {
		r.tell(l, to, err)
	}
}

func (r *round) lose(l *session.Letter, to ident.ID) {
	r.x.dropped.Add(1)
	if r.tell != nil {
		r.tell(l, to, session.ErrNotFound)
	}
}
