package api

import (
	"context"

	"soma/wire"
)

func runShell(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.RunShell](c)
	if err != nil {
		return nil, err
	}
	return s.Shells.Run(ctx, session, client, in)
}

func getShell(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	return s.Shells.Command(ctx, session, client)
}

func interruptShell(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	return s.Shells.Interrupt(ctx, session, client)
}

func shellOutput(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	offset, err := c.number("offset", 0, 0, anyNumber)
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", wire.DefaultShell, wire.MinJob, wire.MaxShellRead)
	if err != nil {
		return nil, err
	}
	return s.Shells.Output(ctx, session, client, int64(offset), int(limit))
}
