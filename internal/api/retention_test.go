package api_test

import (
	"context"

	"soma/wire"
)

// keeper stands in for what removes sessions: one has gone, every other one is in use.
type keeper struct{}

func (keeper) Remove(_ context.Context, session string, _ wire.Remove) (wire.Removal, error) {
	if session != "gone" {
		return wire.Removal{}, wire.Errorf(wire.InUse, "session %s is in use", session)
	}
	return wire.Removal{Session: session, State: wire.Removed, Rows: 3, Done: 3}, nil
}

func (k keeper) Removal(ctx context.Context, session string) (wire.Removal, error) {
	if session != "gone" {
		return wire.Removal{}, wire.Errorf(wire.NotFound, "session %s is not being removed", session)
	}
	return k.Remove(ctx, session, wire.Remove{})
}

func (keeper) Prune(_ context.Context, r wire.Prune) ([]wire.Pruned, bool, error) {
	return []wire.Pruned{{Session: "a", Kind: "run", Workspace: "/w", UsedAt: epoch, Rows: 2, Tables: map[string]int64{"session": 2}}}, r.Limit == 1, nil
}

func (keeper) Spent(context.Context) ([]wire.Spent, error) {
	return []wire.Spent{{Provider: "p", Model: "m", Attempts: 1, Cost: 5}}, nil
}
