package notebook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"soma/internal/cli/exit"
	"soma/wire"
)

// Options say how a notebook is run.
type Options struct {
	File string
	// Write puts outputs back into the file; KeepGoing goes on after a cell that failed.
	Write, KeepGoing bool
	// Run runs code as a cell, shows what it does, and returns what has come of it; an end of ctx leaves the cell behind.
	Run func(ctx context.Context, code string) (Result, error)
	// Image returns an image of a cell, n from 1.
	Image func(ctx context.Context, cell string, n int) (content []byte, media string, err error)
	// Say writes one line to the person. Line, if there is one, takes what has come of a cell instead.
	Say  func(format string, args ...any)
	Line func(v any) error
}

// line is what has come of a cell, for programs.
type line struct {
	Cell       int              `json:"cell"` // which of the code cells, from 1
	Of         int              `json:"of"`
	ID         string           `json:"id"`
	Status     string           `json:"status"`
	Output     string           `json:"output"`
	Lost       int64            `json:"lost,omitempty"` // bytes of output that were not kept
	Value      *string          `json:"value,omitempty"`
	Error      *wire.CellFault  `json:"error,omitempty"`
	Note       string           `json:"note,omitempty"`
	Images     []wire.CellImage `json:"images,omitempty"`
	DurationMS int64            `json:"duration_ms"`
}

// Run runs the code cells of a notebook in order, up to the first that fails. Its error is the exit code: of the file, of the way to
// the daemon, or of a cell that failed.
func Run(ctx context.Context, o Options) error {
	content, err := os.ReadFile(o.File)
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot read the notebook: %w", err)
	}
	n, err := Parse(content)
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot run %s: %w", o.File, err)
	}
	ran, runErr := o.cells(ctx, n)
	if o.Write && ran > 0 {
		if err := replace(o.File, content, n.Bytes()); err != nil {
			return errors.Join(err, runErr)
		}
	}
	return runErr
}

// cells runs the cells, and puts what comes of them into the notebook.
func (o Options) cells(ctx context.Context, n *Notebook) (ran int, err error) {
	failed := false
	of := len(n.Codes())
	for i, code := range n.Codes() {
		if strings.TrimSpace(code) == "" {
			continue
		}
		if o.Line == nil {
			o.Say("cell %d of %d: %s", i+1, of, title(code))
		}
		r, err := o.Run(ctx, code)
		if ctx.Err() != nil {
			o.Say("detached; cell %d of %d runs on; those after it were not run", i+1, of)
			return ran, exit.Quiet(exit.OK)
		}
		if err != nil {
			return ran, fmt.Errorf("cannot go on at cell %d of %d: %w", i+1, of, err)
		}
		ran++
		if err := o.keep(ctx, n, i, ran, &r); err != nil {
			return ran, err
		}
		if r.Cell.Status == "ok" {
			continue
		}
		failed = true
		if !o.KeepGoing {
			o.Say("cell %d of %d has failed; %s", i+1, of, rest(of-i-1))
			break
		}
	}
	if failed {
		return ran, exit.Quiet(exit.Failed)
	}
	return ran, nil
}

// keep puts what has come of a cell where it is wanted.
func (o Options) keep(ctx context.Context, n *Notebook, i, count int, r *Result) error {
	c := r.Cell
	if o.Line != nil {
		err := o.Line(line{
			Cell: i + 1, Of: len(n.Codes()), ID: c.ID, Status: c.Status, Output: r.Output, Lost: r.Lost, Value: c.Value, Error: c.Error, Note: c.Note,
			Images: c.Images, DurationMS: c.DurationMS,
		})
		if err != nil {
			return err
		}
	}
	if !o.Write {
		return nil
	}
	for _, image := range c.Images {
		content, media, err := o.Image(ctx, c.ID, image.N)
		if err != nil {
			r.Cell.ImageErrors = append(r.Cell.ImageErrors, fmt.Sprintf("image %d cannot be read: %v", image.N, err))
			continue
		}
		r.Images = append(r.Images, Image{media, content})
	}
	n.Put(i, count, *r)
	return nil
}

// title is the first line of a cell that says something.
func title(code string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	if len(first) > 60 {
		first = strings.ToValidUTF8(first[:60], "") + "…"
	}
	return first
}

func rest(n int) string {
	switch n {
	case 0:
		return "it was the last one"
	case 1:
		return "the one after it was not run"
	}
	return fmt.Sprintf("the %d after it were not run", n)
}

// replace writes a file anew, whole or not at all, unless it has changed since it was read.
func replace(name string, before, after []byte) error {
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot write the notebook: %w", err)
	}
	now, err := os.ReadFile(path)
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot write the notebook: %w", err)
	}
	if !bytes.Equal(now, before) {
		return exit.Faultf(exit.Refused, "run it again", "cannot write the notebook: %s was changed while its cells ran", name)
	}
	info, err := os.Stat(path)
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot write the notebook: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".notebook-*")
	if err != nil {
		return exit.Faultf(exit.BadFile, "", "cannot write the notebook: %w", err)
	}
	_, err = f.Write(after)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return exit.Faultf(exit.BadFile, "", "cannot write the notebook: %w", err)
	}
	return nil
}
