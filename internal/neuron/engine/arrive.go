package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"soma/ident"
	"soma/internal/neuron"
)

// readPage is how many rows a recovery reads and commits at once; idPage how many ids without their rows.
const (
	readPage = 256
	idPage   = 4096
)

// arrival is what is found at places that have just been gained.
type arrival struct {
	places neuron.PlaceSet
	ended  neuron.PlaceSet // their holder's life ended while it held them
	own    neuron.PlaceSet // that holder was this node
	lanes  []*lane         // none has begun
	runs   []neuron.Execution
}

// collect reads what waits at the places and commits what must be counted before anything runs. From here on commits there are
// under the new epochs; takeIn lets things run.
func (e *Engine) collect(ctx context.Context, taken map[neuron.Place]neuron.Taken, commit func(context.Context, []*neuron.Record) error) (*arrival, error) {
	g := &arrival{}
	f := e.Fence()
	var epochs neuron.Epochs
	if f.Places != nil {
		epochs = *f.Places
	}
	for p, t := range taken {
		epochs[p] = t.Epoch
		g.places.Add(p)
		if t.From != "" {
			g.ended.Add(p)
		}
		if t.From == e.node {
			g.own.Add(p)
		}
	}
	f.Places = &epochs
	e.mu.Lock()
	e.fence.Store(&f)
	e.loading = g.places
	alone := e.held.Or(g.places) == allPlaces && e.held.Len() == 0
	e.mu.Unlock()
	if err := e.loadOutbox(ctx, g, commit); err != nil {
		return nil, err
	}
	if !alone {
		// Other nodes commit rows for these places meanwhile. One that was committed behind the page that was being read may
		// come before one that a later page held: whoever has a row that the first pass did not see is read as of one moment.
		// And what senders of these places sent to places that are held here must be known before they send more.
		e.mu.Lock()
		held := e.held
		e.mu.Unlock()
		ids, err := e.unknown(ctx, ident.ID{}, held.Or(g.places))
		if err == nil {
			err = e.fetch(ctx, ids, g)
		}
		if err != nil {
			return nil, err
		}
	}
	return g, e.loadExecutions(ctx, g, commit)
}

// takeIn lets go what waits at gained places.
func (e *Engine) takeIn(ctx context.Context, g *arrival) error {
	for _, x := range g.runs { // before any turn that may cancel one
		e.recover(ctx, x)
	}
	e.mu.Lock()
	e.held = e.held.Or(g.places)
	e.loading = neuron.PlaceSet{}
	for _, l := range g.lanes {
		if l.items.Len() > 0 {
			e.head(l.items.Peek(), l.items.Peek().row)
		}
	}
	late := e.late
	e.late = nil
	e.mu.Unlock()
	e.calls.Begun()
	return e.fetch(ctx, late, nil)
}

func (e *Engine) loadOutbox(ctx context.Context, g *arrival, commit func(context.Context, []*neuron.Record) error) error {
	var after ident.ID
	for {
		rows, err := e.store.Outbox(ctx, g.places, after, readPage)
		if err != nil {
			return fmt.Errorf("cannot read the outbox: %w", err)
		}
		var group []*neuron.Record
		for i := range rows {
			row := &rows[i]
			after = row.ID
			if _, ran := e.wereRunning[row.ID]; ran && g.own.Has(row.Place) {
				delete(e.wereRunning, row.ID)
				e.charge(row)
				group = append(group, &neuron.Record{Place: row.Place, Neuron: row.Target, Retried: []neuron.OutboxRow{*row}})
			}
			e.mu.Lock()
			e.arrive(g, row)
			e.mu.Unlock()
		}
		if len(group) > 0 {
			if err := commit(ctx, group); err != nil {
				return fmt.Errorf("cannot count crashes: %w", err)
			}
		}
		if len(rows) < readPage {
			return nil
		}
	}
}

// charge counts an attempt that a crash ended.
func (e *Engine) charge(row *neuron.OutboxRow) {
	row.Crashes++
	row.Attempts = max(1, row.Attempts) + 1
	row.Due = e.now()
	if row.FirstTry.IsZero() {
		row.FirstTry = row.Due
	}
}

// arrive takes a row of a gained place into its lane, which begins later. One that crashed too often is settled without
// another try. What ran at a node that died is not known here, so each of its rows is unsure: its next attempt is counted
// before its handler runs.
func (e *Engine) arrive(g *arrival, row *neuron.OutboxRow) {
	it := e.addRow(row, false)
	if it == nil {
		return
	}
	if row.Crashes >= e.limits.Crashes {
		it.giveUp = neuron.CrashedTooOften
	}
	it.unsure = g.ended.Has(row.Place) && !g.own.Has(row.Place)
	if it.lane.items.Len() == 1 {
		g.lanes = append(g.lanes, it.lane)
	}
}

