package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

// maxTimeout is what the API takes.
const maxTimeout = time.Hour

// maxCode bounds the code of a cell in bytes: what the API takes, less room for its JSON.
const maxCode = wire.MaxCellBody - 64<<10

func (a *app) cmdPy() *cobra.Command {
	var code, python string
	var fresh, end, last, interrupt bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "py -c CODE | py FILE | py -",
		Short: "run code in this folder's python kernel",
		Long: "py runs code as one cell in the python kernel of this folder, which keeps its names from cell to cell and outlives the\n" +
			"daemon; no model is needed. Output streams; a last expression's value is printed. Ctrl-C detaches and the cell runs on:\n" +
			"py --last, or attach --last, shows it, and py --interrupt stops it. The exit code is 0, or 1 when the cell ended with an\n" +
			"error. Cells of one folder run one after the other.",
		Example: "  soma py -c 'x = 41'\n  soma py -c 'x + 1'\n  soma py --end",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			given := cmd.Flags().Changed("code")
			asked := 0
			for _, one := range []bool{end, last, interrupt, given, len(args) > 0} {
				if one {
					asked++
				}
			}
			switch {
			case asked > 1, fresh && (end || last || interrupt):
				return exit.Faultf(exit.Usage, "see soma help py", "cannot do several of these at once")
			case cmd.Flags().Changed("timeout") && (timeout < time.Millisecond || timeout > maxTimeout):
				return exit.Faultf(exit.Usage, "give from 1ms to 1h", "cannot take --timeout %s", timeout)
			case end:
				return a.pyEnd(ctx)
			case last:
				return a.pyLast(ctx)
			case interrupt:
				return a.pyInterrupt(ctx)
			case !given && len(args) == 0:
				return exit.Faultf(exit.Usage, "give it with -c CODE, as FILE, or with - on the standard input", "cannot go on without code")
			}
			if !given {
				var err error
				if code, err = a.readCode(args[0]); err != nil {
					return err
				}
			}
			if err := checkText(code, maxCode); err != nil {
				return err
			}
			return a.runCell(cmd.Context(), wire.RunCell{Code: code, TimeoutMS: timeout.Milliseconds()}, python, fresh)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&code, "code", "c", "", "the `CODE` to run")
	flags.StringVar(&python, "python", "", "python `INTERPRETER` of a kernel that is started")
	flags.BoolVar(&fresh, "new", false, "end this folder's kernel and begin with a fresh one")
	flags.BoolVar(&end, "end", false, "end this folder's kernel")
	flags.BoolVar(&interrupt, "interrupt", false, "stop the cell that runs; the names stay")
	flags.BoolVar(&last, "last", false, "show the last cell, and follow it if it still runs")
	flags.DurationVar(&timeout, "timeout", 0, "stop the cell after this `TIME` (default and most 1h)")
	return cmd
}

func (a *app) readCode(name string) (string, error) {
	text, err := func() ([]byte, error) {
		if name == "-" {
			return io.ReadAll(io.LimitReader(a.In, maxCode+1))
		}
		return readUpTo(name, maxCode+1)
	}()
	if err != nil {
		return "", exit.Faultf(exit.BadFile, "", "cannot read the code: %w", err)
	}
	return string(text), nil
}

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

func (a *app) runCell(ctx context.Context, run wire.RunCell, python string, fresh bool) error {
	s, cell, err := a.giveCell(ctx, run, python, fresh)
	if sessionClosed(err) { // by a py --new or --end beside this one
		s, cell, err = a.giveCell(ctx, run, python, false)
	}
	if sessionClosed(err) {
		return exit.Faultf(exit.Refused, "run soma py again", "cannot run the cell: this folder's kernel was ended at the same time")
	}
	if err != nil {
		return err
	}
	if s.LastEvent > 0 && !a.asJSON {
		a.sayQueued(ctx, s.ID)
	}
	return a.showCell(ctx, s.ID, wire.Cursor{Seq: s.LastEvent}, &cellPrinter{app: a, id: cell.ID})
}

// giveCell gives a cell to this folder's python session.
func (a *app) giveCell(ctx context.Context, run wire.RunCell, python string, fresh bool) (s wire.Session, cell wire.Cell, err error) {
	dir, err := a.workspace()
	if err != nil {
		return s, cell, err
	}
	if s, err = a.pySession(ctx, dir, python, fresh); err != nil {
		return s, cell, err
	}
	id := ident.New(time.Now()).String()
	err = a.keep(ctx, func() (err error) { cell, err = a.client.RunCell(ctx, s.ID, id, run); return err })
	return s, cell, err
}

func sessionClosed(err error) bool {
	var refusal *wire.Error
	return errors.As(err, &refusal) && refusal.Code == wire.SessionClosed
}

// watchCell shows the cell that begins after a cursor, with its code, and follows it to its end.
func (a *app) watchCell(ctx context.Context, session string, from wire.Cursor) error {
	return a.showCell(ctx, session, from, &cellPrinter{app: a, code: true})
}

func (a *app) showCell(ctx context.Context, session string, from wire.Cursor, p *cellPrinter) error {
	p.page = func(offset int64) (page wire.OutputPage, err error) {
		err = a.keep(ctx, func() (err error) { page, err = a.client.Output(ctx, p.id, offset, pageBytes); return err })
		return page, err
	}
	a.endLine, p.picture = p.endLine, a.pictures(ctx)
	err := a.follow(ctx, session, from, p.frame)
	if ctx.Err() != nil {
		a.say("detached; the cell runs on; soma py --last shows it")
		return exit.Quiet(exit.OK)
	}
	if err != nil {
		return exit.Stopped(err, "soma py --last")
	}
	if p.status != "ok" {
		return exit.Quiet(exit.Failed)
	}
	return nil
}

