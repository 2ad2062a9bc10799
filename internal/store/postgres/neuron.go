package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/window"
)

const (
	// selectActivation reads the row of a neuron and the turns after its checkpoint as of one moment.
	selectActivation = `select 0 as part, key, place, in_seq as seq, out_seq, 0 as pos, convert_to(tallies, 'UTF8') as incoming, null::bytea as outgoing, state_alias, state
			from neuron where id = ?1
		union all select 1, 0, 0, t.seq, 0, t.pos, t.incoming, t.outgoing, t.state_alias, t.state
			from neuron n join turn t on t.neuron = n.key and t.seq > n.in_seq where n.id = ?1
		order by part, seq, pos`
	selectSettled = `select 1 from turn where delivery_id = ?1 and neuron = ?2 union all
		select 1 from seen where neuron = ?2 and ?1 <= (select latest from neuron where key = ?2) and position(?1 in ids) > 0 limit 1`
	selectWindow = `select ids from (
		select segment as at, 0 as pos, ids from seen where neuron = ?1
		union all select seq, pos, delivery_id from turn where neuron = ?1 and delivery_id is not null
			and seq > (select in_seq from neuron where key = ?1)
	) w order by at, pos`
	// keyBlock is how many neuron keys a node reserves at once.
	keyBlock    = 1000
	reserveKeys = `insert into meta (name, value) values ('keys', ($1::bigint)::text)
		on conflict (name) do update set value = (meta.value::bigint + $1::bigint)::text returning value::bigint`
)

// Neuron reads the checkpoint of a neuron and moves it on by the turns after it, all as of one moment.
func (s *Store) Neuron(ctx context.Context, id neuron.ID) (neuron.NeuronRow, error) {
	n, err := activation(ctx, s.each, id)
	if err != nil {
		return neuron.NeuronRow{}, fmt.Errorf("cannot read neuron %s: %w", id, err)
	}
	return n, nil
}

func activation(ctx context.Context, read window.Read, id neuron.ID) (n neuron.NeuronRow, err error) {
	err = read(ctx, selectActivation, []any{id.String()}, func(scan func(...any) error) error {
		var part, key, place, seq, outSeq, pos int64
		var incoming, outgoing, state []byte
		var alias *string
		if err := scan(&part, &key, &place, &seq, &outSeq, &pos, &incoming, &outgoing, &alias, &state); err != nil {
			return err
		}
		if alias != nil {
			n.StateAlias, n.State = *alias, state
		}
		switch {
		case part == 0:
			n.Key, n.Place, n.InSeq, n.OutSeq = key, neuron.Place(place), uint64(seq), uint64(outSeq)
			return json.Unmarshal(incoming, &n.Tallies)
		case incoming == nil:
			return window.TallyOut(&n.Checkpoint, outgoing) // a step: its turn may have been retracted
		}
		n.InSeq = uint64(seq)
		n.SinceCheckpoint++
		return window.Tally(&n.Checkpoint, incoming, outgoing)
	})
	return n, err
}

// Entries reads a page of one feed.
func (s *Store) Entries(ctx context.Context, id neuron.ID, feed neuron.Feed, after uint64, limit int) (p neuron.Page, err error) {
	err = s.snapshot(ctx, func(read window.Read) error {
		n, err := activation(ctx, read, id)
		if err == nil {
			p, err = window.Page(ctx, read, s.limits, &n, feed, after, limit)
		}
		return err
	})
	if err != nil {
		return neuron.Page{}, fmt.Errorf("cannot read the journal of %s: %w", id, err)
	}
	return p, nil
}

// ReserveKeys takes the next block of keys; what a node does not use of it is lost.
func (s *Store) ReserveKeys(ctx context.Context) (first, last int64, err error) {
	err = s.control.use(ctx, func(c *session) error {
		last, err = c.number(ctx, reserveKeys, int64(keyBlock))
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("cannot reserve neuron keys: %w", err)
	}
	return last - keyBlock + 1, last, nil
}

// Settled looks for the delivery among the neuron's turns and in the segments of its ids.
func (s *Store) Settled(ctx context.Context, key int64, id ident.ID) (bool, error) {
	if crash.Off(crash.DedupeOff) {
		return false, nil
	}
	found := false
	err := s.each(ctx, selectSettled, []any{id[:], key}, func(func(...any) error) error {
		found = true
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("cannot look for delivery %s: %w", id, err)
	}
	return found, nil
}

// SettledIDs reads the segments of a neuron's ids and those of the turns after its checkpoint, which have none yet.
func (s *Store) SettledIDs(ctx context.Context, key int64, each func(ident.ID)) error {
	err := s.each(ctx, selectWindow, []any{key}, func(scan func(...any) error) error {
		var ids []byte
		if err := scan(&ids); err != nil {
			return err
		}
		for ; len(ids) >= ident.Size; ids = ids[ident.Size:] {
			each(ident.ID(ids[:ident.Size]))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot read the settled deliveries of neuron %d: %w", key, err)
	}
	return nil
}