// loadExecutions reads the executions; idempotent ones get their next attempt, and those that are asked about their charge, in
// a commit before they run. A crash is charged where the life of the holder ended without a stop.
func (e *Engine) loadExecutions(ctx context.Context, g *arrival, commit func(context.Context, []*neuron.Record) error) error {
	var after ident.ID
	for {
		page, err := e.store.Executions(ctx, g.places, after, readPage)
		if err != nil {
			return fmt.Errorf("cannot read the executions: %w", err)
		}
		var group []*neuron.Record
		e.mu.Lock()
		for _, x := range page {
			after = x.ID
			p := e.placeOf(x.Neuron)
			e.execs[x.ID] = &ongoing{x.Attempt, p, func(error) {}}
			if e.drain.holds(x.OutcomeID()) {
				continue // its outcome is on its way
			}
			was := x
			if g.ended.Has(p) && (e.crashed || !g.own.Has(p)) && x.Policy != neuron.Once {
				x.Crashes++
			}
			if x.Policy == neuron.Idempotent {
				x.Attempt++
				x.StartedAt = e.now()
			}
			if x.Crashes != was.Crashes || x.Attempt != was.Attempt {
				group = append(group, &neuron.Record{Place: p, Neuron: x.Neuron, Started: []neuron.Execution{x}})
			}
			g.runs = append(g.runs, x)
		}
		e.mu.Unlock()
		if len(group) > 0 {
			if err := commit(ctx, group); err != nil {
				return fmt.Errorf("cannot count attempts of executions: %w", err)
			}
		}
		if len(page) < readPage {
			return nil
		}
	}
}

// unknown returns the ids after the given one of rows at the places that are not in memory.
func (e *Engine) unknown(ctx context.Context, after ident.ID, in neuron.PlaceSet) ([]ident.ID, error) {
	var found []ident.ID
	for {
		n := 0
		var page []ident.ID
		err := e.store.Query(ctx, neuron.SelectOutboxIDs, []any{after[:], int64(idPage)}, func(scan func(...any) error) error {
			var b []byte
			var p int64
			if err := scan(&b, &p); err != nil {
				return err
			}
			id, err := ident.FromBytes(b)
			if err != nil {
				return err
			}
			n, after = n+1, id
			if in.Has(neuron.Place(p)) {
				page = append(page, id)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("cannot read the ids of the outbox: %w", err)
		}
		found = append(found, e.notHeld(page)...)
		if n < idPage {
			return found, nil
		}
	}
}

// notHeld leaves those of the ids whose rows are not in memory.
func (e *Engine) notHeld(ids []ident.ID) []ident.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []ident.ID
	for _, id := range ids {
		if !e.drain.holds(id) {
			out = append(out, id)
		}
	}
	return out
}

// fetch takes rows into memory that other nodes have committed: into running lanes, and into those of g where that is given. A row that was sent before
// another one of its lane may be unknown too: so all rows of the same targets are looked at, as of one moment.
func (e *Engine) fetch(ctx context.Context, ids []ident.ID, g *arrival) error {
	ids = e.notHeld(ids)
	targets := map[neuron.ID]struct{}{}
	if err := e.rows(ctx, ids, func(row *neuron.OutboxRow) { targets[row.Target] = struct{}{} }); err != nil {
		return err
	}
	for target := range targets {
		if err := e.fetchTarget(ctx, target, g); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) fetchTarget(ctx context.Context, target neuron.ID, g *arrival) error {
	var ids []ident.ID
	err := e.store.Query(ctx, neuron.SelectOutboxTo, []any{target.String()}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		id, err := ident.FromBytes(b)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot read what waits for %s: %w", target, err)
	}
	var rows []*neuron.OutboxRow
	if err := e.rows(ctx, e.notHeld(ids), func(row *neuron.OutboxRow) { rows = append(rows, row) }); err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b *neuron.OutboxRow) int { return cmp.Compare(a.Seq, b.Seq) })
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range rows {
		switch {
		case e.drain.holds(row.ID):
		case g != nil && g.places.Has(row.Place):
			e.arrive(g, row)
		case e.held.Has(row.Place):
			e.admitRow(row)
		}
	}
	return nil
}

// rows reads the rows of the ids, page by page.
func (e *Engine) rows(ctx context.Context, ids []ident.ID, fn func(*neuron.OutboxRow)) error {
	for page := range slices.Chunk(ids, readPage) {
		rows, err := e.store.OutboxRows(ctx, page)
		if err != nil {
			return fmt.Errorf("cannot read %d outbox rows: %w", len(page), err)
		}
		for i := range rows {
			fn(&rows[i])
		}
	}
	return nil
}
