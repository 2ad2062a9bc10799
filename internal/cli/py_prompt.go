package cli

import (
	"context"
	"errors"
	"os"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/folder"
	"soma/internal/cli/lineedit"
	"soma/internal/cli/prompt"
	"soma/internal/cli/terminal"
	"soma/internal/pypath"
	"soma/wire"
)

// atTerminal reports whether a person can be asked for code.
func (a *app) atTerminal() bool {
	in, ok := a.In.(*os.File)
	return ok && isTerminal(in) && isTerminal(a.Out) && !a.asJSON
}

// pyPrompt runs the prompt of soma py.
func (a *app) pyPrompt(ctx context.Context, k *folder.Kernel) error {
	if err := a.ensure(ctx); err != nil { // a home and a daemon, before the terminal is taken over
		return err
	}
	a.terse = true
	k.Program, k.Show = inFolder{lookingBack{a}}, func(ctx context.Context, session string, from wire.Cursor, cell string, code bool) error {
		p := &cellPrinter{app: a, id: cell, code: code, brief: true}
		err := a.followCell(ctx, session, from, p)
		if lineErr := p.endLine(); err == nil {
			err = lineErr
		}
		return err
	}
	term, _ := a.env("TERM")
	plainly := term == "" || term == "dumb"
	in, out := a.In.(*os.File), a.Out.(*os.File)
	t, err := terminal.Open(in, out, !plainly)
	if err != nil {
		return err
	}
	screen := lineedit.NewScreen(out, a.screen().colour)
	if plainly {
		screen = lineedit.NewPlain(out)
	}
	err = prompt.Run(ctx, prompt.Options{
		Kernel: k, Input: t.Input(), Resized: t.Resized(), Size: t.Size, Suspend: t.Suspend, Screen: screen, Out: out,
		Say: a.say, Fail: func(err error) { exit.Report(a.Err, err, false) },
		History: prompt.HistoryAt(a.home.PyHistory()),
	})
	return errors.Join(err, t.Close())
}

// inFolder is the program as the room folder sees it.
type inFolder struct{ lookingBack }

func (f inFolder) Until(ctx context.Context, session string, from wire.Cursor, last uint64, fn func(client.Frame) error) error {
	return f.a.until(ctx, session, from, last, fn)
}

func (f inFolder) Sessions(ctx context.Context, filter wire.SessionFilter) ([]wire.Session, error) {
	return f.a.sessions(ctx, filter)
}

func (f inFolder) Workspace() (string, error) { return f.a.workspace() }

func (f inFolder) Python(ctx context.Context, given, dir string) (pypath.Interpreter, error) {
	cfg, err := f.a.config(nil)
	if err != nil {
		return pypath.Interpreter{}, err
	}
	return f.a.findPython(ctx, given, cfg.Python, dir)
}
