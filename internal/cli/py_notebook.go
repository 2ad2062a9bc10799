package cli

import (
	"context"
	"time"

	"soma/internal/cli/folder"
	"soma/internal/cli/notebook"
	"soma/wire"
)

// pyNotebook runs the code cells of a notebook in the python kernel of this folder.
func (a *app) pyNotebook(ctx context.Context, o notebook.Options, python string, fresh bool, timeout time.Duration) error {
	var session string
	o.Run = func(ctx context.Context, code string) (r notebook.Result, err error) {
		if err := checkText(code, maxCode); err != nil {
			return r, err
		}
		s, cell, err := folder.Run(ctx, inFolder{lookingBack{a}}, wire.RunCell{Code: code, TimeoutMS: timeout.Milliseconds()}, python, fresh)
		if err != nil {
			return r, err
		}
		if session != "" && session != s.ID {
			a.say("this folder's kernel was ended meanwhile; the names of the cells before are gone")
		}
		session, python, fresh = s.ID, "", false
		if s.LastEvent > 0 && !a.asJSON {
			folder.SayQueued(ctx, inFolder{lookingBack{a}}, s.ID)
		}
		p := &cellPrinter{app: a, id: cell.ID, kept: new(keptCell), quiet: a.asJSON}
		err = a.followCell(ctx, s.ID, wire.Cursor{Seq: s.LastEvent}, p)
		return notebook.Result{Cell: p.kept.cell, Output: p.kept.output.String(), Lost: p.kept.lost}, err
	}
	o.Image = func(ctx context.Context, cell string, n int) (content []byte, media string, err error) {
		err = a.keep(ctx, func() (err error) { content, media, err = a.client.CellImage(ctx, cell, n); return err })
		return content, media, err
	}
	o.Say = a.say
	if a.asJSON {
		o.Line = a.printJSON
	}
	return notebook.Run(ctx, o)
}
