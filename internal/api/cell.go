package api

import (
	"context"
	"strings"
	"time"

	"soma/wire"
)

const maxCellTime = time.Hour

func runCell(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.RunCell](c)
	if err != nil {
		return nil, err
	}
	if in.TimeoutMS == 0 {
		in.TimeoutMS = maxCellTime.Milliseconds()
	}
	if in.TimeoutMS < 0 || in.TimeoutMS > maxCellTime.Milliseconds() {
		return nil, wire.Errorf(wire.BadRequest, "timeout_ms is not from 1 to %d", maxCellTime.Milliseconds())
	}
	if strings.TrimSpace(in.Code) == "" {
		return nil, wire.Errorf(wire.BadRequest, "the cell has no code")
	}
	return s.Sessions.RunCell(ctx, session, client, in)
}

func getCell(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("cell")
	if err != nil {
		return nil, err
	}
	return s.Sessions.Cell(ctx, id)
}

func interruptCell(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("cell")
	if err != nil {
		return nil, err
	}
	return s.Sessions.InterruptCell(ctx, id)
}

func cellOutput(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("cell")
	if err != nil {
		return nil, err
	}
	offset, err := c.number("offset", 0, 0, anyNumber)
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", wire.DefaultOutput, 1, wire.MaxOutput)
	if err != nil {
		return nil, err
	}
	return s.Pykernels.CellOutput(ctx, id, int64(offset), int64(limit))
}
