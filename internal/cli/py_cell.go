package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

// cellPrinter prints one cell of a python session as running the code would: output as it is, and the value. Nothing is
// printed twice and nothing is missing, except what the daemon did not keep: that is said.
type cellPrinter struct {
	app    *app
	id     string                                      // of the cell; empty: the first that begins
	code   bool                                        // show the code as well
	brief  bool                                        // a person who sees the traceback has ended it
	page   func(offset int64) (wire.OutputPage, error) // of the output that was kept of the ended cell
	taken  int64
	inLine bool // the last line is not ended
	missed bool // a part of the output did not come while the cell ran
	status string
	// kept takes up what the cell does; with quiet nothing of it is shown.
	kept  *keptCell
	quiet bool
	// picture is how images are shown; nil: they are not.
	picture picture
}

func (p *cellPrinter) frame(f client.Frame) error {
	if f.Reset != nil {
		return exit.Faultf(exit.NotFound, "see soma logs --cell "+p.id, "cannot follow the cell: the daemon's store has changed")
	}
	if o := f.Output; o != nil && o.Cell == p.id {
		if p.app.asJSON && !p.quiet {
			return p.app.frameJSON(f)
		}
		if o.Offset > p.taken && !p.missed {
			if err := p.catchUp(o.Offset); err != nil {
				return err
			}
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
	if p.app.asJSON && !p.quiet {
		if err := p.app.frameJSON(f); err != nil {
			return err
		}
	}
	if f.Event.Kind == wire.CellEnded {
		p.status = b.Cell.Status
		if p.kept != nil {
			p.kept.cell = b.Cell
		}
		if err := p.end(outcomeOf(b)); err != nil {
			return err
		}
		return client.ErrEnough
	}
	if p.app.asJSON && !p.quiet {
		return nil
	}
	if p.code {
		s := p.app.screen()
		(&cellView{tool: "python", code: b.Cell.Code}).showCode(s)
		if err := s.flush(); err != nil {
			return err
		}
	}
	return p.catchUp(math.MaxInt64)
}

// catchUp prints what the cell wrote before somebody followed it, up to an offset, as far as it can be had while it runs.
func (p *cellPrinter) catchUp(to int64) error {
	for p.taken < to {
		page, err := p.page(p.taken)
		if err != nil || !page.Kept || page.Text == "" || page.Offset != p.taken {
			return nil // what is missing is shown when the cell has ended
		}
		if err := p.print(page.Text); err != nil {
			return err
		}
	}
	return nil
}

func (p *cellPrinter) print(text string) error {
	p.taken += int64(len(text))
	if p.kept != nil {
		p.kept.take(text)
	}
	if p.quiet {
		return nil
	}
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
			if p.kept != nil {
				p.kept.lost += have
			}
			p.app.say("%s of output were not kept", plain.Size(have))
		}
		p.taken = page.Next
	}
	return nil
}

// end prints what is still missing, and how the cell ended.
func (p *cellPrinter) end(r *outcome) error {
	a := p.app
	if a.asJSON && !p.quiet {
		return nil
	}
	err := r.rest(p.taken, p.print, p.fill)
	if p.quiet {
		return err
	}
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
	if r.status != "ok" && r.status != "error" && !(p.brief && r.status == "interrupted" && r.fault != "") {
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

// maxKept bounds what is kept of the output of one cell.
const maxKept = 16 << 20

// keptCell is a cell that has ended and what it wrote.
type keptCell struct {
	cell   wire.Cell
	output strings.Builder
	lost   int64 // bytes of the output that are not there
}

func (k *keptCell) take(text string) {
	if k.output.Len()+len(text) > maxKept {
		k.lost += int64(len(text))
		return
	}
	k.output.WriteString(text)
}
