package api

import (
	"cmp"
	"context"

	"soma/wire"
)

func listDeadLetters(s *Server, ctx context.Context, c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	all, err := s.Evidence.DeadLetters(ctx, c.query.Get("after"), limit+1)
	if err != nil {
		return nil, err
	}
	return page(all, limit, func(d wire.DeadLetter) string { return d.ID }), nil
}

func redrive(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("letter")
	if err != nil {
		return nil, err
	}
	return s.Evidence.Redrive(ctx, id)
}

func discard(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("letter")
	if err != nil {
		return nil, err
	}
	return s.Evidence.Discard(ctx, id)
}

func trace(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("id")
	if err != nil {
		return nil, err
	}
	return s.Evidence.Trace(ctx, id)
}

// neuron returns the neuron of the path and the feed of the query.
func (c *call) neuron() (id, feed string) {
	return c.r.PathValue("owner") + "/" + c.r.PathValue("kind") + "/" + c.r.PathValue("key"), cmp.Or(c.query.Get("feed"), wire.FeedIn)
}

func journal(s *Server, ctx context.Context, c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.number("after", 0, 0, anyNumber)
	if err != nil {
		return nil, err
	}
	id, feed := c.neuron()
	return s.Evidence.Journal(ctx, id, feed, after, limit)
}

// followJournal streams a feed: what is kept after the cursor, then what comes. Where that is not all there was, a reset
// comes first.
func followJournal(s *Server, ctx context.Context, c *call) error {
	at, err := c.cursor()
	if err != nil {
		return err
	}
	id, feed := c.neuron()
	follower, err := s.Evidence.FollowJournal(id, feed, at)
	if err != nil {
		return err
	}
	defer follower.Close()
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	at.Generation = s.Events.Generation()
	for {
		item, err := next(s, ctx, follower, out)
		switch {
		case err != nil:
			return err
		case item.Reset != nil:
			at.Seq = max(item.Reset.First, 1) - 1
			err = out.event(wire.Reset, at.String(), item.Reset)
		default:
			at.Seq = item.Entry.Seq
			err = out.event(wire.JournalEntryAdded, at.String(), item.Entry)
		}
		if err == nil {
			err = out.flush()
		}
		if err != nil {
			return err
		}
	}
}
