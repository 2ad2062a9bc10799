package view_test

import (
	"context"
	"strings"
	"testing"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/pykernel/view"
	"soma/wire"
)

// planned reads nothing: it looks how SQLite would.
type planned struct {
	t     *testing.T
	store neuron.Reader
	seen  int
}

func (p *planned) Query(ctx context.Context, sql string, args []any, row func(func(...any) error) error) error {
	p.seen++
	err := p.store.Query(ctx, `explain query plan `+sql, args, func(scan func(...any) error) error {
		var id, parent, unused int64
		var step string
		err := scan(&id, &parent, &unused, &step)
		found := strings.Contains(step, " USING ") || strings.HasPrefix(step, "CORRELATED")
		if (strings.HasPrefix(step, "SCAN") || strings.HasPrefix(step, "SEARCH")) && !found {
			p.t.Errorf("%s\n%s", step, sql)
		}
		return err
	})
	if err != nil {
		p.t.Errorf("%v\n%s", err, sql)
	}
	return p.store.Query(ctx, sql, args, row)
}

// P-046, P-049: however many kernels, processes, cells and jobs there have been, what is read of those of now is found by an index.
func TestReadsAreFound(t *testing.T) {
	w := newWorld(t)
	reader := &planned{t: t, store: w.store}
	v := view.New(view.Options{Reader: reader, Owners: w.owners, Node: "here", Output: w.kept, OutputDir: w.output})
	branch := ident.Named("branch", "s")
	w.commit(&statement{`insert into branch (id, session, name, created_at) values (?, 's', 'main', 0)`, []any{branch[:]}})
	id, ctx := branch.String(), t.Context()
	for what, read := range map[string]func() error{
		"kernels": func() error { _, err := v.Kernels(ctx, false); return err },
		"kernel":  func() error { _, err := v.Kernel(ctx, id); return err },
		"jobs":    func() error { _, err := v.Jobs(ctx, id); return err },
		"recent":  func() error { _, err := v.RecentJobs(ctx, id); return err },
		"output":  func() error { _, err := v.JobOutput(ctx, id, "j", nil, wire.DefaultJob); return err },
		"image":   func() error { _, _, err := v.CellImage(ctx, "c", 1); return err },
		"trace":   func() error { _, err := v.CellTrace(ctx, "c"); return err },
	} {
		before := reader.seen
		if err := read(); code(err) == wire.Internal || reader.seen == before {
			t.Errorf("%s: %v after %d queries", what, err, reader.seen-before)
		}
	}
}
