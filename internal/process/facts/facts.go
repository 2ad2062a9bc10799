package facts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/neuron/evidence"
	"soma/internal/process"
	"soma/internal/process/wake"
	"soma/internal/pykernel"
	"soma/message"
	"soma/wire"
)

// Facts returns what the turn of a delivery has begun, and what has ended by it. The error is the store's, or of a row that
// cannot be read.
func (f *Facts) Facts(ctx context.Context, e *neuron.Entry) ([]evidence.Fact, error) {
	if e.Settled != "" {
		return nil, nil
	}
	switch e.Alias {
	case process.AdmitAlias, process.ForwardAlias:
		return f.admitted(ctx, e)
	case process.AnswerAlias:
		return f.answered(ctx, e)
	case process.RunCellAlias:
		return f.cells(ctx, e, cellIn(e.Payload), "")
	case pykernel.CellEndedAlias:
		list, err := f.cells(ctx, e, cellIn(e.Payload), "")
		if len(list) > 0 { // the cell; its kernel stands beside
			list[0].Above, list[0].Outcome = true, ident.ID{}
		}
		if err != nil {
			return list, err
		}
		woken, err := f.woken(ctx, e, cellIn(e.Payload))
		return append(list, woken...), err
	case pykernel.JobEndedAlias:
		var m pykernel.JobEnded
		if err := read(e.Payload, &m); err != nil {
			return nil, err
		}
		return f.woken(ctx, e, m.Job)
	}
	return nil, nil
}

// admitted returns the input that a delivery has brought.
func (f *Facts) admitted(ctx context.Context, e *neuron.Entry) (list []evidence.Fact, err error) {
	var m struct {
		Session  string `json:"session"`
		ClientID string `json:"client_id"`
	}
	if err := read(e.Payload, &m); err != nil {
		return nil, err
	}
	err = f.Reader.Query(ctx, `select mode, state, substr(text, 1, 400), at, ended_at from input where session = ? and client_id = ?`,
		[]any{m.Session, m.ClientID}, func(scan func(...any) error) error {
			var mode, state, text string
			var at int64
			var ended *int64
			if err := scan(&mode, &state, &text, &at, &ended); err != nil {
				return err
			}
			fact := evidence.Fact{TraceNode: wire.TraceNode{
				Kind: wire.NodeInput, ID: m.ClientID, What: firstLine(text), At: stamp(at), State: state, End: stampPtr(ended), Note: mode,
			}}
			if ended != nil && state == "delivered" {
				fact.JoinedAt = *fact.End
			}
			list = append(list, fact)
			return nil
		})
	return list, err
}

// woken returns the wake that an end has begun; one that joined a wake which waited has none of its own.
func (f *Facts) woken(ctx context.Context, e *neuron.Entry, id string) (list []evidence.Fact, err error) {
	pid, err := ident.ParsePID(e.Target.Key)
	if err != nil {
		return nil, nil // no process, which nobody wakes
	}
	err = f.Reader.Query(ctx, `select i.state, i.text, i.at, i.ended_at from process p join input i on i.session = p.session and i.client_id = ?
where p.pid = ? and i.pid = p.pid and i.mode = 'wake'`, []any{id, int64(pid)}, func(scan func(...any) error) error {
		var state, text string
		var at int64
		var ended *int64
		if err := scan(&state, &text, &at, &ended); err != nil {
			return err
		}
		news, err := wake.Parse(text)
		fact := evidence.Fact{TraceNode: wire.TraceNode{
			Kind: wire.NodeInput, ID: id, What: firstLine(news.Line()), At: stamp(at), State: state, End: stampPtr(ended), Note: wire.InputWake,
		}}
		if ended != nil && state == "delivered" {
			fact.JoinedAt = *fact.End
		}
		list = append(list, fact)
		return err
	})
	return list, err
}

// answered returns the provider's attempt whose answer a delivery is, and the calls and cells of the answer.
func (f *Facts) answered(ctx context.Context, e *neuron.Entry) ([]evidence.Fact, error) {
	var outcome struct {
		neuron.Ended
		Payload struct {
			Failure *struct {
				Class string `json:"class"`
				Words string `json:"words"`
			} `json:"failure"`
		} `json:"payload"`
	}
	if err := read(e.Payload, &outcome); err != nil {
		return nil, err
	}
	words := outcome.Error
	if x := outcome.Payload.Failure; x != nil {
		words = x.Class + ": " + x.Words
	}
	list, err := f.attempt(ctx, e, words)
	for i := 0; i < turn.MaxCalls && err == nil; i++ {
		var more []evidence.Fact
		if more, err = f.call(ctx, e, process.CallRow(e.ID, i)); len(more) == 0 {
			break
		}
		list = append(list, more...)
	}
	return list, err
}

