package cli

import (
	"context"
	"io"

	"soma/client"
	"soma/internal/cli/folder"
	"soma/wire"
)

// serving is the program as the room mcp sees it.
type serving struct{ a *app }

func (s serving) Keep(ctx context.Context, request func() error) error { return s.a.keep(ctx, request) }

func (s serving) Follow(ctx context.Context, session string, from wire.Cursor, fn func(client.Frame) error) error {
	return s.a.follow(ctx, session, from, fn)
}

func (s serving) Client() *client.Client { return s.a.client }

func (s serving) PySession(ctx context.Context, dir, python string) (wire.Session, error) {
	return folder.Session(ctx, inFolder{lookingBack(s)}, dir, python, false)
}

func (s serving) Input() io.ReadCloser { return io.NopCloser(s.a.In) }

func (s serving) Output() io.WriteCloser { return unclosed{s.a.Out} }

func (s serving) Build() string { return Build() }

// unclosed is an output that stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
