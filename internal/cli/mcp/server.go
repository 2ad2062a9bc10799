package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"soma/client"
	"soma/ident"
	"soma/internal/agent/tool"
	"soma/wire"
)

// server answers the calls of one client. Its methods are safe for concurrent use.
type server struct {
	p              Program
	folder, python string
	wait           time.Duration
	tell           sync.WaitGroup // progress notices that are on their way

	mu   sync.Mutex
	left []string // cells that were left running, of which the client has not heard the end; at most maxLeft
}

// maxLeft bounds the cells whose ends are told unasked.
const maxLeft = 64

func newServer(p Program, folder, python string, wait time.Duration) *server {
	return &server{p: p, folder: folder, python: python, wait: wait}
}

const instructions = "One Python that lasts: names, imports and background jobs stay from call to call, and through restarts of this server. " +
	"Work in it with python_execute; code that runs long goes on by itself and python_result fetches its outcome."

func (s *server) mcp() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "soma", Title: "Soma python kernel", Version: s.p.Build()},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	no := new(bool)
	look := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no}
	mcp.AddTool(server, &mcp.Tool{Name: "python_execute", Title: "Run Python code", Description: executeText,
		Annotations: &mcp.ToolAnnotations{}}, s.execute)
	mcp.AddTool(server, &mcp.Tool{Name: "python_result", Title: "Result of a cell", Annotations: look,
		Description: "The outcome of a cell that was left running, or its output so far. With wait it first waits up to so many seconds for its end."}, s.result)
	mcp.AddTool(server, &mcp.Tool{Name: "python_output", Title: "A page of output", Annotations: look,
		Description: "A page of the output of a cell or job, from a byte offset on: for what a result leaves out. It says where the next page begins."}, s.output)
	mcp.AddTool(server, &mcp.Tool{Name: "python_interrupt", Title: "Interrupt a cell", Annotations: &mcp.ToolAnnotations{OpenWorldHint: no},
		Description: "Stop a running cell as Ctrl-C would. Names stay; jobs that it has started run on."}, s.interrupt)
	s.addJobTools(server)
	return server
}

const executeText = `Run Python code as one cell of this folder's lasting kernel and return what it prints and the value of its last expression.

- Names, imports and functions of earlier cells are there, also those of an earlier conversation in this folder.
- Top-level await works. The working directory is the folder.
- Start programs with ` + "`job = run(\"command\")`" + ` and ` + "`await job`" + `; a job runs on in the background when it is not awaited.
- show_image(path_or_bytes) returns a PNG, JPEG or WebP picture with the result.
- Code that does not end soon runs on: the result then has status "running" and the cell's id for python_result.`

type executeIn struct {
	Code    string  `json:"code" jsonschema:"Python source of the cell"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"seconds after which the cell is interrupted; at most and by default 3600"`
}

func (s *server) execute(ctx context.Context, req *mcp.CallToolRequest, in executeIn) (*mcp.CallToolResult, any, error) {
	if strings.TrimSpace(in.Code) == "" {
		return nil, nil, errors.New("the cell has no code")
	}
	if in.Timeout < 0 || in.Timeout > tool.MaxCellTimeout.Seconds() {
		return nil, nil, fmt.Errorf("timeout is not from 0.001 to %v seconds", tool.MaxCellTimeout.Seconds())
	}
	run := wire.RunCell{Code: in.Code, TimeoutMS: int64(in.Timeout * 1000)}
	if in.Timeout > 0 && run.TimeoutMS == 0 {
		run.TimeoutMS = 1
	}
	id := ident.New(time.Now()).String()
	cell, from, err := s.give(ctx, id, run)
	if err != nil {
		return nil, nil, err
	}
	stop := s.progress(ctx, req, cell.ID)
	cell, err = s.await(ctx, cell, from, s.wait)
	stop()
	if ctx.Err() != nil { // the client has cancelled the call: nobody waits for the code any more
		s.abandon(context.WithoutCancel(ctx), cell.ID)
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return s.show(ctx, cell, true)
}

// give gives the cell to the folder's session. A session that is closed meanwhile is followed by another one.
func (s *server) give(ctx context.Context, id string, run wire.RunCell) (cell wire.Cell, from wire.Cursor, err error) {
	for range 2 {
		var session wire.Session
		session, err = s.p.PySession(ctx, s.folder, s.python)
		if err != nil {
			return cell, from, err
		}
		from = wire.Cursor{Seq: session.LastEvent}
		err = s.p.Keep(ctx, func() (err error) { cell, err = s.p.Client().RunCell(ctx, session.ID, id, run); return err })
		var refusal *wire.Error
		if !errors.As(err, &refusal) || refusal.Code != wire.SessionClosed {
			return cell, from, err
		}
	}
	return cell, from, err
}

// await waits until the cell has ended, at most for so long; the cell is as it is then.
func (s *server) await(ctx context.Context, cell wire.Cell, from wire.Cursor, wait time.Duration) (wire.Cell, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.p.Follow(limited, cell.Session, from, func(f client.Frame) error {
		if ended, ok := endOf(f, cell.ID); ok {
			cell = ended
			return client.ErrEnough
		}
		if f.Reset != nil { // its end may have been passed over
			return client.ErrEnough
		}
		return nil
	})
	if err != nil && limited.Err() == nil {
		return cell, err
	}
	if cell.State != ended && ctx.Err() == nil {
		id := cell.ID // an answer that is lost leaves no cell
		err := s.p.Keep(ctx, func() (err error) { cell, err = s.p.Client().Cell(ctx, id); return err })
		return cell, err
	}
	return cell, nil
}

// abandonWait bounds the interrupt of a cell whose caller has gone.
const abandonWait = 10 * time.Second

func (s *server) abandon(ctx context.Context, cell string) {
	ctx, cancel := context.WithTimeout(ctx, abandonWait)
	defer cancel()
	_, _ = s.p.Client().InterruptCell(ctx, cell) // the client hears nothing more of this call
}

// progressGap is the time between two notices of progress.
const progressGap = 5 * time.Second

// progress tells a client that asked for it that the cell still runs, until stop is called.
func (s *server) progress(ctx context.Context, req *mcp.CallToolRequest, cell string) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	s.tell.Go(func() {
		tick := time.NewTicker(progressGap)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				took := time.Since(began).Round(time.Second)
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: took.Seconds(), Message: fmt.Sprintf("cell %s has run for %s", cell, took)})
			case <-ctx.Done():
				return
			}
		}
	})
	return cancel
}
