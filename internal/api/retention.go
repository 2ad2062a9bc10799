package api

import (
	"context"

	"soma/wire"
)

func remove(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("session")
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.Remove](c)
	if err != nil {
		return nil, err
	}
	if in.Force && in.Before != nil {
		return nil, wire.Errorf(wire.BadRequest, "force and before exclude each other")
	}
	return s.Retention.Remove(ctx, id, in)
}

func getRemoval(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("session")
	if err != nil {
		return nil, err
	}
	return s.Retention.Removal(ctx, id)
}

func prune(s *Server, ctx context.Context, c *call) (any, error) {
	in, err := decode[wire.Prune](c)
	switch {
	case err != nil:
		return nil, err
	case in.Before.IsZero():
		return nil, wire.Errorf(wire.BadRequest, "before is missing")
	case in.After != "" && !wire.ValidID(in.After):
		return nil, wire.Errorf(wire.BadRequest, "after is no id of a session")
	case in.Limit < 0 || in.Limit > wire.MaxPrune:
		return nil, wire.Errorf(wire.BadRequest, "the limit is not a number from 1 to %d", wire.MaxPrune)
	}
	list, more, err := s.Retention.Prune(ctx, in)
	if err != nil {
		return nil, err
	}
	out := wire.List[wire.Pruned]{Items: list}
	if more && len(list) > 0 {
		out.Next = list[len(list)-1].Session
	}
	return out, nil
}

func spent(s *Server, ctx context.Context, _ *call) (any, error) {
	list, err := s.Retention.Spent(ctx)
	if err != nil {
		return nil, err
	}
	return wire.List[wire.Spent]{Items: list}, nil
}
