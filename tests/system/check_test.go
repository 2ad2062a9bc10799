//go:build crash

package system_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"soma/message"
	"soma/wire"
)

// outcome is what is compared between a disturbed run and an undisturbed one.
type outcome struct {
	hash    string
	entries []entry
	events  []wire.Event
}

// finish reads all of a work that has ended, from a running daemon.
func (k *work) finish(ctx context.Context) (outcome, error) {
	var o outcome
	history, err := k.transcript(ctx)
	if err != nil {
		return o, err
	}
	if err := message.CheckPaired(history); err != nil {
		return o, err
	}
	if o.entries, err = k.normal(history); err != nil {
		return o, err
	}
	if o.hash, err = hash(o.entries); err != nil {
		return o, err
	}
	o.events, err = k.fromEveryCursor(ctx)
	return o, err
}

// check compares the end of a work with the rows that a stopped daemon has left.
func (k *work) check(ctx context.Context, m *image, o outcome, extra map[int]attempts) error {
	rows, err := m.events(ctx, k.name)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(rows, o.events, same) {
		return errors.New("the feed is not what the rows say")
	}
	if !slices.EqualFunc(rows, k.shown, same) {
		return errors.New("what was shown through all deaths is not what the rows say")
	}
	for name := range cells {
		if n, err := k.runs(name); err != nil || n != 1 {
			return errors.Join(err, fmt.Errorf("cell %s ran %d times", name, n))
		}
	}
	return errors.Join(k.booked(ctx, m, extra), k.w.provider.unpaired())
}

// attempts counts attempts of one step: made by the daemon, which the ledger tells of, and sent to the provider.
type attempts struct{ made, sent int }

// booked compares the provider's log with the ledger. extra are the attempts of each step beyond the one that is needed; if
// it is nil, there may be one for each death.
func (k *work) booked(ctx context.Context, m *image, extra map[int]attempts) error {
	log := map[int][]asked{}
	for _, r := range k.w.provider.requests(k.input) {
		log[r.step] = append(log[r.step], r)
	}
	var paid, billed message.Usage
	left := k.w.deaths
	for i, in := range inputs {
		ledger, err := m.ledger(ctx, k.pids[i])
		if err != nil {
			return err
		}
		for step := in.first; step <= in.last; step++ {
			var rows []wire.LedgerRow
			for _, r := range ledger {
				if int(r.Step) == step-in.first+1 {
					rows = append(rows, r)
				}
			}
			for i, r := range rows {
				want := "lost"
				if i == len(rows)-1 {
					want = "done"
					paid = paid.Add(r.Usage)
				}
				if r.Attempt != i+1 || r.Outcome != want {
					return fmt.Errorf("row %d of step %d in the ledger is attempt %d, %s", i+1, step, r.Attempt, r.Outcome)
				}
			}
			sent := log[step]
			more := attempts{len(rows) - 1, len(sent) - 1}
			left -= more.made
			if more.sent < 0 || more.made < more.sent || left < 0 || extra != nil && more != extra[step] {
				return fmt.Errorf("step %d has %d requests and %d rows in the ledger", step, len(sent), len(rows))
			}
			billed = billed.Add(sent[len(sent)-1].usage)
		}
	}
	if paid != billed {
		return fmt.Errorf("the provider's usage is %+v, the ledger's %+v", billed, paid)
	}
	return nil
}