// cellPrinter prints one cell of a python session as running the code would: output as it is, and the value. Nothing is
// printed twice and nothing is missing, except what the daemon did not keep: that is said.
type cellPrinter struct {
	app    *app
	id     string                                      // of the cell; empty: the first that begins
	code   bool                                        // show the code as well
	page   func(offset int64) (wire.OutputPage, error) // of the output that was kept of the ended cell
	taken  int64
	inLine bool // the last line is not ended
	missed bool // a part of the output did not come while the cell ran
	status string
	// picture is how images are shown; nil: they are not.
	picture picture
}

func (p *cellPrinter) frame(f client.Frame) error {
	if f.Reset != nil {
		return exit.Faultf(exit.NotFound, "see soma logs --cell "+p.id, "cannot follow the cell: the daemon's store has changed")
	}
	if o := f.Output; o != nil && o.Cell == p.id {
		if p.app.asJSON {
			return p.app.frameJSON(f)
		}
		if text, ok := beyond(o.Text, o.Offset, p.taken); ok {
			return p.print(text)
		}
		if o.Offset > p.taken && !p.missed {
			p.missed = true
			p.app.say("a part of the output was missed; it is shown, with what follows, when the cell has ended")
		}
		return nil
	}
	if f.Event == nil || f.Event.Kind != wire.CellStarted && f.Event.Kind != wire.CellEnded {
		return nil
	}
	var b wire.CellEvent
	if err := json.Unmarshal(f.Event.Body, &b); err != nil {
		return fmt.Errorf("cannot read event %d (%s): %w", f.Event.Seq, f.Event.Kind, err)
	}
	if p.id == "" {
		p.id = b.Cell.ID
	}
	if b.Cell.ID != p.id {
		return nil
	}
	if p.app.asJSON {
		if err := p.app.frameJSON(f); err != nil {
			return err
		}
	}
	if f.Event.Kind == wire.CellEnded {
		p.status = b.Cell.Status
		if err := p.end(outcomeOf(b)); err != nil {
			return err
		}
		return client.ErrEnough
	}
	if p.code && !p.app.asJSON {
		s := p.app.screen()
		(&cellView{tool: "python", code: b.Cell.Code}).showCode(s)
		return s.flush()
	}
	return nil
}

func (p *cellPrinter) print(text string) error {
	p.taken += int64(len(text))
	if text != "" {
		p.inLine = !strings.HasSuffix(text, "\n")
	}
	_, err := io.WriteString(p.app.Out, text)
	return err
}

// endLine ends an open line of the output on a terminal, where something else follows it. Elsewhere the output stays as the
// cell wrote it.
func (p *cellPrinter) endLine() error {
	if !p.inLine || !isTerminal(p.app.Out) {
		return nil
	}
	p.inLine = false
	_, err := io.WriteString(p.app.Out, "\n")
	return err
}

// fill prints the next n bytes of output from the daemon's pages, and says how many of them were not kept.
func (p *cellPrinter) fill(n int64) error {
	for end := p.taken + n; p.taken < end; {
		page, err := p.page(p.taken)
		if err != nil {
			return err
		}
		if page.Next <= p.taken || page.Next > end {
			page.Next = end
		}
		have := page.Next - p.taken
		if page.Kept && page.Text != "" {
			if err := p.print(page.Text[:min(have, int64(len(page.Text)))]); err != nil {
				return err
			}
		} else {
			p.app.say("%s of output were not kept", plain.Size(have))
		}
		p.taken = page.Next
	}
	return nil
}

// end prints what is still missing, and how the cell ended.
func (p *cellPrinter) end(r *outcome) error {
	a := p.app
	if a.asJSON {
		return nil
	}
	err := r.rest(p.taken, p.print, p.fill)
	if err == nil && r.value != "" {
		if p.inLine {
			r.value = "\n" + r.value
		}
		_, err = fmt.Fprintln(a.Out, r.value)
		p.inLine = false
	}
	if err == nil && r.fault != "" {
		if err = p.endLine(); err == nil {
			_, err = fmt.Fprintln(a.Err, strings.TrimRight(r.fault, "\n"))
		}
	}
	if err == nil {
		err = p.images(r.shown)
	}
	for _, text := range []string{r.note, r.shown.Repair} {
		if text != "" {
			a.say("%s", text)
		}
	}
	if r.status != "ok" && r.status != "error" {
		a.say("the cell was not run to its end: %s", status(r.status))
	}
	return err
}

// images shows the images of the cell: in the output where a terminal can, else beside it.
func (p *cellPrinter) images(shown wire.Shown) error {
	for _, image := range shown.Images {
		if p.picture == nil {
			break
		}
		inline, line := p.picture(p.id, image)
		if inline == "" {
			p.app.say("%s", line)
			continue
		}
		if err := p.endLine(); err != nil {
			return err
		}
		if _, err := io.WriteString(p.app.Out, inline+"\n"); err != nil {
			return err
		}
	}
	for _, text := range shown.ImageErrors {
		p.app.say("%s", text)
	}
	return nil
}
