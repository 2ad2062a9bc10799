package neuron

import (
	"context"
	"fmt"
)

// What an erasure reads and deletes. Rows since the checkpoint go with the neuron's own, so that it can be read in between.
const (
	selectUnderWay = `select (select count(*) from outbox where target = ?) + (select count(*) from execution where neuron = ?)
+ (select count(*) from call where caller = ? or target = ?)`
	selectKey   = `select key, in_seq from neuron where id = ?`
	selectTurns = `select seq from turn where neuron = ? order by seq limit ?`
	deleteTurns = `delete from turn where neuron = ? and seq <= ?`
	deleteSeen  = `delete from seen where neuron = ?`
	deleteRow   = `delete from neuron where key = ?`
)

type deletion struct {
	sql  string
	args []any
}

func (d *deletion) SQL() string { return d.sql }
func (d *deletion) Args() []any { return d.args }

// Erasure returns the writes of one commit that delete what is stored of a neuron, about limit rows; more says that they leave some
// of it for a next one. Of a neuron that has no row there are none. It must not run meanwhile: the engine's Erase sees to
// that. Errors: ErrBusy where a delivery, an alarm, an execution or a call of it is under way, the store's.
func Erasure(ctx context.Context, r Reader, id ID, limit int) (ops []Op, more bool, err error) {
	text := id.String()
	open, key, kept := 0, int64(0), int64(0)
	err = r.Query(ctx, selectUnderWay, []any{text, text, text, text}, func(scan func(...any) error) error { return scan(&open) })
	if err == nil && open > 0 {
		return nil, false, ErrBusy
	}
	if err == nil {
		err = r.Query(ctx, selectKey, []any{text}, func(scan func(...any) error) error { return scan(&key, &kept) })
	}
	n, last := 0, int64(0)
	if err == nil && key != 0 {
		err = r.Query(ctx, selectTurns, []any{key, int64(limit)}, func(scan func(...any) error) error { n++; return scan(&last) })
	}
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("cannot look at %s: %w", id, err)
	case key == 0:
		return nil, false, nil
	case n == limit && last <= kept:
		return []Op{&deletion{deleteTurns, []any{key, last}}}, true, nil
	}
	return []Op{
		&deletion{deleteTurns, []any{key, int64(1) << 62}}, &deletion{deleteSeen, []any{key}}, &deletion{deleteRow, []any{key}},
	}, false, nil
}
