package facts

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
	"soma/internal/neuron/evidence"
	"soma/internal/process"
	"soma/internal/pykernel"
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
	var row []byte
	err = f.Reader.Query(ctx, `select i.client_id, i.id from process p left join input i on i.session = p.session and i.pid = p.pid and i.mode <> 'wake'
where p.pid = ? order by i.id desc limit 1`, []any{int64(pid)}, func(scan func(...any) error) error { ok = true; return scan(&client, &row) })
	if err != nil || !ok {
		return p, false, err
	}
	p = evidence.Found{Is: "process", Neurons: []neuron.ID{f.of(process.ProcessKind, pid.String())}, Pick: newest}
	if client != nil {
		p.Delivery, err = f.admitting(ctx, row, *client)
	}
	return p, true, err
}

func (f *Facts) of(kind, key string) neuron.ID {
	return neuron.ID{Owner: f.Owner, Kind: kind, Key: key}
}

func newest(list []neuron.Entry) int { return len(list) - 1 }

// nearby bounds the deliveries among which that of an input is looked for.
const nearby = 2000

// admitting finds the delivery whose turn has stored an input: its id was made just before that of the input's row. It is
// zero where it is not kept any more.
func (f *Facts) admitting(ctx context.Context, row []byte, client string) (found ident.ID, err error) {
	err = f.Reader.Query(ctx, `select incoming from turn where delivery_id < ? order by delivery_id desc limit ?`, []any{row, int64(nearby)},
		func(scan func(...any) error) error {
			var b []byte
			var e neuron.Entry
			if err := scan(&b); err != nil {
				return err
			}
			if !found.IsZero() || !bytes.Contains(b, []byte(client)) {
				return nil
			}
			if err := read(b, &e); err != nil {
				return err
			}
			if admits(&e, client) {
				found = e.ID
			}
			return nil
		})
	return found, err
}

// admits reports whether a delivery brought an input.
func admits(e *neuron.Entry, client string) bool {
	var m struct {
		ClientID string `json:"client_id"`
		Job      string `json:"job"`
	}
	switch e.Alias {
	case process.AdmitAlias, process.ForwardAlias:
		return json.Unmarshal(e.Payload, &m) == nil && m.ClientID == client
	case pykernel.JobEndedAlias: // its wake has the job's id
		return json.Unmarshal(e.Payload, &m) == nil && m.Job == client
	}
	return false
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
	var row []byte
	err = f.Reader.Query(ctx, `select session, pid, id from input where client_id = ? order by id desc limit 1`, []any{text},
		func(scan func(...any) error) error { ok = true; return scan(&session, &pid, &row) })
	if err != nil || !ok {
		return p, false, err
	}
	p = evidence.Found{Is: wire.NodeInput, Neurons: []neuron.ID{f.of(process.ProcessKind, pid.String()), f.of(process.SessionKind, session)},
		Pick: func(list []neuron.Entry) int {
			return slices.IndexFunc(list, func(e neuron.Entry) bool { return admits(&e, text) })
		}}
	p.Delivery, err = f.admitting(ctx, row, text)
	return p, true, err
}
