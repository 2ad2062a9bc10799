package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"soma/client"
	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/cli/shell"
	"soma/internal/pypath"
	"soma/wire"
)

// Program is what the room needs of the program that it is a part of.
type Program interface {
	shell.Program
	// Ensure starts a daemon if none answers.
	Ensure(ctx context.Context) error
	// Until shows a session's events after a cursor up to the event with sequence last.
	Until(ctx context.Context, session string, from wire.Cursor, last uint64, fn func(client.Frame) error) error
	// Sessions returns all sessions that a filter lets through.
	Sessions(ctx context.Context, f wire.SessionFilter) ([]wire.Session, error)
	// Workspace is the folder one stands in, without links.
	Workspace() (string, error)
	// Python finds the interpreter that is meant: the one that is given, or else the one of the settings.
	Python(ctx context.Context, given, dir string) (pypath.Interpreter, error)
}

// Sessions returns the python sessions of a folder, and the newest open one of them, or nil.
func Sessions(ctx context.Context, p Program, dir string) (all []wire.Session, open *wire.Session, err error) {
	if err = p.Ensure(ctx); err != nil {
		return nil, nil, err
	}
	err = p.Keep(ctx, func() (err error) {
		all, err = p.Sessions(ctx, wire.SessionFilter{Workspace: dir, Kind: wire.SessionPy})
		return err
	})
	for i, s := range all {
		if s.State == "open" && (open == nil || s.CreatedAt.After(open.CreatedAt)) {
			open = &all[i]
		}
	}
	return all, open, err
}

// Session returns a folder's open python session, opening one if there is none, or with fresh a new one after the end of that. The
// interpreter python may be empty.
func Session(ctx context.Context, p Program, dir, python string, fresh bool) (wire.Session, error) {
	all, open, err := Sessions(ctx, p, dir)
	if err != nil {
		return wire.Session{}, err
	}
	if open != nil && fresh {
		if err := Close(ctx, p, open.ID); err != nil {
			return wire.Session{}, err
		}
		open = nil
	}
	if open != nil && python == "" {
		return *open, nil
	}
	found, err := p.Python(ctx, python, dir)
	if err != nil {
		return wire.Session{}, err
	}
	python = found.Path
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
		err = p.Keep(ctx, func() (err error) {
			s, err = p.Client().OpenSession(ctx, id, wire.OpenSession{Kind: wire.SessionPy, Workspace: dir, Python: python})
			return err
		})
		var refusal *wire.Error
		if !errors.As(err, &refusal) || refusal.Code != wire.Gone { // else it was there and was removed
			return s, err
		}
	}
}

// Close ends a session, and with it its kernel.
func Close(ctx context.Context, p Program, id string) error {
	return p.Keep(ctx, func() error { _, err := p.Client().CloseSession(ctx, id); return err })
}

// OpenCell is a cell that has not ended, and the cursor before it began.
type OpenCell struct {
	ID   string
	From wire.Cursor
}

// OpenCells returns the cells of a session, among the events up to last, that have not ended, the oldest first.
func OpenCells(ctx context.Context, p Program, session string, last uint64) ([]OpenCell, error) {
	var open []OpenCell
	var before wire.Cursor
	err := p.Until(ctx, session, wire.Cursor{}, last, func(f client.Frame) error {
		from := before
		before = f.Cursor
		if f.Event == nil || f.Event.Kind != wire.CellStarted && f.Event.Kind != wire.CellEnded {
			return nil
		}
		return told(*f.Event, func(b wire.CellEvent) {
			if f.Event.Kind == wire.CellStarted {
				open = append(open, OpenCell{b.Cell.ID, from})
			} else {
				open = slices.DeleteFunc(open, func(c OpenCell) bool { return c.ID == b.Cell.ID })
			}
		})
	})
	return open, err
}

// SayQueued says that a cell of a session must wait, if others were given before it and have not ended.
func SayQueued(ctx context.Context, p Program, session string) {
	status, err := p.Client().Status(ctx)
	if err != nil {
		return // it is only a word to the person; following the cell comes to the same error
	}
	for _, k := range status.Kernels {
		if k.Session == session && k.Cells > 1 {
			p.Say("this cell waits for %d given before it; soma py --interrupt stops the one that runs", k.Cells-1)
		}
	}
}

// Run gives a cell to this folder's python session, also where that is ended at the same time by a py --new or --end.
func Run(ctx context.Context, p Program, run wire.RunCell, python string, fresh bool) (s wire.Session, cell wire.Cell, err error) {
	s, cell, err = give(ctx, p, run, python, fresh)
	if sessionClosed(err) {
		s, cell, err = give(ctx, p, run, python, false)
	}
	if sessionClosed(err) {
		err = exit.Faultf(exit.Refused, "run soma py again", "cannot run the cell: this folder's kernel was ended at the same time")
	}
	return s, cell, err
}

// give gives a cell to this folder's python session.
func give(ctx context.Context, p Program, run wire.RunCell, python string, fresh bool) (s wire.Session, cell wire.Cell, err error) {
	dir, err := p.Workspace()
	if err != nil {
		return s, cell, err
	}
	if s, err = Session(ctx, p, dir, python, fresh); err != nil {
		return s, cell, err
	}
	id := ident.New(time.Now()).String()
	err = p.Keep(ctx, func() (err error) { cell, err = p.Client().RunCell(ctx, s.ID, id, run); return err })
	return s, cell, err
}

func sessionClosed(err error) bool {
	var refusal *wire.Error
	return errors.As(err, &refusal) && refusal.Code == wire.SessionClosed
}

// told hands the body of an event over.
func told(e wire.Event, fn func(wire.CellEvent)) error {
	var body wire.CellEvent
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return fmt.Errorf("cannot read event %d (%s): %w", e.Seq, e.Kind, err)
	}
	fn(body)
	return nil
}
