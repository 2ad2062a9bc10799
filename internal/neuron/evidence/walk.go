package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/wire"
)

// walk collects the deliveries of one correlation from the journals of the neurons that they touch.
type walk struct {
	e           *Evidence
	correlation ident.ID
	items       map[ident.ID]*item
	order       []*item // as found
	journals    map[neuron.ID]*journal
	queue       []neuron.ID
	asked       map[ident.ID]bool // causes that were looked for
	elsewhere   map[ident.ID]bool // causes that belong to another correlation
	gaps        []wire.TraceGap
	cut         string
}

// item is one delivery.
type item struct {
	entry   neuron.Entry
	noted   bool        // an emission, or a fact about a call: nothing brings it to a target
	settled bool        // its turn is known; otherwise it is known from its sender or a row of its own
	ended   neuron.Code // the fact in its sender's feed
	waits   bool        // it has an outbox row
	due     time.Time
	alarm   bool
	tries   int
	dead    bool
	why     string
	// receivers are the deliveries of an emission, as far as they can be told.
	receivers []ident.ID
	found     int // of them
}

// journal is what is kept of a neuron's incoming feed.
type journal struct{ in []neuron.Entry }

// facts are the entries of an outgoing feed that are no deliveries.
var facts = []string{call.RequestedAlias, call.CompletedAlias, call.FailedAlias, call.RejectedAlias, call.AbandonedAlias}

// add notes a delivery of this correlation; settled says that the entry is that of its turn.
func (w *walk) add(entry *neuron.Entry, settled bool) {
	it := w.items[entry.ID]
	if it == nil {
		if len(w.items) >= wire.MaxTraceNodes {
			w.cut = fmt.Sprintf("more than %d deliveries", wire.MaxTraceNodes)
			return
		}
		it = &item{entry: *entry, noted: entry.Emitted != nil || slices.Contains(facts, entry.Alias)}
		w.items[entry.ID], w.order = it, append(w.order, it)
	}
	if settled {
		it.entry, it.settled = *entry, true
	}
	if !entry.Target.IsZero() {
		w.queue = append(w.queue, entry.Target)
	}
	if !entry.Caller.IsZero() {
		w.queue = append(w.queue, entry.Caller)
	}
}

// collect walks until nothing new is found.
func (w *walk) collect(ctx context.Context) error {
	for {
		for len(w.queue) > 0 {
			n := w.queue[0]
			w.queue = w.queue[1:]
			if err := w.visit(ctx, n); err != nil {
				return err
			}
		}
		if err := w.seekReceivers(ctx); err != nil {
			return err
		}
		if err := w.seekCauses(ctx); err != nil || len(w.queue) == 0 {
			return err
		}
	}
}

// seekReceivers looks for the deliveries of emissions. The journals do not say to whom these went: those are tried who would
// get them now.
func (w *walk) seekReceivers(ctx context.Context) error {
	for _, it := range slices.Clone(w.order) {
		if it.entry.Emitted == nil || w.asked[it.entry.ID] {
			continue
		}
		w.asked[it.entry.ID] = true
		d := it.entry.Delivery
		if err := w.e.fill(ctx, &d); err != nil {
			return err
		}
		receivers, err := w.e.o.Engine.Receivers(ctx, &d)
		var refused *neuron.Refusal
		if errors.As(err, &refused) {
			continue // the rule of today refuses what was emitted then
		}
		if err != nil {
			return err
		}
		for _, r := range receivers {
			id := r.DeliveryID(d.ID)
			it.receivers = append(it.receivers, id)
			entry, settled, err := w.e.delivery(ctx, id)
			if err != nil {
				return err
			}
			if entry != nil {
				it.found++
				w.add(entry, settled)
			}
		}
	}
	return nil
}

