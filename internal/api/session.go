package api

import (
	"context"
	"path/filepath"
	"strings"

	"soma/wire"
)

func listSessions(s *Server, ctx context.Context, c *call) (any, error) {
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	f := wire.SessionFilter{
		Workspace: c.query.Get("workspace"), Kind: c.query.Get("kind"), After: c.query.Get("after"), Limit: limit + 1,
	}
	all, err := s.Sessions.Sessions(ctx, f)
	if err != nil {
		return nil, err
	}
	return page(all, limit, func(s wire.Session) string { return s.ID }), nil
}

func openSession(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("session")
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.OpenSession](c)
	if err != nil {
		return nil, err
	}
	switch in.Kind {
	case "":
		in.Kind = wire.SessionRun
	case wire.SessionRun, wire.SessionPy:
	default:
		return nil, wire.Errorf(wire.BadRequest, "the kind of a session is run or py")
	}
	if !filepath.IsAbs(in.Workspace) || strings.ContainsRune(in.Workspace, 0) {
		return nil, wire.Errorf(wire.BadRequest, "the workspace is not an absolute path")
	}
	return s.Sessions.Open(ctx, id, in)
}

func getSession(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("session")
	if err != nil {
		return nil, err
	}
	return s.Sessions.Session(ctx, id)
}

func closeSession(s *Server, ctx context.Context, c *call) (any, error) {
	id, err := c.id("session")
	if err != nil {
		return nil, err
	}
	return s.Sessions.Close(ctx, id)
}

func admit(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	in, err := decode[wire.Input](c)
	if err != nil {
		return nil, err
	}
	switch in.Mode {
	case "":
		in.Mode = wire.Steer
	case wire.Steer, wire.After:
	default:
		return nil, wire.Errorf(wire.BadRequest, "the mode of an input is steer or after")
	}
	if strings.TrimSpace(in.Text) == "" {
		return nil, wire.Errorf(wire.BadRequest, "the input has no text")
	}
	return s.Sessions.Admit(ctx, session, client, in)
}

func getInput(s *Server, ctx context.Context, c *call) (any, error) {
	session, client, err := c.ids()
	if err != nil {
		return nil, err
	}
	return s.Sessions.Input(ctx, session, client)
}

// ids returns the ids of a session and of what its client names in it.
func (c *call) ids() (session, client string, err error) {
	if session, err = c.id("session"); err != nil {
		return "", "", err
	}
	client, err = c.id("client")
	return session, client, err
}
