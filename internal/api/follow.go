package api

import (
	"context"

	"soma/wire"
)

// rows is how many events are read from the store at a time.
const rows = 256

// follower is one reader of a session's events: it has sent everything up to a sequence.
type follower struct {
	s       *Server
	session string
	out     *stream
	at      wire.Cursor
}

// followSession streams a session: the rows after the cursor, then what comes. It listens before it reads rows, so nothing
// falls between; where the listening has a gap it goes back to the rows.
func followSession(s *Server, ctx context.Context, c *call) error {
	id, err := c.id("session")
	if err != nil {
		return err
	}
	at, err := c.cursor()
	if err != nil {
		return err
	}
	sub := s.Events.Subscribe(id)
	defer sub.Close()
	if _, err := s.Sessions.Session(ctx, id); err != nil {
		return err
	}
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	f := &follower{s, id, out, at}
	for behind := true; ; {
		if behind {
			if err := f.readRows(ctx); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		item, err := next(s, ctx, sub, out)
		if err != nil {
			return err
		}
		if behind, err = f.take(item); err != nil {
			return err
		}
	}
}

// readRows sends the committed events after the cursor, or a reset if the cursor cannot be followed.
func (f *follower) readRows(ctx context.Context) error {
	for {
		if err := f.out.check(); err != nil {
			return err
		}
		generation := f.s.Events.Generation()
		events, first, last, err := f.s.Events.Events(ctx, f.session, f.at.Seq, rows)
		if err != nil {
			return err
		}
		foreign := f.at.Generation != "" && f.at.Generation != generation
		if foreign || f.at.Seq > last || f.at.Seq+1 < first {
			return f.reset(ctx, generation, first, last)
		}
		f.at.Generation = generation
		if len(events) == 0 {
			return nil
		}
		for i := range events {
			if err := f.send(&events[i]); err != nil {
				return err
			}
		}
	}
}

// reset says that the cursor cannot be followed, and goes on from the last event. The snapshot is read after it, so it is
// never older.
func (f *follower) reset(ctx context.Context, generation string, first, last uint64) error {
	session, err := f.s.Sessions.Session(ctx, f.session)
	if err != nil {
		return err
	}
	f.at = wire.Cursor{Generation: generation, Seq: last}
	return f.out.event(wire.Reset, f.at.String(), wire.ResetEvent{
		Generation: generation, First: first, Last: last, Session: session,
	})
}

// take sends one item of the subscription, and says whether events are missing before it.
func (f *follower) take(item wire.Item) (behind bool, err error) {
	switch {
	case item.Dropped:
		return true, nil
	case item.Live != nil:
		return false, f.out.event(item.Live.Kind, "", item.Live.Body)
	case item.Event == nil || item.Event.Seq <= f.at.Seq:
		return false, nil
	case item.Event.Seq > f.at.Seq+1:
		return true, nil
	}
	return false, f.send(item.Event)
}

func (f *follower) send(e *wire.Event) error {
	f.at.Seq = e.Seq
	return f.out.event(e.Kind, f.at.String(), e)
}

// followHints streams where sessions stand. A hint that was lost is made good by one for each session. Other daemons have half of
// the streams at most, so that clients find room however many daemons there are.
func followHints(s *Server, ctx context.Context, c *call) error {
	if c.r.Header.Get(wire.HeaderHop) != "" {
		defer s.listeners.Add(-1)
		if s.listeners.Add(1) > s.most/2 {
			return wire.Errorf(wire.Busy, "%d daemons listen", s.most/2).Do("ask again later")
		}
	}
	sub := s.hints(c)
	defer sub.Close()
	out, err := s.begin(c)
	if err != nil {
		return err
	}
	for {
		item, err := next(s, ctx, sub, out)
		switch {
		case err != nil:
			return err
		case item.Dropped:
			err = s.hintAll(ctx, out)
		case item.Event != nil:
			err = out.event("hint", "", wire.Hint{Session: item.Event.Session, Seq: item.Event.Seq})
		case item.Hint != nil:
			err = out.event("hint", "", item.Hint)
		}
		if err == nil {
			err = out.flush()
		}
		if err != nil {
			return err
		}
	}
}

// hints begins to listen to all daemons of the store; a daemon that asks another one hears of that one's sessions only.
func (s *Server) hints(c *call) Subscription {
	if s.Peers == nil || c.r.Header.Get(wire.HeaderHop) != "" {
		return s.Events.Subscribe("")
	}
	return s.Peers.Hints()
}

func (s *Server) hintAll(ctx context.Context, out *stream) error {
	f := wire.SessionFilter{Limit: wire.MaxLimit}
	for {
		if err := out.check(); err != nil {
			return err
		}
		all, err := s.Sessions.Sessions(ctx, f)
		if err != nil {
			return err
		}
		for _, session := range all {
			if err := out.event("hint", "", wire.Hint{Session: session.ID, Seq: session.LastEvent}); err != nil {
				return err
			}
		}
		if len(all) < f.Limit {
			return nil
		}
		f.After = all[len(all)-1].ID
	}
}
