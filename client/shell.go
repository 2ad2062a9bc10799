package client

import (
	"context"
	"net/http"
	"net/url"

	"soma/wire"
)

func shellPath(session, id string) string {
	return sessionPath(session) + "/shell/" + url.PathEscape(id)
}

// RunShell runs a command of a person in the workspace of a session, under an id that the caller has chosen. It answers when the
// command is committed, not when it has ended. Refusals: wire.NotFound, wire.SessionClosed, wire.Conflict for an id that is taken
// by another command, wire.Busy, wire.TooLarge.
func (c *Client) RunShell(ctx context.Context, session, id string, in wire.RunShell) (wire.ShellCommand, error) {
	var out wire.ShellCommand
	return out, c.do(ctx, http.MethodPut, &out, in, shellPath(session, id))
}

// ShellCommand returns a shell command and how it ended. Refusal: wire.NotFound.
func (c *Client) ShellCommand(ctx context.Context, session, id string) (wire.ShellCommand, error) {
	var out wire.ShellCommand
	return out, c.get(ctx, &out, shellPath(session, id))
}

// InterruptShell ends a shell command with all that it has started. Refusal: wire.NotFound.
func (c *Client) InterruptShell(ctx context.Context, session, id string) (wire.ShellCommand, error) {
	var out wire.ShellCommand
	return out, c.do(ctx, http.MethodPut, &out, nil, shellPath(session, id)+"/interrupt")
}

// ShellOutput returns the part of what a shell command has printed that begins at a byte offset, at most limit bytes (0 for
// wire.DefaultShell). Refusals: wire.NotFound, wire.OutputLost.
func (c *Client) ShellOutput(ctx context.Context, session, id string, offset, limit int64) (wire.ShellPage, error) {
	var out wire.ShellPage
	return out, c.get(ctx, &out, shellPath(session, id)+"/output", "offset", number(offset), "limit", number(limit))
}
