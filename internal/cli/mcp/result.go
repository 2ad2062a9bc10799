package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"soma/client"
	"soma/internal/agent/tool"
	"soma/wire"
)

// States of a cell.
const (
	ended   = "ended"
	running = "running" // the status that a client reads of one that has not ended
)

// Bounds of the output that a result shows; the rest is had by pages.
const (
	headBytes = 24 << 10
	tailBytes = 6 << 10
)

// endOf returns the cell of a frame that tells its end.
func endOf(f client.Frame, id string) (wire.Cell, bool) {
	if f.Event == nil || f.Event.Kind != wire.CellEnded {
		return wire.Cell{}, false
	}
	var b wire.CellEvent
	if json.Unmarshal(f.Event.Body, &b) != nil || b.Cell.ID != id {
		return wire.Cell{}, false
	}
	return b.Cell, true
}

type resultIn struct {
	Cell string  `json:"cell" jsonschema:"id of the cell"`
	Wait float64 `json:"wait,omitempty" jsonschema:"seconds to wait for its end; 0 if left out"`
}

func (s *server) result(ctx context.Context, req *mcp.CallToolRequest, in resultIn) (*mcp.CallToolResult, any, error) {
	if in.Wait < 0 || in.Wait > maxWait.Seconds() {
		return nil, nil, fmt.Errorf("wait is not from 0 to %v seconds", maxWait.Seconds())
	}
	cell, err := s.cell(ctx, in.Cell)
	if err == nil && cell.State != ended && in.Wait > 0 {
		var session wire.Session
		err = s.p.Keep(ctx, func() (err error) { session, err = s.p.Client().Session(ctx, cell.Session); return err })
		if err == nil {
			cell, err = s.cell(ctx, in.Cell) // it may have ended before the cursor
		}
		if err == nil && cell.State != ended {
			stop := s.progress(ctx, req, cell.ID)
			cell, err = s.await(ctx, cell, wire.Cursor{Seq: session.LastEvent}, time.Duration(in.Wait*float64(time.Second)))
			stop()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return s.show(ctx, cell, false)
}

// unknown says that an id is one of nothing, as it could be of nothing.
func unknown(id string) error {
	return fmt.Errorf("no cell or job has the id %.128q; python_jobs lists the jobs", id)
}

// cell returns a cell of this folder: what other folders run is not this client's.
func (s *server) cell(ctx context.Context, id string) (cell wire.Cell, err error) {
	if !wire.ValidID(id) {
		return cell, unknown(id)
	}
	err = s.p.Keep(ctx, func() (err error) { cell, err = s.p.Client().Cell(ctx, id); return err })
	if err != nil {
		return cell, err
	}
	var session wire.Session
	err = s.p.Keep(ctx, func() (err error) { session, err = s.p.Client().Session(ctx, cell.Session); return err })
	if err == nil && session.Workspace != s.folder {
		err = fmt.Errorf("no cell %q of this folder", id)
	}
	return cell, err
}

// show puts a cell into words: what a model of the daemon's own would read, and its images. With news it also tells of cells
// that were left running and have ended.
func (s *server) show(ctx context.Context, cell wire.Cell, news bool) (*mcp.CallToolResult, any, error) {
	out, err := s.shown(ctx, cell)
	if err != nil {
		return nil, nil, err
	}
	r := tool.Result{CellID: cell.ID, Note: cell.Note, Status: cell.Status, DurationMS: cell.DurationMS, Output: out}
	if cell.Value != nil {
		r.Value = *cell.Value
	}
	if f := cell.Error; f != nil {
		r.Error = &tool.ResultError{Type: f.Type, Message: f.Message, Traceback: f.Traceback}
	}
	if cell.State != ended {
		r.Status = running
		r.DurationMS = time.Since(cell.StartedAt).Milliseconds()
		r.Note = fmt.Sprintf("cell %s runs on; python_result gives its outcome, python_interrupt stops it", cell.ID)
	}
	s.note(cell)
	text := tool.Render(r)
	if news {
		text += s.news(ctx, cell.ID)
	}
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: cell.State == ended && cell.Status != "ok"}
	images, err := s.images(ctx, cell)
	if err != nil {
		return nil, nil, err
	}
	result.Content = append(result.Content, images...)
	return result, nil, nil
}

// shown returns the beginning and the end of a cell's output.
func (s *server) shown(ctx context.Context, cell wire.Cell) (out tool.Output, err error) {
	page, err := s.page(ctx, cell.ID, 0, headBytes)
	if err != nil {
		return out, err
	}
	out = tool.Output{Head: page.Text, Size: max(page.Size, page.Next)}
	if rest := out.Size - page.Next; rest > 0 {
		from := max(page.Next, out.Size-tailBytes)
		if page, err = s.page(ctx, cell.ID, from, tailBytes); err != nil {
			return out, err
		}
		if page.Kept {
			out.Tail = page.Text
		}
	}
	return out, nil
}

func (s *server) page(ctx context.Context, cell string, offset, limit int64) (page wire.OutputPage, err error) {
	err = s.p.Keep(ctx, func() (err error) { page, err = s.p.Client().Output(ctx, cell, offset, limit); return err })
	return page, err
}

// note remembers a cell that runs on, and forgets one whose end the client hears now.
func (s *server) note(cell wire.Cell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(s.left, func(id string) bool { return id == cell.ID })
	if cell.State != ended {
		s.left = append(s.left, cell.ID)
		s.left = s.left[max(0, len(s.left)-maxLeft):]
	}
}

// news tells of the cells that were left running and have ended, each once.
func (s *server) news(ctx context.Context, but string) string {
	s.mu.Lock()
	left := slices.Clone(s.left)
	s.mu.Unlock()
	var b strings.Builder
	for _, id := range left {
		if id == but {
			continue
		}
		cell, err := s.cell(ctx, id)
		if err != nil || cell.State != ended {
			continue // its own python_result will say what is wrong
		}
		fmt.Fprintf(&b, "\n[cell %s has ended (status=%s, ran %.1fs); python_result gives its outcome]", id, cell.Status, float64(cell.DurationMS)/1000)
		s.note(cell)
	}
	return b.String()
}

type outputIn struct {
	ID     string `json:"id" jsonschema:"id of the cell or job"`
	Offset int64  `json:"offset,omitempty" jsonschema:"bytes to skip; 0 if left out"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"most bytes of the page, at most 65536; 16384 if left out"`
}

const (
	defaultPage = 16 << 10
	maxPage     = 64 << 10
)

func (s *server) output(ctx context.Context, _ *mcp.CallToolRequest, in outputIn) (*mcp.CallToolResult, any, error) {
	if in.Limit == 0 {
		in.Limit = defaultPage
	}
	if in.Offset < 0 || in.Limit < 4 || in.Limit > maxPage {
		return nil, nil, fmt.Errorf("offset is not from 0 on, or limit not from 4 to %d", maxPage)
	}
	if !wire.ValidID(in.ID) {
		return nil, nil, unknown(in.ID)
	}
	if _, err := s.cell(ctx, in.ID); err != nil {
		return s.jobOutput(ctx, in, err)
	}
	page, err := s.page(ctx, in.ID, in.Offset, in.Limit)
	if err != nil {
		return nil, nil, err
	}
	if !page.Kept {
		return nil, nil, fmt.Errorf("the output from byte %d to %d was not kept", page.Offset, page.Next)
	}
	return paged(in.ID, page.Offset, page.Next, page.Size, page.EOF, page.Text), nil, nil
}

// paged is a page as a client reads it: a line that says where it lies, then the text.
func paged(id string, offset, next, size int64, last bool, text string) *mcp.CallToolResult {
	head, _ := json.Marshal(struct { // numbers and strings only
		ID     string `json:"id"`
		Offset int64  `json:"offset"`
		Next   int64  `json:"next"`
		Size   int64  `json:"size"`
		End    bool   `json:"end"`
	}{id, offset, next, size, last})
	return said(string(head) + "\n" + text)
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

type interruptIn struct {
	Cell string `json:"cell" jsonschema:"id of the cell"`
}

func (s *server) interrupt(ctx context.Context, _ *mcp.CallToolRequest, in interruptIn) (*mcp.CallToolResult, any, error) {
	cell, err := s.cell(ctx, in.Cell)
	if err != nil {
		return nil, nil, err
	}
	if cell.State == ended {
		return said(fmt.Sprintf("cell %s has ended already (status=%s)", cell.ID, cell.Status)), nil, nil
	}
	err = s.p.Keep(ctx, func() error { _, err := s.p.Client().InterruptCell(ctx, in.Cell); return err })
	if err != nil {
		return nil, nil, err
	}
	return said(fmt.Sprintf("cell %s is being interrupted; python_result tells how it ends", cell.ID)), nil, nil
}
