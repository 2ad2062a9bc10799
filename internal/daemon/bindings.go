package daemon

import (
	"context"
	"encoding/json"

	"soma/ident"
	"soma/internal/binding"
	"soma/internal/binding/cells"
	"soma/internal/binding/files"
	"soma/internal/binding/images"
	"soma/internal/binding/output"
	"soma/internal/binding/run"
	processcells "soma/internal/process/cells"
	"soma/internal/pykernel"
	"soma/internal/pykernel/supervise"
	"soma/wire"
)

// bind makes the router of all bindings, in the order in which python kernels set them up and models read their rules.
func (d *daemon) bind() (err error) {
	d.router, err = binding.NewRouter([]binding.Binding{
		files.Binding(), run.Binding(), output.Binding(shellOutput{d}), cells.Binding(cellRows{d}), images.Binding(),
	})
	if err == nil {
		d.router.Log = d.log
	}
	return err
}

// routes is the router as the supervisor sees it.
type routes struct{ *binding.Router }

// Call answers one host call.
func (r routes) Call(ctx context.Context, c supervise.Call) (json.RawMessage, *pykernel.CallError) {
	return r.Router.Call(ctx, binding.Caller{
		Kernel: c.Kernel, Session: c.Session, Branch: c.Branch, Owner: c.Owner, Cell: c.Cell, ID: c.ID,
	}, c.Method, c.Args)
}

// cellRows are the committed cells as their binding reads them.
type cellRows struct{ d *daemon }

// Cell returns a cell of the branch, nil where the branch has none of that id.
func (r cellRows) Cell(ctx context.Context, branch ident.ID, cell string) (found *wire.Cell, err error) {
	err = r.read(ctx, processcells.InBranch, []any{cell, branch[:]}, func(c wire.Cell) { found = &c })
	return found, err
}

// Cells returns the newest cells of the branch.
func (r cellRows) Cells(ctx context.Context, branch ident.ID, limit int) (list []wire.Cell, err error) {
	err = r.read(ctx, processcells.Newest, []any{branch[:], int64(limit)}, func(c wire.Cell) { list = append(list, c) })
	return list, err
}

func (r cellRows) read(ctx context.Context, query string, args []any, row func(wire.Cell)) error {
	return r.d.store.Query(ctx, query, args, func(scan func(...any) error) error {
		c, _, err := processcells.Scan(scan)
		if err == nil {
			row(c)
		}
		return err
	})
}

// Output returns a page of a cell's output.
func (r cellRows) Output(ctx context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	return r.d.view.CellOutput(ctx, cell, offset, limit)
}

// Trace returns what a cell has changed.
func (r cellRows) Trace(ctx context.Context, cell string) (wire.CellTrace, error) {
	return r.d.view.CellTrace(ctx, cell)
}

// shellOutput is what people's shell commands have printed, as the binding `output` reads it.
type shellOutput struct{ d *daemon }

// Output reads a page of a command of the branch's session, where the command was given for that branch.
func (s shellOutput) Output(ctx context.Context, branch ident.ID, command string, offset int64, limit int) (text string, next int64, last bool, err error) {
	session := ""
	err = s.d.store.Query(ctx, `select s.session from branch b join shell_command s on s.session = b.session and s.id = ? and s.branch = b.id where b.id = ?`, []any{command, branch[:]},
		func(scan func(...any) error) error { return scan(&session) })
	if err == nil && session == "" {
		err = output.ErrUnknown
	}
	if err != nil {
		return "", 0, false, err
	}
	p, err := s.d.shells.Output(ctx, session, command, offset, limit)
	if err != nil || p.Next == nil {
		return p.Text, p.Offset + int64(len(p.Text)), err == nil, err
	}
	return p.Text, *p.Next, false, nil
}
