package client

import (
	"context"
	"net/http"
	"net/url"

	"soma/wire"
)

func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

func inputPath(session, clientID string) string {
	return sessionPath(session) + "/inputs/" + url.PathEscape(clientID)
}

func cellPath(id string) string { return "/v1/cells/" + url.PathEscape(id) }

// OpenSession opens the session with this id (see wire.ValidID); made again with the same body it answers the same.
// Refusals: wire.Conflict if the id is taken by another body, wire.NoModel, wire.NoPython, wire.Unprocessable for a
// workspace that is not there.
func (c *Client) OpenSession(ctx context.Context, id string, s wire.OpenSession) (wire.Session, error) {
	var out wire.Session
	return out, c.do(ctx, http.MethodPut, &out, s, sessionPath(id))
}

// Session returns a session. Refusal: wire.NotFound.
func (c *Client) Session(ctx context.Context, id string) (wire.Session, error) {
	var out wire.Session
	return out, c.get(ctx, &out, sessionPath(id))
}

// Sessions returns a page of sessions, sorted by id; the list's Next goes into the filter's After.
func (c *Client) Sessions(ctx context.Context, f wire.SessionFilter) (wire.List[wire.Session], error) {
	var out wire.List[wire.Session]
	return out, c.get(ctx, &out, "/v1/sessions",
		"workspace", f.Workspace, "kind", f.Kind, "after", f.After, "limit", number(f.Limit))
}

// CloseSession ends a session: its process is terminated, its python kernel ended. A closed one stays closed. Refusal:
// wire.NotFound.
func (c *Client) CloseSession(ctx context.Context, id string) (wire.Session, error) {
	var out wire.Session
	return out, c.do(ctx, http.MethodDelete, &out, nil, sessionPath(id))
}

// Admit gives a session an input under an id that the caller has chosen, unique within the session. It answers when the
// input is committed. Refusals: wire.NotFound, wire.SessionClosed, wire.Conflict for an id that is taken by another text,
// wire.TooLarge.
func (c *Client) Admit(ctx context.Context, session, clientID string, in wire.Input) (wire.InputState, error) {
	var out wire.InputState
	return out, c.do(ctx, http.MethodPut, &out, in, inputPath(session, clientID))
}

// Input returns where an input stands. Refusal: wire.NotFound.
func (c *Client) Input(ctx context.Context, session, clientID string) (wire.InputState, error) {
	var out wire.InputState
	return out, c.get(ctx, &out, inputPath(session, clientID))
}

// RunCell runs code in the python kernel of a session of kind py, under an id that the caller has chosen. It answers when
// the cell is committed, not when it has ended. Refusals: as for Admit, and wire.NoPython.
func (c *Client) RunCell(ctx context.Context, session, clientID string, in wire.RunCell) (wire.Cell, error) {
	var out wire.Cell
	return out, c.do(ctx, http.MethodPut, &out, in, sessionPath(session)+"/cells/"+url.PathEscape(clientID))
}

// Cell returns a cell, by the id that it has in a wire.Cell or an event. Refusal: wire.NotFound.
func (c *Client) Cell(ctx context.Context, id string) (wire.Cell, error) {
	var out wire.Cell
	return out, c.get(ctx, &out, cellPath(id))
}

// InterruptCell interrupts a cell as Ctrl-C would; on one that has ended it does nothing. Refusal: wire.NotFound.
func (c *Client) InterruptCell(ctx context.Context, id string) (wire.Cell, error) {
	var out wire.Cell
	return out, c.do(ctx, http.MethodPut, &out, nil, cellPath(id)+"/interrupt")
}

// Output returns the part of a cell's output that begins at a byte offset, at most limit bytes (0 for wire.DefaultOutput,
// at most wire.MaxOutput). The page's Next is the offset of the following page; a page with neither text nor EOF says that
// the cell has not written more yet. Refusal: wire.NotFound.
func (c *Client) Output(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	var out wire.OutputPage
	return out, c.get(ctx, &out, cellPath(cell)+"/output", "offset", number(offset), "limit", number(limit))
}