func (f *Facts) attempt(ctx context.Context, e *neuron.Entry, words string) (list []evidence.Fact, err error) {
	pid, err := ident.ParsePID(e.Target.Key)
	if err != nil {
		return nil, nil // a neuron of another kind
	}
	err = f.Reader.Query(ctx, `select provider, model, step, attempt, outcome, input, cache_read, cache_write, output, reasoning, cost, estimated,
started_at, ended_at from ledger where pid = ? and id = ?`, []any{int64(pid), e.ID[:]}, func(scan func(...any) error) error {
		var provider, model string
		var started, ended int64
		var u message.Usage
		n := wire.TraceNode{Kind: wire.NodeInference, ID: fmt.Sprintf("%s.%d", e.ID.WithAttempt(0), e.ID.Attempt()), Neuron: e.Target.String(),
			Error: words, Usage: &u}
		if err := scan(&provider, &model, &n.Step, &n.Attempt, &n.State, &u.Input, &u.CacheRead, &u.CacheWrite, &u.Output, &u.Reasoning,
			&n.Cost, &u.Estimated, &started, &ended); err != nil {
			return err
		}
		end := stamp(ended)
		n.What, n.At, n.End = strings.Trim(provider+":"+model, ":"), stamp(started), &end
		list = append(list, evidence.Fact{TraceNode: n, Above: true})
		return nil
	})
	return list, err
}

// call returns a tool call: its cell with the kernel, or why it became none. Without a row there is no such call.
func (f *Facts) call(ctx context.Context, e *neuron.Entry, row ident.ID) (list []evidence.Fact, err error) {
	cell, tool := "", ""
	err = f.Reader.Query(ctx, `select tool, state, status, cell, result, started_at, ended_at from tool_call where id = ?`, []any{row[:]},
		func(scan func(...any) error) error {
			n := wire.TraceNode{Kind: wire.NodeCall, ID: row.String(), Neuron: e.Target.String()}
			var status string
			var result []byte
			var started int64
			var ended *int64
			if err := scan(&tool, &n.State, &status, &cell, &result, &started, &ended); err != nil {
				return err
			}
			n.What, n.State, n.At, n.End = tool, cmp.Or(status, n.State), stamp(started), stampPtr(ended)
			if result != nil {
				var m message.Message
				if err := read(result, &m); err != nil {
					return err
				}
				n.Error = m.Text
			}
			list = append(list, evidence.Fact{TraceNode: n})
			return nil
		})
	if err != nil || cell == "" {
		return list, err
	}
	return f.cells(ctx, e, cell, tool)
}

// cells returns a cell, and its python kernel if that began with it or ended under it. tool is the name of the call.
func (f *Facts) cells(ctx context.Context, e *neuron.Entry, cell, tool string) (list []evidence.Fact, err error) {
	id, err := ident.Parse(cell)
	if err != nil {
		return nil, nil // no cell of this program
	}
	var kernel string
	lost := false // its end is not the cell's own
	err = f.Reader.Query(ctx, `select kernel, substr(code, 1, 400), state, status, body, started_at, ended_at from cell where id = ?`, []any{cell},
		func(scan func(...any) error) error {
			n := wire.TraceNode{Kind: wire.NodeCell, ID: cell, Neuron: e.Target.String()}
			var code, status string
			var body []byte
			var started int64
			var ended *int64
			if err := scan(&kernel, &code, &n.State, &status, &body, &started, &ended); err != nil {
				return err
			}
			lost = status == string(pykernel.CellUnknown) || status == string(pykernel.CellNotStarted)
			n.What, n.State, n.At, n.End = firstLine(code), cmp.Or(status, n.State), stamp(started), stampPtr(ended)
			if body != nil {
				var b struct {
					Error *pykernel.CellFault `json:"error"`
					Note  string              `json:"note"`
				}
				if err := read(body, &b); err != nil {
					return err
				}
				n.Note = b.Note
				if b.Error != nil {
					n.Error = b.Error.Type + ": " + b.Error.Message
				}
			}
			if tool != "" && tool != "python" {
				n.What = tool + ": " + n.What
			}
			list = append(list, evidence.Fact{TraceNode: n, Outcome: ident.Derive(id, "done")})
			return nil
		})
	if err != nil || len(list) == 0 {
		return list, err
	}
	k, err := f.kernel(ctx, kernel, list[0].At, lost)
	return append(list, k...), err
}

// kernel returns the python kernel of a cell if it began with the cell, or if it was lost under it.
func (f *Facts) kernel(ctx context.Context, id string, from time.Time, lost bool) (list []evidence.Fact, err error) {
	err = f.Reader.Query(ctx, `select state, reason, created_at, ended_at from kernel where id = ?`, []any{id}, func(scan func(...any) error) error {
		n := wire.TraceNode{Kind: wire.NodeKernel, ID: id, What: "python kernel"}
		var created int64
		var ended *int64
		if err := scan(&n.State, &n.Note, &created, &ended); err != nil {
			return err
		}
		n.At, n.End = stamp(created), stampPtr(ended)
		if !n.At.Before(from) || lost {
			list = append(list, evidence.Fact{TraceNode: n})
		}
		return nil
	})
	return list, err
}

func read(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("cannot read a row: %w", err)
	}
	return nil
}

// firstLine returns the first line of a text that says something.
func firstLine(text string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more && strings.TrimSpace(rest) != "" {
		return line + " …"
	}
	return line
}

func stamp(micro int64) time.Time { return time.UnixMicro(micro).UTC() }

func stampPtr(micro *int64) *time.Time {
	if micro == nil {
		return nil
	}
	t := stamp(*micro)
	return &t
}
