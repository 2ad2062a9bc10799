package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"soma/wire"
)

func processPath(pid uint64) string { return "/v1/processes/" + strconv.FormatUint(pid, 10) }

// Processes returns a page of processes, sorted by pid; the pid in the list's Next goes into the filter's After.
func (c *Client) Processes(ctx context.Context, f wire.ProcessFilter) (wire.List[wire.Process], error) {
	all := ""
	if f.All {
		all = "true"
	}
	var out wire.List[wire.Process]
	return out, c.get(ctx, &out, "/v1/processes", "all", all, "workspace", f.Workspace, "session", f.Session,
		"after", number(f.After), "limit", number(f.Limit))
}

// AllProcesses returns all processes that a filter selects, page by page; the filter's Limit is not used.
func (c *Client) AllProcesses(ctx context.Context, f wire.ProcessFilter) ([]wire.Process, error) {
	var all []wire.Process
	f.Limit = wire.MaxLimit
	for {
		page, err := c.Processes(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" || len(page.Items) == 0 {
			return all, nil
		}
		f.After = page.Items[len(page.Items)-1].PID
	}
}

// Process returns a process. Refusal: wire.NotFound.
func (c *Client) Process(ctx context.Context, pid uint64) (wire.Process, error) {
	var out wire.Process
	return out, c.get(ctx, &out, processPath(pid))
}

// Wait returns a process when it has ended, or as it is after atMost (up to wire.MaxWait, cut to whole milliseconds):
// Ended tells which. The daemon does the waiting. Refusal: wire.NotFound.
func (c *Client) Wait(ctx context.Context, pid uint64, atMost time.Duration) (wire.Process, error) {
	atMost = min(atMost.Truncate(time.Millisecond), wire.MaxWait)
	var out wire.Process
	return out, c.within(ctx, c.options.Timeout+atMost, http.MethodGet, &out, nil, processPath(pid), "wait", atMost.String())
}

// Signal sends wire.Interrupt, wire.Pause, wire.Resume or wire.Terminate to a process, once for each client id that the
// caller chooses. Refusals: wire.NotFound, wire.ProcessEnded, wire.BadRequest for another word.
func (c *Client) Signal(ctx context.Context, pid uint64, clientID, signal string) (wire.Process, error) {
	var out wire.Process
	return out, c.do(ctx, http.MethodPut, &out, wire.Signal{Signal: signal},
		processPath(pid)+"/signals/"+url.PathEscape(clientID))
}

// Messages returns a page of a process's transcript after a sequence, in order; limit 0 means wire.DefaultLimit. Refusal:
// wire.NotFound.
func (c *Client) Messages(ctx context.Context, pid, after uint64, limit int) (wire.List[wire.Message], error) {
	var out wire.List[wire.Message]
	return out, c.get(ctx, &out, processPath(pid)+"/messages", "after", number(after), "limit", number(limit))
}

// Ledger returns a page of a process's provider attempts, in order; after is the Next of the page before, or "". Refusal:
// wire.NotFound.
func (c *Client) Ledger(ctx context.Context, pid uint64, after string, limit int) (wire.List[wire.LedgerRow], error) {
	var out wire.List[wire.LedgerRow]
	return out, c.get(ctx, &out, processPath(pid)+"/ledger", "after", after, "limit", number(limit))
}
