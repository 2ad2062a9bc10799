package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

const (
	selectTurn      = `select incoming from turn where delivery_id >= ? and delivery_id <= ? order by delivery_id desc limit 1`
	selectWaiting   = `select delivery, due, attempts, alarm from outbox where id = ?`
	selectLetter    = `select delivery, code, error, attempts from dead_letter where id = ?`
	selectExecution = `select body from execution where id = ?`
	selectRunning   = `select body from execution where neuron = ? order by id limit 64`
	selectStarts    = `select id, epoch, started_at from node where started_at > ? and started_at <= ? order by started_at`
)

// one runs a query for at most one row that ends with a JSON body as its first column, and reports whether there was one.
func (e *Evidence) one(ctx context.Context, into any, sql string, args []any, more ...any) (found bool, err error) {
	err = e.o.Reader.Query(ctx, sql, args, func(scan func(...any) error) error {
		var b []byte
		if err := scan(append([]any{&b}, more...)...); err != nil {
			return err
		}
		found = true
		return json.Unmarshal(b, into)
	})
	return found, err
}

// turn returns the newest settled delivery with an id from first through last, nil if there is none.
func (e *Evidence) turn(ctx context.Context, first, last ident.ID) (*neuron.Entry, error) {
	var entry neuron.Entry
	found, err := e.one(ctx, &entry, selectTurn, []any{first[:], last[:]})
	if err != nil || !found {
		return nil, err
	}
	return &entry, nil
}

// start finds the delivery that a trace begins with, and says what the asked text names. The error is a *wire.Error with
// not_found where there is none.
func (e *Evidence) start(ctx context.Context, asked string) (entry *neuron.Entry, is string, err error) {
	if id, ok := parse(asked); ok {
		if entry, is, err = e.byID(ctx, id); entry != nil || err != nil {
			return entry, is, err
		}
	}
	found, ok, err := e.o.Domain.Find(ctx, asked)
	switch {
	case err != nil:
		return nil, "", err
	case !ok:
		return nil, "", wire.Errorf(wire.NotFound, "cannot trace %.128q: nothing is known of it", asked).
			Do("give a pid or the id of a delivery, input, execution, cell or session; what the journals do not keep any more has no trace")
	}
	if !found.Delivery.IsZero() {
		if entry, err = e.turn(ctx, found.Delivery, found.Delivery); entry != nil || err != nil {
			return entry, found.Is, err
		}
	}
	begins := ""
	for _, n := range found.Neurons {
		p, err := e.o.Engine.Read(ctx, n, neuron.In, 0, 0)
		if err != nil {
			return nil, "", err
		}
		if i := found.Pick(p.Entries); i >= 0 {
			return &p.Entries[i], found.Is, nil
		}
		if p.Last > 0 {
			begins = fmt.Sprintf("; the journal of %s begins with %d of %d", n, p.First, p.Last)
		}
	}
	return nil, "", wire.Errorf(wire.NotFound, "cannot trace %s %.128s: its deliveries are not kept any more or have not come yet%s", found.Is, asked, begins).
		Do("see soma journal")
}

// parse reads the text form of an id, or of an execution's attempt: ID.ATTEMPT.
func parse(s string) (ident.ID, bool) {
	s, attempt, has := strings.Cut(s, ".")
	id, err := ident.Parse(s)
	if err != nil {
		return id, false
	}
	if !has {
		return id, true
	}
	n, err := strconv.ParseUint(attempt, 10, 16)
	return id.WithAttempt(uint16(n)), err == nil
}

// byID finds what an id made here names: a delivery that was settled, waits or has died, or an execution.
func (e *Evidence) byID(ctx context.Context, id ident.ID) (*neuron.Entry, string, error) {
	entry, _, err := e.delivery(ctx, id)
	if entry != nil || err != nil {
		return entry, wire.NodeDelivery, err
	}
	var x neuron.Execution
	base := id.WithAttempt(0)
	found, err := e.one(ctx, &x, selectExecution, []any{base[:]})
	if err != nil {
		return nil, "", err
	}
	if found {
		entry, err = e.turn(ctx, x.Causation, x.Causation)
		return entry, wire.NodeExecution, err
	}
	if id == base { // one that has ended: its outcomes carry its id
		entry, err = e.turn(ctx, base, base.WithAttempt(1<<16-1))
	}
	return entry, wire.NodeExecution, err
}

// delivery finds one that was settled, waits or has died; nil if it is none of them.
func (e *Evidence) delivery(ctx context.Context, id ident.ID) (entry *neuron.Entry, settled bool, err error) {
	if entry, err = e.turn(ctx, id, id); entry != nil || err != nil {
		return entry, true, err
	}
	for _, sql := range []string{selectWaiting, selectLetter} {
		entry = new(neuron.Entry)
		var a, b, c any
		found, err := e.one(ctx, entry, sql, []any{id[:]}, &a, &b, &c)
		if found || err != nil {
			return entry, false, err
		}
	}
	return nil, false, nil
}

// fill reads a payload that is kept apart because of its size.
func (e *Evidence) fill(ctx context.Context, d *neuron.Delivery) error {
	if len(d.Payload) > 0 || d.Content.IsZero() {
		return nil
	}
	return e.o.Reader.Query(ctx, neuron.SelectContent, []any{d.Content[:]}, func(scan func(...any) error) error {
		return scan((*[]byte)(&d.Payload))
	})
}
