package window

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"soma/internal/neuron"
)

const (
	selectInSizes  = `select seq, length(incoming) from turn where neuron = ? and seq >= ? and incoming is not null order by seq desc`
	selectOutSizes = `select seq, out_first, length(outgoing) from turn where neuron = ? and outgoing is not null order by seq desc, pos desc`
	selectIn       = `select incoming from turn where neuron = ? and seq >= ? and incoming is not null order by seq limit ?`
	selectOutOf    = `select outgoing from turn where neuron = ? and seq = ? and out_first = ? and outgoing is not null`
	selectOut      = `select out_first, outgoing from turn where neuron = ? and seq >= ? and outgoing is not null order by seq, pos`
)

// Texts returns the texts that Page reads with, for an engine that prepares them.
func Texts() []string {
	return []string{selectInSizes, selectOutSizes, selectIn, selectOutOf, selectOut}
}

// Read runs a query of this room and calls row for each row, with a scan function as of database/sql. All queries of one
// page see one moment.
type Read func(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error

// Page reads a page of one feed of the neuron n, as it is at the moment of read. Both feeds are views of the turn rows; where
// the visible window begins is computed here from what is stored: at most Limits.JournalEntries entries and JournalBytes
// bytes of them, the newest always.
func Page(ctx context.Context, read Read, l neuron.Limits, n *neuron.NeuronRow, feed neuron.Feed, after uint64, limit int) (neuron.Page, error) {
	var p neuron.Page
	v := view{read: read, limits: l, key: n.Key, after: after, limit: max(limit, 0)}
	switch feed {
	case neuron.In:
		p.Last, p.Tallies = n.InSeq, n.Tallies.In
		err := v.incoming(ctx, &p)
		return p, err
	case neuron.Out:
		p.Last, p.Tallies = n.OutSeq, n.Tallies.Out
		err := v.outgoing(ctx, &p)
		return p, err
	}
	return p, fmt.Errorf("no feed %d", feed)
}

// view reads one feed within a snapshot.
type view struct {
	read   Read
	limits neuron.Limits
	key    int64
	after  uint64
	limit  int
}

// from returns the first sequence to read, and tells the page whether that is a reset.
func (v *view) from(p *neuron.Page) uint64 {
	if v.after+1 < p.First {
		p.Reset = true
		return p.First
	}
	return v.after + 1
}

func (v *view) incoming(ctx context.Context, p *neuron.Page) error {
	l := v.limits
	p.First = p.Last + 1
	var lowest uint64
	if p.Last > uint64(l.JournalEntries) {
		lowest = p.Last - uint64(l.JournalEntries) + 1
	}
	room := l.JournalBytes
	err := v.read(ctx, selectInSizes, []any{v.key, int64(lowest)}, func(scan func(...any) error) error {
		var seq uint64
		var size int
		if err := scan(&seq, &size); err != nil {
			return err
		}
		// A gap is where rows stayed for what they sent.
		if room -= size; room < 0 && seq < p.Last || seq+1 < p.First {
			return errFull
		}
		p.First = seq
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return err
	}
	seq := v.from(p)
	return v.read(ctx, selectIn, []any{v.key, int64(seq), v.limit}, func(scan func(...any) error) error {
		var b sql.RawBytes
		if err := scan(&b); err != nil {
			return err
		}
		return add(p, &seq, b)
	})
}

// outgoing does the same where a row holds several entries: the window may begin within one.
func (v *view) outgoing(ctx context.Context, p *neuron.Page) error {
	l := v.limits
	p.First = p.Last + 1
	entries, room := uint64(l.JournalEntries), l.JournalBytes
	var rows []sent // newest first
	err := v.read(ctx, selectOutSizes, []any{v.key}, func(scan func(...any) error) error {
		var r sent
		var size int
		if err := scan(&r.turn, &r.first, &size); err != nil {
			return err
		}
		rows = append(rows, r)
		n := p.First - r.first
		if n > entries || size > room {
			return errFull
		}
		entries -= n
		room -= size
		p.First = r.first
		return nil
	})
	if errors.Is(err, errFull) {
		err = v.within(ctx, p, rows[len(rows)-1], entries, room)
	}
	if err != nil {
		return err
	}
	start := v.from(p)
	i := slices.IndexFunc(rows, func(r sent) bool { return r.first <= start })
	if i < 0 || start > p.Last {
		return nil
	}
	left := v.limit
	err = v.read(ctx, selectOut, []any{v.key, int64(rows[i].turn)}, func(scan func(...any) error) error {
		var b sql.RawBytes
		var seq uint64
		if err := scan(&seq, &b); err != nil {
			return err
		}
		var list []json.RawMessage
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		for _, e := range list {
			if seq < start {
				seq++
				continue
			}
			if left--; left < 0 {
				return errFull
			}
			if err := add(p, &seq, e); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// within moves the window into a row that does not fit whole.
func (v *view) within(ctx context.Context, p *neuron.Page, r sent, entries uint64, room int) error {
	var list []json.RawMessage
	err := v.read(ctx, selectOutOf, []any{v.key, int64(r.turn), int64(r.first)}, func(scan func(...any) error) error {
		var b sql.RawBytes
		if err := scan(&b); err != nil {
			return err
		}
		return json.Unmarshal(b, &list)
	})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(list) {
		if room -= len(e); entries == 0 || room < 0 && p.First <= p.Last {
			return nil
		}
		entries--
		p.First--
	}
	return nil
}

func add(p *neuron.Page, seq *uint64, b []byte) error {
	var e neuron.Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	p.Entries, p.Seqs = append(p.Entries, e), append(p.Seqs, *seq)
	*seq++
	return nil
}

// errFull ends a walk over rows.
var errFull = errors.New("window full")

// sent is a turn that has outgoing entries.
type sent struct {
	turn, first uint64
}
