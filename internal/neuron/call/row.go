package call

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/neuron"
)

// State is where a call is.
type State string

// The states of a call. Asked leads to all others; More and Failed lead back to Asked; Left is for streams that were left.
const (
	Asked     State = "asked"
	More      State = "more" // a part of a stream was answered, others follow
	Completed State = "completed"
	Failed    State = "failed"
	Rejected  State = "rejected"
	Left      State = "left" // ended by the caller, the target has not disposed of it yet
)

// Row is a call without an end.
type Row struct {
	ID          ident.ID
	Cause       ident.ID // the delivery whose handler asks
	Correlation ident.ID
	Caller      neuron.ID // zero from outside
	Target      neuron.ID
	Alias       string
	Place       neuron.Place // of who asks, the target's from outside
	Ask         ident.ID     // the delivery that carries it now
	Part        int
	State       State
	Code        neuron.Code
	Deadline    time.Time
	Request     []byte
	Reply       []byte
	After       []byte
}

// answered reports whether part n has its answer.
func (r *Row) answered(n int) bool {
	return n < r.Part || n == r.Part && (r.State == More || r.State == Completed)
}

const (
	known   = `id, cause, correlation, caller, target, alias, place, ask, part, state, code, deadline`
	columns = known + `, request, reply, after`

	insertRow  = `insert into call (` + columns + `) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	selectRow  = `select ` + columns + ` from call where id = ?`
	selectOpen = `select ` + known + `, null, null, null from call where id > ? order by id limit ?`
	// selectWaits reads for whom a neuron waits.
	selectWaits = `select id, target from call where caller = ? and state = 'asked'`
	updateAsk   = `update call set ask = ?, part = ?, state = 'asked', code = '', deadline = ? where id = ? and ask = ?`
	updateReply = `update call set state = ?, reply = ?, after = ? where id = ? and ask = ? and state = 'asked'`
	updateCode  = `update call set state = ?, code = ? where id = ? and ask = ? and state = 'asked'`
	updateLeft  = `update call set state = 'left', ask = ?, deadline = ? where id = ?`
	deleteRow   = `delete from call where id = ?`
	insertPart  = `insert into call_part (call, part, reply) values (?, ?, ?)`
	selectPart  = `select reply from call_part where call = ? and part = ?`
	deleteParts = `delete from call_part where call = ?`
)

// errGone: the caller has ended the call meanwhile, or asked again.
var errGone = errors.New("the call is no longer open")

// op is a statement with its arguments. Those that are bytes belong to it: methods of Row that make one have a copy of the row.
type op struct {
	sql  string
	args []any
}

func (o op) SQL() string { return o.sql }
func (o op) Args() []any { return o.args }

// shared is an op on a row that caller and target change.
type shared struct {
	op
	id ident.ID
}

func (s shared) LockKey() string { return "call/" + s.id.String() }

// guarded is a shared op that needs the row.
type guarded struct{ shared }

func (guarded) Guard() error { return errGone }

func (r Row) insert() neuron.Op {
	return op{insertRow, []any{r.ID[:], r.Cause[:], r.Correlation[:], r.Caller.String(), r.Target.String(), r.Alias, int64(r.Place),
		r.Ask[:], int64(r.Part), string(r.State), string(r.Code), r.Deadline.UnixMicro(), r.Request, nil, nil}}
}

// again asks once more, or for the next part.
func (r Row) again(ask ident.ID, part int, deadline time.Time) neuron.Op {
	return guarded{shared{op{updateAsk, []any{ask[:], int64(part), deadline.UnixMicro(), r.ID[:], r.Ask[:]}}, r.ID}}
}

// reply answers what the delivery ask carries.
func (r Row) reply(ask ident.ID, state State, reply, after []byte) neuron.Op {
	return guarded{shared{op{updateReply, []any{string(state), bytes(reply), bytes(after), r.ID[:], ask[:]}}, r.ID}}
}

func (r Row) part(items []byte) neuron.Op {
	return op{insertPart, []any{r.ID[:], int64(r.Part), items}}
}

// leave keeps the row until the target has disposed of the stream.
func (r Row) leave(ask ident.ID, deadline time.Time) []neuron.Op {
	return []neuron.Op{
		shared{op{updateLeft, []any{ask[:], deadline.UnixMicro(), r.ID[:]}}, r.ID},
		op{deleteParts, []any{r.ID[:]}},
	}
}

// Forget deletes a call.
func (r Row) Forget() []neuron.Op {
	return []neuron.Op{shared{op{deleteRow, []any{r.ID[:]}}, r.ID}, op{deleteParts, []any{r.ID[:]}}}
}

// Refuse tells the caller of a request that its delivery was settled with code. The engine adds it to the record that settles
// such a delivery. It changes nothing where nobody waits any more.
func Refuse(d *neuron.Delivery, code neuron.Code) neuron.Op {
	state := Rejected
	if code == neuron.CallFailed || code == TooLate {
		state = Failed
	}
	id, ask := d.Request.ID, d.ID
	return shared{op{updateCode, []any{string(state), string(code), id[:], ask[:]}}, id}
}

// bytes keeps a nil slice null.
func bytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// queries are neuron.Turn.Query and its like.
type queries func(sql string, args []any, row func(scan func(dest ...any) error) error) error

func read(query queries, id ident.ID) (r Row, found bool, err error) {
	err = query(selectRow, []any{id[:]}, func(scan func(...any) error) error {
		found = true
		return r.scan(scan)
	})
	if err != nil {
		return r, false, fmt.Errorf("cannot read call %s: %w", id, err)
	}
	return r, found, nil
}

func (r *Row) scan(scan func(...any) error) error {
	var id, cause, correlation, ask []byte
	var caller, target, state, code string
	var place, part, deadline int64
	err := scan(&id, &cause, &correlation, &caller, &target, &r.Alias, &place, &ask, &part, &state, &code, &deadline, &r.Request, &r.Reply, &r.After)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		to   *ident.ID
		from []byte
	}{{&r.ID, id}, {&r.Cause, cause}, {&r.Correlation, correlation}, {&r.Ask, ask}} {
		if *f.to, err = ident.FromBytes(f.from); err != nil {
			return err
		}
	}
	if err := r.Caller.UnmarshalText([]byte(caller)); err != nil {
		return err
	}
	r.Place, r.Part, r.State, r.Code, r.Deadline = neuron.Place(place), int(part), State(state), neuron.Code(code), time.UnixMicro(deadline).UTC()
	return r.Target.UnmarshalText([]byte(target))
}

// Pending reads up to limit calls without an end, and not what they hold, in order of id after the given one.
func Pending(ctx context.Context, from neuron.Reader, after ident.ID, limit int) (rows []Row, err error) {
	err = from.Query(ctx, selectOpen, []any{after[:], int64(limit)}, func(scan func(...any) error) error {
		var r Row
		err := r.scan(scan)
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the open calls: %w", err)
	}
	return rows, nil
}