// visit reads both feeds of a neuron once.
func (w *walk) visit(ctx context.Context, n neuron.ID) error {
	if w.journals[n] != nil {
		return nil
	}
	if len(w.journals) >= wire.MaxTraceNeurons {
		w.cut = fmt.Sprintf("more than %d neurons", wire.MaxTraceNeurons)
		return nil
	}
	in, err := w.e.o.Engine.Read(ctx, n, neuron.In, 0, 0)
	if err != nil {
		return err
	}
	out, err := w.e.o.Engine.Read(ctx, n, neuron.Out, 0, 0)
	if err != nil {
		return err
	}
	w.journals[n] = &journal{in.Entries}
	for i := range in.Entries {
		if e := &in.Entries[i]; e.Correlation == w.correlation {
			w.add(e, true)
		}
	}
	for i := range out.Entries {
		switch e := &out.Entries[i]; {
		case e.Correlation != w.correlation:
		case e.Ended == nil:
			w.add(e, false)
		case w.items[e.Ended.ID] != nil:
			w.items[e.Ended.ID].ended = e.Ended.Code
		}
	}
	w.gap(n, wire.FeedIn, &in)
	w.gap(n, wire.FeedOut, &out)
	return nil
}

// gap notes that a feed has lost entries which may have belonged here: those that are kept begin after the correlation did.
func (w *walk) gap(n neuron.ID, feedName string, p *neuron.Page) {
	if p.First > 1 && (len(p.Entries) == 0 || p.Entries[0].At.After(w.began())) {
		w.gaps = append(w.gaps, wire.TraceGap{Neuron: n.String(), Feed: feedName, First: p.First})
	}
}

// began is when the correlation did, as far as that can be known: an id that a client has chosen has no time.
func (w *walk) began() time.Time {
	if at := w.correlation.Time(); at.Year() > 1970 {
		return at
	}
	return w.order[0].entry.At
}

// seekCauses looks for the causes that no journal has shown, by their ids, and for the first delivery of all.
func (w *walk) seekCauses(ctx context.Context) error {
	wanted := []ident.ID{w.correlation}
	for _, it := range w.order {
		wanted = append(wanted, it.entry.Causation)
	}
	for _, id := range wanted {
		if id.IsZero() || w.asked[id] || w.items[id] != nil && w.items[id].settled {
			continue
		}
		w.asked[id] = true
		entry, err := w.e.turn(ctx, id, id)
		switch {
		case err != nil:
			return err
		case entry == nil:
		case entry.Correlation == w.correlation:
			w.add(entry, true)
		default:
			w.elsewhere[id] = true
		}
	}
	return nil
}

// settle finds out how each delivery stands that has not been settled by a handler.
func (w *walk) settle(ctx context.Context) error {
	for _, it := range w.order {
		if it.noted || it.settled && it.entry.Settled == "" {
			continue
		}
		id := it.entry.ID
		var d neuron.Delivery
		if !it.settled {
			entry, err := w.e.turn(ctx, id, id)
			if err != nil {
				return err
			}
			if entry != nil {
				it.entry, it.settled = *entry, true
			}
		}
		if !it.settled {
			var due int64
			found, err := w.e.one(ctx, &d, selectWaiting, []any{id[:]}, &due, &it.tries, &it.alarm)
			if err != nil {
				return err
			}
			it.waits, it.due = found, time.UnixMicro(due).UTC()
			continue
		}
		var code string
		found, err := w.e.one(ctx, &d, selectLetter, []any{id[:]}, &code, &it.why, &it.tries)
		if err != nil {
			return err
		}
		it.dead = found
	}
	return nil
}

// running returns the executions of this correlation that have not ended.
func (w *walk) running(ctx context.Context) (list []neuron.Execution, err error) {
	for n := range w.journals {
		err = w.e.o.Reader.Query(ctx, selectRunning, []any{n.String()}, func(scan func(...any) error) error {
			var b []byte
			var x neuron.Execution
			if err := scan(&b); err != nil {
				return err
			}
			if err := decode(b, &x); err != nil {
				return err
			}
			if x.Correlation == w.correlation {
				list = append(list, x)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
