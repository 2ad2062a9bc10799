package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"soma/client"
	"soma/ident"
	"soma/internal/cli/exit"
	"soma/wire"
)

// pySessions returns the python sessions of a folder, and the newest open one of them, or nil.
func (a *app) pySessions(ctx context.Context, dir string) (all []wire.Session, open *wire.Session, err error) {
	if err = a.ensure(ctx); err != nil {
		return nil, nil, err
	}
	err = a.keep(ctx, func() (err error) {
		all, err = a.sessions(ctx, wire.SessionFilter{Workspace: dir, Kind: wire.SessionPy})
		return err
	})
	for i, s := range all {
		if s.State == "open" && (open == nil || s.CreatedAt.After(open.CreatedAt)) {
			open = &all[i]
		}
	}
	return all, open, err
}

// pyHere is pySessions of the folder one stands in, which it returns as well.
func (a *app) pyHere(ctx context.Context) (dir string, open *wire.Session, err error) {
	if dir, err = a.workspace(); err != nil {
		return "", nil, err
	}
	_, open, err = a.pySessions(ctx, dir)
	return dir, open, err
}

// pySession returns a folder's python session, opening one if there is none.
func (a *app) pySession(ctx context.Context, dir, python string, fresh bool) (wire.Session, error) {
	all, open, err := a.pySessions(ctx, dir)
	if err != nil {
		return wire.Session{}, err
	}
	if open != nil && fresh {
		if err := a.closeSession(ctx, open.ID); err != nil {
			return wire.Session{}, err
		}
		open = nil
	}
	if open != nil && python == "" {
		return *open, nil
	}
	cfg, err := a.config(nil)
	if err != nil {
		return wire.Session{}, err
	}
	if python, err = a.python(ctx, python, cfg.Python, dir); err != nil {
		return wire.Session{}, err
	}
	if open != nil {
		if open.Python != python {
			return wire.Session{}, exit.Faultf(exit.Refused, "begin a fresh one with --new", "cannot use %s: this folder's kernel runs %s", python, open.Python)
		}
		return *open, nil
	}
	// The id follows from the one before, so that two clients that come at once open the same session, and not two.
	id := ""
	if len(all) > 0 {
		id = slices.MaxFunc(all, func(a, b wire.Session) int { return a.CreatedAt.Compare(b.CreatedAt) }).ID
	}
	for {
		id = "py-" + ident.Named("py", dir+"\x00"+id).String()
		var s wire.Session
		err = a.keep(ctx, func() (err error) {
			s, err = a.client.OpenSession(ctx, id, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python})
			return err
		})
		var refusal *wire.Error
		if !errors.As(err, &refusal) || refusal.Code != wire.Gone { // else it was there and was removed
			return s, err
		}
	}
}

func (a *app) closeSession(ctx context.Context, id string) error {
	return a.keep(ctx, func() error { _, err := a.client.CloseSession(ctx, id); return err })
}

func (a *app) pyEnd(ctx context.Context) error {
	dir, open, err := a.pyHere(ctx)
	if err != nil {
		return err
	}
	if open == nil {
		return exit.Faultf(exit.NotFound, "", "cannot end the python kernel of %s: there is none", dir)
	}
	if err := a.closeSession(ctx, open.ID); err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(map[string]string{"session": open.ID, "state": "closed"})
	}
	_, err = fmt.Fprintln(a.Out, "ended; the next soma py here begins with a fresh python kernel")
	return err
}

// openCells returns the ids of the cells of a session, among the events up to last, that have not ended, the oldest first.
func (a *app) openCells(ctx context.Context, session string, last uint64) ([]string, error) {
	var open []string
	err := a.until(ctx, session, wire.Cursor{}, last, func(f client.Frame) error {
		if f.Event == nil || f.Event.Kind != wire.CellStarted && f.Event.Kind != wire.CellEnded {
			return nil
		}
		return show(*f.Event, func(b wire.CellEvent) {
			if f.Event.Kind == wire.CellStarted {
				open = append(open, b.Cell.ID)
			} else if i := slices.Index(open, b.Cell.ID); i >= 0 {
				open = slices.Delete(open, i, i+1)
			}
		})
	})
	return open, err
}

func (a *app) pyInterrupt(ctx context.Context) error {
	dir, open, err := a.pyHere(ctx)
	if err != nil {
		return err
	}
	var cells []string
	if open != nil {
		if cells, err = a.openCells(ctx, open.ID, open.LastEvent); err != nil {
			return err
		}
	}
	if len(cells) == 0 {
		return exit.Faultf(exit.NotFound, "", "cannot interrupt a cell: none runs in %s", dir)
	}
	var cell wire.Cell
	err = a.keep(ctx, func() (err error) { cell, err = a.client.InterruptCell(ctx, cells[0]); return err })
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(cell)
	}
	_, err = fmt.Fprintln(a.Out, "interrupted; soma py --last shows the last cell")
	return err
}

// sayQueued says that a cell of a session must wait, if others were given before it and have not ended.
func (a *app) sayQueued(ctx context.Context, session string) {
	status, err := a.client.Status(ctx)
	if err != nil {
		return // it is only a word to the person; following the cell comes to the same error
	}
	for _, k := range status.Kernels {
		if k.Session == session && k.Cells > 1 {
			a.say("this cell waits for %d given before it; soma py --interrupt stops the one that runs", k.Cells-1)
		}
	}
}

func (a *app) pyLast(ctx context.Context) error {
	dir, open, err := a.pyHere(ctx)
	if err != nil {
		return err
	}
	if open == nil {
		return exit.Faultf(exit.NotFound, "", "cannot show a cell: %s has no python kernel", dir)
	}
	from, err := a.turnStart(ctx, open.ID, open.LastEvent)
	if err != nil {
		return err
	}
	return a.watchCell(ctx, open.ID, from)
}

