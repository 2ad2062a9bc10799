package call

import (
	"encoding/json"
	"fmt"

	"soma/internal/neuron"
)

// Iterator pulls the items of a stream. It belongs to the handler that opened it and to its attempt; a handler that ends
// without Close has left the stream. One that runs again gets the same parts again before it asks for more.
type Iterator[Item any] struct {
	a     *asking
	part  int // the last one that was fetched
	items []Item
	over  bool
	err   error
}

// Pull begins a stream. Nothing is asked before the first Next. Errors are those of Do.
func Pull[Req, Item any](t *neuron.Turn, c Stream[Req, Item], target neuron.ID, req Req) (*Iterator[Item], error) {
	a, err := open(t, &c.about, target, req)
	if err != nil {
		return nil, err
	}
	it := &Iterator[Item]{a: a}
	t.AtEnd(it.Close)
	return it, nil
}

// Next returns the next item; ok is false at the end. Errors are those of Do, and stay.
func (it *Iterator[Item]) Next() (item Item, ok bool, err error) {
	for len(it.items) == 0 {
		if it.over {
			return item, false, it.err
		}
		if it.part == it.a.row.Part && it.part > 0 && it.a.row.State == Completed {
			it.finish(CompletedAlias, "")
			continue
		}
		if it.part == maxParts {
			it.finish(AbandonedAlias, TooMany)
			it.err = neuron.SettleAs(TooMany, fmt.Errorf("a stream of more than %d parts", maxParts))
			continue
		}
		if err := it.fetch(it.part + 1); err != nil {
			// What get has not ended is neither left nor ended: the next attempt asks again.
			it.over, it.err = true, err
		}
	}
	item, it.items = it.items[0], it.items[1:]
	return item, true, nil
}

func (it *Iterator[Item]) fetch(n int) error {
	a := it.a
	if err := a.get(n); err != nil {
		return err
	}
	var b []byte
	err := a.side.Query(selectPart, []any{a.row.ID[:], int64(n)}, func(scan func(...any) error) error { return scan(&b) })
	if err == nil && b == nil {
		err = errGone
	}
	if err != nil {
		return fmt.Errorf("cannot read part %d of call %s: %w", n, a.row.ID, err)
	}
	it.part = n
	if err := json.Unmarshal(b, &it.items); err != nil {
		return neuron.SettleAs(neuron.Undecodable, fmt.Errorf("part of %s: %w", a.row.Alias, err))
	}
	return nil
}

// Close ends a stream. One that is left before Next has told its end is recorded as abandoned, and its target disposes of
// it. More than one Close does nothing.
func (it *Iterator[Item]) Close() {
	if it.over {
		return
	}
	if !it.a.known {
		it.over = true // nobody was asked
		return
	}
	it.finish(AbandonedAlias, "")
}

func (it *Iterator[Item]) finish(alias string, code neuron.Code) {
	it.a.end(alias, code)
	it.over, it.items = true, nil
}
