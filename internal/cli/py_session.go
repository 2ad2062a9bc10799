package cli

import (
	"context"
	"fmt"

	"soma/internal/cli/exit"
	"soma/internal/cli/folder"
	"soma/wire"
)

// pyHere returns the folder one stands in and its open python session, or nil.
func (a *app) pyHere(ctx context.Context) (dir string, open *wire.Session, err error) {
	if dir, err = a.workspace(); err != nil {
		return "", nil, err
	}
	_, open, err = folder.Sessions(ctx, inFolder{lookingBack{a}}, dir)
	return dir, open, err
}

func (a *app) pyEnd(ctx context.Context) error {
	dir, open, err := a.pyHere(ctx)
	if err != nil {
		return err
	}
	if open == nil {
		return exit.Faultf(exit.NotFound, "", "cannot end the python kernel of %s: there is none", dir)
	}
	if err := folder.Close(ctx, inFolder{lookingBack{a}}, open.ID); err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(map[string]string{"session": open.ID, "state": "closed"})
	}
	_, err = fmt.Fprintln(a.Out, "ended; the next soma py here begins with a fresh python kernel")
	return err
}

func (a *app) pyInterrupt(ctx context.Context) error {
	dir, open, err := a.pyHere(ctx)
	if err != nil {
		return err
	}
	var cells []folder.OpenCell
	if open != nil {
		if cells, err = folder.OpenCells(ctx, inFolder{lookingBack{a}}, open.ID, open.LastEvent); err != nil {
			return err
		}
	}
	if len(cells) == 0 {
		return exit.Faultf(exit.NotFound, "", "cannot interrupt a cell: none runs in %s", dir)
	}
	var cell wire.Cell
	err = a.keep(ctx, func() (err error) { cell, err = a.client.InterruptCell(ctx, cells[0].ID); return err })
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(cell)
	}
	_, err = fmt.Fprintln(a.Out, "interrupted; soma py --last shows the last cell")
	return err
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
