package api

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"soma/wire"
)

func listProcesses(s *Server, ctx context.Context, c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.number("after", 0, 0, anyNumber)
	if err != nil {
		return nil, err
	}
	f := wire.ProcessFilter{
		Workspace: c.query.Get("workspace"), Session: c.query.Get("session"), After: after, Limit: limit + 1,
	}
	if f.All, err = c.flag("all"); err != nil {
		return nil, err
	}
	all, err := s.Processes.Processes(ctx, f)
	if err != nil {
		return nil, err
	}
	return page(all, limit, func(p wire.Process) string { return strconv.FormatUint(p.PID, 10) }), nil
}

func getProcess(s *Server, ctx context.Context, c *call) (any, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	p, err := s.Processes.Process(ctx, pid)
	text := c.query.Get("wait")
	if err != nil || text == "" {
		return p, err
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > wire.MaxWait {
		return nil, wire.Errorf(wire.BadRequest, "wait is not a duration from 0s to %s", wire.MaxWait)
	}
	if p.Ended() {
		return p, nil
	}
	return s.untilEnd(ctx, p, wait)
}

// untilEnd returns a process when it has ended, the wait is over or the server begins to stop. It listens before it looks,
// so that an end between the two is not missed.
func (s *Server) untilEnd(ctx context.Context, p wire.Process, wait time.Duration) (wire.Process, error) {
	waiting, cancel := untilStop(ctx)
	defer cancel()
	waiting, expired := context.WithTimeout(waiting, wait)
	defer expired()
	sub := s.Events.Subscribe(p.Session)
	defer sub.Close()
	for look := true; ; {
		if look {
			now, err := s.Processes.Process(ctx, p.PID)
			if err != nil || now.Ended() {
				return now, err
			}
		}
		item, err := sub.Next(waiting)
		if waiting.Err() != nil || errors.Is(err, io.EOF) { // or another daemon has its session now
			return s.Processes.Process(ctx, p.PID)
		}
		if err != nil {
			return p, err
		}
		look = item.Dropped || item.Event != nil && item.Event.Kind == wire.ProcessExited && item.Event.PID == p.PID
	}
}

func signal(s *Server, ctx context.Context, c *call) (any, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	client, err := c.id("client")
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.Signal](c)
	if err != nil {
		return nil, err
	}
	switch in.Signal {
	case wire.Interrupt, wire.Pause, wire.Resume, wire.Terminate:
		return s.Processes.Signal(ctx, pid, client, in)
	}
	return nil, wire.Errorf(wire.BadRequest, "a signal is interrupt, pause, resume or terminate")
}

func listMessages(s *Server, ctx context.Context, c *call) (any, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	after, err := c.number("after", 0, 0, anyNumber)
	if err != nil {
		return nil, err
	}
	all, err := s.Processes.Messages(ctx, pid, after, limit+1)
	if err != nil {
		return nil, err
	}
	return page(all, limit, func(m wire.Message) string { return strconv.FormatUint(m.Seq, 10) }), nil
}

func listLedger(s *Server, ctx context.Context, c *call) (any, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	all, err := s.Processes.Ledger(ctx, pid, c.query.Get("after"), limit+1)
	if err != nil {
		return nil, err
	}
	return page(all, limit, func(r wire.LedgerRow) string { return r.ID }), nil
}
