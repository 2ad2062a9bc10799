package view

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"soma/internal/pykernel"
	"soma/wire"
)

// outcome is what is read here of the stored outcome of a cell.
type outcome struct {
	Images []pykernel.Image `json:"images"`
	Spill  *pykernel.Spill  `json:"spill"`
}

// cell reads a cell's kernel, state and outcome. The error is a *wire.Error with not_found where there is none.
func (v *View) cell(ctx context.Context, id string) (kernel, state string, o outcome, err error) {
	found := false
	var body []byte
	err = v.o.Reader.Query(ctx, `select kernel, state, body from cell where id = ?`, []any{id}, func(fields func(...any) error) error {
		found = true
		return fields(&kernel, &state, &body)
	})
	if err == nil && !found {
		err = wire.Errorf(wire.NotFound, "there is no cell %s", id)
	}
	if err == nil && body != nil {
		err = json.Unmarshal(body, &o)
	}
	return kernel, state, o, err
}

// CellOutput returns a page of a cell's output, of at most limit bytes: while it runs from its python kernel, and then from the
// store, where that has not all of it from the file that it was spilled to. Errors: those of Options.Output.
func (v *View) CellOutput(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	kernel, state, o, err := v.cell(ctx, cell)
	if err != nil {
		return wire.OutputPage{}, err
	}
	if state != "ended" {
		return v.runningOutput(ctx, kernel, cell, offset, limit)
	}
	p, err := v.o.Output(ctx, cell, offset, limit)
	if err != nil || p.Kept || o.Spill == nil {
		return p, err
	}
	text, err := v.spilled(*o.Spill, offset, limit)
	if err != nil || text == "" {
		return p, nil // the file is gone, or shorter: what was there is not kept
	}
	p.Kept, p.Text, p.Next = true, text, offset+int64(len(text))
	p.EOF = p.Next == p.Size
	return p, nil
}

// runningOutput reads the output of a cell that runs, or waits for its turn. A page that cannot be had now is empty.
func (v *View) runningOutput(ctx context.Context, kernel, cell string, offset, limit int64) (wire.OutputPage, error) {
	p := wire.OutputPage{Cell: cell, Offset: offset, Next: offset, Kept: true}
	limit = max(min(limit, pykernel.MaxPage), pykernel.MinPage)
	a, err := v.ask(ctx, kernel, pykernel.Ask{Type: pykernel.FrameCellRead, Cell: cell, Offset: &offset, Limit: int(limit)})
	var refusal *wire.Error
	switch {
	case err == nil:
		p.Offset, p.Next, p.Size, p.Text = a.Page.Offset, a.Page.NextOffset, a.Page.Size, a.Page.Text
	case errors.As(err, &refusal) && refusal.Code == wire.OutputLost:
		end, err := v.ask(ctx, kernel, pykernel.Ask{Type: pykernel.FrameCellRead, Cell: cell, Limit: pykernel.MaxPage})
		if err == nil && end.Page.Offset > offset {
			p.Kept, p.Next, p.Size = false, end.Page.Offset, end.Page.Size
		}
	case errors.As(err, &refusal) && refusal.Code == wire.BadRequest:
		return p, refusal
	}
	return p, ctx.Err()
}

// spilled reads at most limit bytes of a spilled output, whole characters. A python kernel names the file: none is opened
// outside of the folder of outputs, also by links.
func (v *View) spilled(s pykernel.Spill, offset, limit int64) (string, error) {
	name, err := filepath.Rel(v.o.OutputDir, s.Path)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(v.o.OutputDir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, os.ErrInvalid)
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, max(min(max(limit, utf8.UTFMax), s.Size-offset), 0)) // a character at least
	n, err := f.ReadAt(b, offset)
	if err != nil && err != io.EOF {
		return "", err
	}
	return characters(b[:n]), nil
}

// characters cuts a half character from the end of a text, and makes what is none at all a replacement that has its length.
func characters(b []byte) string {
	for cut := 1; cut < utf8.UTFMax && cut < len(b); cut++ {
		if c := b[len(b)-cut]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-cut:]) {
				b = b[:len(b)-cut]
			}
			break
		}
	}
	for i := 0; i < len(b); {
		_, n := utf8.DecodeRune(b[i:])
		if n == 1 && b[i] >= utf8.RuneSelf {
			b[i] = '?'
		}
		i += n
	}
	return string(b)
}

// CellImage returns an image of a cell, counted from 1, with its bytes.
func (v *View) CellImage(ctx context.Context, cell string, n int) (wire.CellImage, []byte, error) {
	_, _, o, err := v.cell(ctx, cell)
	if err != nil {
		return wire.CellImage{}, nil, err
	}
	if n < 1 || n > len(o.Images) {
		return wire.CellImage{}, nil, wire.Errorf(wire.NotFound, "cell %s has no image %d", cell, n)
	}
	image := o.Images[n-1]
	var bytes []byte
	err = v.o.Reader.Query(ctx, `select bytes from content where id = ?`, []any{image.Content[:]}, func(fields func(...any) error) error { return fields(&bytes) })
	if err == nil && (bytes == nil || len(bytes) > wire.MaxImage) {
		err = wire.Errorf(wire.NotFound, "image %d of cell %s is not kept", n, cell)
	}
	return wire.CellImage{N: n, Media: image.Media, Name: image.Name, Size: int64(len(bytes))}, bytes, err
}

// CellTrace returns what a cell has changed in files.
func (v *View) CellTrace(ctx context.Context, cell string) (wire.CellTrace, error) {
	if _, _, _, err := v.cell(ctx, cell); err != nil {
		return wire.CellTrace{}, err
	}
	t := wire.CellTrace{Cell: cell}
	err := v.o.Reader.Query(ctx, `select body from cell_trace where cell = ?`, []any{cell}, func(fields func(...any) error) error {
		var body []byte
		if err := fields(&body); err != nil {
			return err
		}
		return json.Unmarshal(body, &t.Changes)
	})
	return t, err
}
