package client

import (
	"context"
	"net/http"

	"soma/wire"
)

// RemoveSession removes a session with all that is its own, but the sums of what it has cost. It answers when nothing is left, or
// after a while with how far the removal is, which goes on by itself; made again it answers the same. Refusals: wire.NotFound,
// wire.InUse, wire.Busy.
func (c *Client) RemoveSession(ctx context.Context, id string, r wire.Remove) (wire.Removal, error) {
	var out wire.Removal
	return out, c.do(ctx, http.MethodPut, &out, r, sessionPath(id)+"/removal")
}

// Removal returns how far the removal of a session is. Refusal: wire.NotFound where none was begun.
func (c *Client) Removal(ctx context.Context, id string) (wire.Removal, error) {
	var out wire.Removal
	return out, c.get(ctx, &out, sessionPath(id)+"/removal")
}

// Prune removes sessions that are at rest, some at a time, or only tells them; the list's Next goes into After.
func (c *Client) Prune(ctx context.Context, p wire.Prune) (wire.List[wire.Pruned], error) {
	var out wire.List[wire.Pruned]
	return out, c.do(ctx, http.MethodPost, &out, p, "/v1/prune")
}

// Spent returns what was asked of each model and what it cost, removed sessions included.
func (c *Client) Spent(ctx context.Context) ([]wire.Spent, error) {
	var out wire.List[wire.Spent]
	err := c.get(ctx, &out, "/v1/ledger")
	return out.Items, err
}
