package facts

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/neuron/evidence"
	"soma/internal/process"
	"soma/wire"
)

// Facts answers for the processes and sessions of one owner. It is safe for concurrent use.
type Facts struct {
	Owner  string
	Reader neuron.Reader
}

// Find says where a pid, a cell, a session or an input is to be looked for; of inputs with the same id the newest. ok is false
// where there is no such thing. The error is the store's.
func (f *Facts) Find(ctx context.Context, text string) (p evidence.Found, ok bool, err error) {
	for _, find := range []func(context.Context, string) (evidence.Found, bool, error){f.process, f.cell, f.session, f.input} {
		if p, ok, err = find(ctx, text); ok || err != nil {
			return p, ok, err
		}
	}
	return evidence.Found{}, false, nil
}

// process finds the last input of a process, or where that is not kept the newest delivery.
func (f *Facts) process(ctx context.Context, text string) (p evidence.Found, ok bool, err error) {
	pid, perr := ident.ParsePID(text)
	if perr != nil {
		return p, false, nil
	}
	var client *string
	var at *int64
	err = f.Reader.Query(ctx, `select (select client_id from input i where i.session = p.session and i.pid = p.pid order by i.id desc limit 1),
(select max(at) from input i where i.session = p.session and i.pid = p.pid) from process p where p.pid = ?`, []any{int64(pid)},
		func(scan func(...any) error) error { ok = true; return scan(&client, &at) })
	if err != nil || !ok {
		return p, false, err
	}
	p = evidence.Found{Is: "process", Neurons: []neuron.ID{f.of(process.ProcessKind, pid.String())}, Pick: newest}
	if client != nil {
		p.Pick = func(list []neuron.Entry) int {
			if i := admits(list, *client, time.UnixMicro(*at)); i >= 0 {
				return i
			}
			return newest(list)
		}
	}
	return p, true, nil
}

func (f *Facts) of(kind, key string) neuron.ID {
	return neuron.ID{Owner: f.Owner, Kind: kind, Key: key}
}

func newest(list []neuron.Entry) int { return len(list) - 1 }

// admits finds the delivery that brought an input; where it is not kept any more, one of the same causal tree: that began with
// the input's own delivery, just before the input was stored.
func admits(list []neuron.Entry, client string, at time.Time) int {
	best := -1
	for i := range list {
		e := &list[i]
		if e.Alias == process.AdmitAlias || e.Alias == process.ForwardAlias {
			var m struct {
				ClientID string `json:"client_id"`
			}
			if json.Unmarshal(e.Payload, &m) == nil && m.ClientID == client {
				return i
			}
			continue
		}
		began := e.Correlation.Time()
		if began.After(at) || at.Sub(began) > time.Minute {
			continue
		}
		if best < 0 || began.After(list[best].Correlation.Time()) {
			best = i
		}
	}
	return best
}

// cell finds the delivery that ended a cell, or the one whose turn has started it.
func (f *Facts) cell(ctx context.Context, text string) (p evidence.Found, ok bool, err error) {
	id, perr := ident.Parse(text)
	if perr != nil {
		return p, false, nil
	}
	var owner neuron.ID
	err = f.Reader.Query(ctx, `select owner from cell where id = ?`, []any{text}, func(scan func(...any) error) error {
		var s string
		if err := scan(&s); err != nil {
			return err
		}
		ok = true
		return owner.UnmarshalText([]byte(s))
	})
	starts := func(list []neuron.Entry) int {
		for i := range list {
			if startsCell(&list[i], text) {
				return i
			}
		}
		return -1
	}
	return evidence.Found{Is: wire.NodeCell, Delivery: ident.Derive(id, "done"), Neurons: []neuron.ID{owner}, Pick: starts}, ok, err
}

// startsCell reports whether the turn of a delivery has started a cell.
func startsCell(e *neuron.Entry, cell string) bool {
	switch e.Alias {
	case process.RunCellAlias:
		return cellIn(e.Payload) == cell
	case process.AnswerAlias:
		for i := range turn.MaxCalls {
			if ident.Derive(process.CallRow(e.ID, i), "cell").String() == cell {
				return true
			}
		}
	}
	return false
}

func cellIn(payload []byte) string {
	var m struct {
		Cell string `json:"cell"`
	}
	_ = json.Unmarshal(payload, &m) // what is no such message names no cell
	return m.Cell
}

// session finds the last input of a session's newest process, or of a session without agents the newest delivery.
func (f *Facts) session(ctx context.Context, text string) (p evidence.Found, ok bool, err error) {
	pid := int64(0)
	err = f.Reader.Query(ctx, `select coalesce((select max(pid) from process where session = s.id), 0) from session s where s.id = ?`, []any{text},
		func(scan func(...any) error) error { ok = true; return scan(&pid) })
	if err != nil || !ok {
		return p, false, err
	}
	if pid != 0 {
		p, ok, err = f.process(ctx, strconv.FormatInt(pid, 10))
	}
	p.Is, p.Neurons, p.Pick = "session", append(p.Neurons, f.of(process.SessionKind, text)), orNewest(p.Pick)
	return p, ok, err
}

func orNewest(pick func([]neuron.Entry) int) func([]neuron.Entry) int {
	if pick == nil {
		return newest
	}
	return pick
}

func (f *Facts) input(ctx context.Context, text string) (p evidence.Found, ok bool, err error) {
	var session string
	var pid ident.PID
	var at int64
	err = f.Reader.Query(ctx, `select session, pid, at from input where client_id = ? order by at desc limit 1`, []any{text},
		func(scan func(...any) error) error { ok = true; return scan(&session, &pid, &at) })
	p = evidence.Found{Is: wire.NodeInput, Neurons: []neuron.ID{f.of(process.ProcessKind, pid.String()), f.of(process.SessionKind, session)},
		Pick: func(list []neuron.Entry) int { return admits(list, text, time.UnixMicro(at)) }}
	return p, ok, err
}
