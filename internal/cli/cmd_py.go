package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/folder"
	"soma/internal/cli/notebook"
	"soma/wire"
)

// maxTimeout is what the API takes.
const maxTimeout = time.Hour

// maxCode bounds the code of a cell in bytes: what the API takes, less room for its JSON.
const maxCode = wire.MaxCellBody - 64<<10

func (a *app) cmdPy() *cobra.Command {
	var code, python string
	var fresh, end, last, interrupt, write, keepGoing bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "py | py -c CODE | py FILE | py -",
		Short: "run code in this folder's python kernel",
		Long: "py runs code as one cell in the python kernel of this folder, which keeps its names from cell to cell and outlives the\n" +
			"daemon; no model is needed. Output streams; a last expression's value is printed. Ctrl-C detaches and the cell runs on:\n" +
			"py --last, or attach --last, shows it, and py --interrupt stops it. The exit code is 0, or 1 when the cell ended with an\n" +
			"error. Cells of one folder run one after the other.\n\n" +
			"At a terminal, py alone is a prompt: it shows a cell that still runs, completes names with Tab, goes through what was typed\n" +
			"before with Up, Down and Ctrl-R, and takes code of several lines, a block up to an empty line. Ctrl-C ends the cell that runs and\n" +
			"not its names, Ctrl-D detaches. ?name explains a name, !command runs a shell command in the folder, ? tells what else there is.\n\n" +
			"A FILE that ends with .ipynb is a notebook: its code cells run in order, in the same kernel, up to the first that fails. --write\n" +
			"puts their outputs back into the file; with -o json each cell is one line.",
		Example: "  soma py\n  soma py -c 'x = 41'\n  soma py -c 'x + 1'\n  soma py --write analysis.ipynb\n  soma py --end",
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
			case (write || keepGoing) && !isNotebook(args):
				return exit.Faultf(exit.Usage, "give a FILE that ends with .ipynb", "cannot take --write or --keep-going without a notebook")
			case isNotebook(args):
				return a.pyNotebook(ctx, notebook.Options{File: args[0], Write: write, KeepGoing: keepGoing}, python, fresh, timeout)
			case end:
				return a.pyEnd(ctx)
			case last:
				return a.pyLast(ctx)
			case interrupt:
				return a.pyInterrupt(ctx)
			case !given && len(args) == 0 && a.atTerminal():
				return a.pyPrompt(ctx, &folder.Kernel{Python: python, Fresh: fresh, Timeout: timeout})
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
	flags.BoolVar(&write, "write", false, "put the outputs of a notebook's cells back into it")
	flags.BoolVar(&keepGoing, "keep-going", false, "run the cells of a notebook that come after one that failed, too")
	flags.DurationVar(&timeout, "timeout", 0, "stop the cell after this `TIME` (default and most 1h)")
	return cmd
}

func isNotebook(args []string) bool {
	return len(args) == 1 && strings.HasSuffix(args[0], ".ipynb")
}

func (a *app) readCode(name string) (string, error) {
	text, err := func() ([]byte, error) {
		if name == "-" {
			return io.ReadAll(io.LimitReader(a.In, maxCode+1))
		}
		return readUpTo(name, maxCode+1)
	}()
	if err != nil {
		do := ""
		if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(name, " ()=+") {
			do = "code itself follows -c"
		}
		return "", exit.Faultf(exit.BadFile, do, "cannot read the code: %w", err)
	}
	return string(text), nil
}

func (a *app) runCell(ctx context.Context, run wire.RunCell, python string, fresh bool) error {
	s, cell, err := folder.Run(ctx, inFolder{lookingBack{a}}, run, python, fresh)
	if err != nil {
		return err
	}
	if s.LastEvent > 0 && !a.asJSON {
		folder.SayQueued(ctx, inFolder{lookingBack{a}}, s.ID)
	}
	return a.showCell(ctx, s.ID, wire.Cursor{Seq: s.LastEvent}, &cellPrinter{app: a, id: cell.ID})
}

// watchCell shows the cell that begins after a cursor, with its code, and follows it to its end.
func (a *app) watchCell(ctx context.Context, session string, from wire.Cursor) error {
	return a.showCell(ctx, session, from, &cellPrinter{app: a, code: true})
}

// followCell shows a cell until it has ended. Its error is that of following it.
func (a *app) followCell(ctx context.Context, session string, from wire.Cursor, p *cellPrinter) error {
	p.page = func(offset int64) (page wire.OutputPage, err error) {
		err = a.keep(ctx, func() (err error) { page, err = a.client.Output(ctx, p.id, offset, pageBytes); return err })
		return page, err
	}
	a.endLine, p.picture = p.endLine, a.pictures(ctx)
	return a.follow(ctx, session, from, p.frame)
}

func (a *app) showCell(ctx context.Context, session string, from wire.Cursor, p *cellPrinter) error {
	err := a.followCell(ctx, session, from, p)
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
