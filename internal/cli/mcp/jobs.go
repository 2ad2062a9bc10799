package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"soma/wire"
)

func (s *server) addJobTools(server *mcp.Server) {
	no := new(bool)
	mcp.AddTool(server, &mcp.Tool{Name: "python_jobs", Title: "Background jobs", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no},
		Description: "The programs that cells have started with run(): those that run and those that ended last, the newest first."}, s.jobs)
	mcp.AddTool(server, &mcp.Tool{Name: "python_job_stop", Title: "Stop a job", Annotations: &mcp.ToolAnnotations{OpenWorldHint: no},
		Description: "End a background job with all programs that it has started."}, s.stopJob)
}

type noneIn struct{}

func (s *server) jobs(ctx context.Context, _ *mcp.CallToolRequest, _ noneIn) (*mcp.CallToolResult, any, error) {
	session, err := s.p.PySession(ctx, s.folder, s.python)
	if err != nil {
		return nil, nil, err
	}
	var jobs []wire.Job
	err = s.p.Keep(ctx, func() (err error) { jobs, err = s.p.Client().RecentJobs(ctx, session.Branch); return err })
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) == 0 {
		return said("no jobs"), nil, nil
	}
	var b strings.Builder
	for _, job := range jobs {
		line, err := json.Marshal(job)
		if err != nil {
			return nil, nil, err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return said(strings.TrimRight(b.String(), "\n")), nil, nil
}

type jobIn struct {
	Job string `json:"job" jsonschema:"id of the job"`
}

func (s *server) stopJob(ctx context.Context, _ *mcp.CallToolRequest, in jobIn) (*mcp.CallToolResult, any, error) {
	if !wire.ValidID(in.Job) {
		return nil, nil, unknown(in.Job)
	}
	session, err := s.p.PySession(ctx, s.folder, s.python)
	if err != nil {
		return nil, nil, err
	}
	// Not by Keep: a stop whose answer was lost may have been made, and the list of jobs tells.
	if err := s.p.Client().StopJob(ctx, session.Branch, in.Job); err != nil {
		var refusal *wire.Error
		if errors.As(err, &refusal) && refusal.Code == wire.JobNotFound {
			return nil, nil, fmt.Errorf("no job %s runs; python_jobs lists the jobs", in.Job)
		}
		return nil, nil, fmt.Errorf("%w; python_jobs tells what runs", err)
	}
	return said(fmt.Sprintf("job %s is stopped", in.Job)), nil, nil
}

// jobOutput is a page of a job's output; missed says why the id is no cell's.
func (s *server) jobOutput(ctx context.Context, in outputIn, missed error) (*mcp.CallToolResult, any, error) {
	session, err := s.p.PySession(ctx, s.folder, s.python)
	if err != nil {
		return nil, nil, err
	}
	var page wire.JobPage
	err = s.p.Keep(ctx, func() (err error) {
		page, err = s.p.Client().JobOutput(ctx, session.Branch, in.ID, in.Offset, in.Limit)
		return err
	})
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Code == wire.JobNotFound {
		return nil, nil, missed
	}
	if err != nil {
		return nil, nil, err
	}
	return paged(page.Job, page.Offset, page.Next, page.Size, !page.Running && page.Next >= page.Size, page.Text), nil, nil
}

// images returns the images of a cell.
func (s *server) images(ctx context.Context, cell wire.Cell) (all []mcp.Content, err error) {
	for _, image := range cell.Images {
		var data []byte
		err = s.p.Keep(ctx, func() (err error) { data, _, err = s.p.Client().CellImage(ctx, cell.ID, image.N); return err })
		if err != nil {
			return nil, err
		}
		all = append(all, &mcp.ImageContent{Data: data, MIMEType: image.Media})
	}
	return all, nil
}
