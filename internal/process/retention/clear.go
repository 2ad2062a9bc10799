package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process"
)

// Clear deletes what is beyond its bounds, in bounded commits. What concerns no session is cleared by the node that holds place 0.
func (k *Keeper) Clear(ctx context.Context) error {
	k.clearing.Lock()
	defer k.clearing.Unlock()
	if !k.holdsAny() {
		return nil
	}
	errs := []error{k.clearSessions(ctx), k.clearPykernels(ctx)}
	if k.o.Holds(0) {
		errs = append(errs, k.clearDeadLetters(ctx), k.clearSums(ctx), k.clearPayloads(ctx))
	}
	return errors.Join(append(errs, k.clearStrangers(ctx))...)
}

func (k *Keeper) holdsAny() bool {
	for place := range neuron.AllPlaces().All() {
		if k.o.Holds(place) {
			return true
		}
	}
	return false
}

// clearDeadLetters keeps the newest dead letters.
func (k *Keeper) clearDeadLetters(ctx context.Context) error {
	n, err := k.number(ctx, `select count(*) from dead_letter`)
	gone := n - int64(k.o.Bounds.DeadLetters)
	if err != nil || gone <= 0 {
		return err
	}
	k.o.Log.Warn("there are too many dead letters: the oldest go", "dead_letters", n, "kept", k.o.Bounds.DeadLetters)
	for ; gone > 0; gone -= chunk {
		var ops []neuron.Op
		err := k.each(ctx, `select id from dead_letter order by id limit ?`, []any{min(gone, chunk)}, func(scan func(...any) error) error {
			var id []byte
			err := scan(&id)
			ops = append(ops, do(`delete from dead_letter where id = ?`, bytes.Clone(id)))
			return err
		})
		if err == nil {
			err = k.write(ctx, 0, ops...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clearSums makes one row per model of the sums of the sessions that were removed longest ago.
func (k *Keeper) clearSums(ctx context.Context) error {
	n, err := k.number(ctx, `select count(distinct session) from ledger_sum where session <> ''`)
	if err != nil {
		return err
	}
	for gone := n - int64(k.o.Bounds.Sums); gone > 0; gone -= chunk / 4 {
		var ops []neuron.Op
		err := k.each(ctx, `select session from ledger_sum where session <> '' group by session order by max(removed_at), session limit ?`,
			[]any{min(gone, chunk/4)}, func(scan func(...any) error) error {
				var session string
				err := scan(&session)
				ops = append(ops, do(foldSums, session), do(dropSums, session))
				return err
			})
		if err == nil {
			err = k.write(ctx, 0, ops...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clearSessions keeps the newest events and inputs of each session that was used since the last look.
func (k *Keeper) clearSessions(ctx context.Context) error {
	type bounds struct {
		target
		first, last int64
	}
	began := k.o.Now()
	for after, n := "", chunk; n == chunk; {
		n = 0
		var page []bounds
		err := k.each(ctx, `select s.id, s.place, s.branch, coalesce((select min(seq) from event e where e.session = s.id), 0),
coalesce((select max(seq) from event e where e.session = s.id), 0), coalesce((select at from event e where e.session = s.id order by seq desc limit 1), 0)
from session s where s.id > ? and s.state <> 'removing' order by s.id limit 256`, []any{after}, func(scan func(...any) error) error {
			var b bounds
			var at int64
			t, err := scanTarget(func(dest ...any) error { return scan(append(dest, &b.first, &b.last, &at)...) })
			n++
			b.target, after = t, t.session
			if !time.UnixMicro(at).Before(k.looked) && k.o.Holds(t.place) {
				page = append(page, b)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			b := &page[i]
			for cut := b.last - int64(k.o.Bounds.Events); b.first <= cut; b.first += chunk {
				if err := k.write(ctx, b.place, do(dropEvents, b.session, min(b.first+chunk-1, cut))); err != nil {
					return err
				}
			}
			if err := k.clearSession(ctx, &b.target); err != nil {
				return err
			}
		}
	}
	k.looked = began.Add(-time.Minute)
	return nil
}

// clearSession keeps the newest inputs and python kernels of a session, of those that have ended.
func (k *Keeper) clearSession(ctx context.Context, t *target) error {
	n, err := k.number(ctx, `select count(*) from input where session = ? and state <> 'admitted'`, t.session)
	if err != nil {
		return err
	}
	for gone := n - int64(k.o.Bounds.Inputs); gone > 0; gone -= chunk {
		var ops []neuron.Op
		err := k.each(ctx, `select client_id from input where session = ? and state <> 'admitted' order by id limit ?`, []any{t.session, min(gone, chunk)},
			func(scan func(...any) error) error {
				var id string
				err := scan(&id)
				ops = append(ops, do(`delete from input where session = ? and client_id = ?`, t.session, id))
				return err
			})
		if err == nil {
			err = k.write(ctx, t.place, ops...)
		}
		if err != nil {
			return err
		}
	}
	branch := t.branches[0]
	if n, err = k.number(ctx, `select count(*) from kernel where branch = ? and state = 'ended'`, branch[:]); err != nil {
		return err
	}
	var old []string
	if n > int64(k.o.Bounds.Kernels) {
		err = k.each(ctx, `select id from kernel where branch = ? and state = 'ended' order by created_at, id limit ?`,
			[]any{branch[:], n - int64(k.o.Bounds.Kernels)}, func(scan func(...any) error) error {
				var id string
				err := scan(&id)
				old = append(old, id)
				return err
			})
	}
	for _, id := range old {
		if err == nil {
			err = k.write(ctx, t.place, pykernelOps(id)...)
		}
	}
	return err
}

// clearPykernels deletes frames, inbox items and host calls of python kernels that have ended or are not there.
func (k *Keeper) clearPykernels(ctx context.Context) error {
	var dead []string
	err := k.each(ctx, `select kernel from (select kernel from kernel_frame union select kernel from kernel_inbox union select kernel from kernel_call) x
where not exists (select 1 from kernel k where k.id = x.kernel and k.state <> 'ended') limit 256`, nil, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		dead = append(dead, id)
		return err
	})
	for _, id := range dead {
		if err != nil {
			break
		}
		var place neuron.Place
		if err = k.each(ctx, `select s.place from kernel k join session s on s.id = k.session where k.id = ?`, []any{id},
			func(scan func(...any) error) error { return scan(&place) }); err != nil || !k.o.Holds(place) {
			continue
		}
		for _, sql := range []string{
			`delete from kernel_frame where kernel = ? and seq in (select seq from kernel_frame where kernel = ? order by seq limit 256)`,
			`delete from kernel_inbox where kernel = ? and item in (select item from kernel_inbox where kernel = ? order by item limit 256)`,
			`delete from kernel_call where kernel = ? and id in (select id from kernel_call where kernel = ? order by id limit 256)`,
		} {
			if err == nil {
				err = k.write(ctx, place, do(sql, id, id)) // what is left goes next time
			}
		}
	}
	return err
}

// The strangers of one kind among some neurons, in the order of their keys: their session or process has no row, and they have
// handled nothing lately. A neuron costs two looks into an index at most, whatever is believed of the tables: each look is a scalar.
const (
	named = ` from (select key, id, place, substr(id, ?1) as name from neuron where key > ?3 order by key limit 2048) x
where substr(x.id, 1, ?1 - 1) = ?2 and case when `
	handledLately   = ` then 1 else (select count(*) from turn t where t.neuron = x.key and t.delivery_id > ?4) end = 0`
	strangeSessions = `select x.id, x.place` + named + `(select count(*) from session s where s.id = x.name) > 0` + handledLately
	// A name that is no number is no process's; 18 digits fit the column for certain.
	strangeProcesses = `select x.id, x.place` + named + `(select count(*) from process p where p.pid =
case when ltrim(x.name, '0123456789') = '' and length(x.name) between 1 and 18 then cast(x.name as bigint) else 0 end) > 0` + handledLately
	nextNeurons = `select count(*), coalesce(max(key), 0) from (select key from neuron where key > ? order by key limit 2048) x`

	pageNeurons   = 2048
	neuronsARound = 32 * pageNeurons
)

// clearStrangers erases neurons of sessions and processes that are not there: somebody asked for one that never was, or has
// gone. A round looks at a bounded number of neurons, the next goes on behind them.
func (k *Keeper) clearStrangers(ctx context.Context) error {
	young := ident.At(k.o.Now().Add(-k.o.Bounds.Strangers))
	for range neuronsARound / pageNeurons {
		began := time.Now()
		var n, last int64
		err := k.each(ctx, nextNeurons, []any{k.walked}, func(scan func(...any) error) error { return scan(&n, &last) })
		if err != nil {
			return err
		}
		var ids []neuron.ID
		for kind, sql := range map[string]string{process.SessionKind: strangeSessions, process.ProcessKind: strangeProcesses} {
			prefix := k.o.Owner + "/" + kind + "/"
			err := k.each(ctx, sql, []any{int64(utf8.RuneCountInString(prefix) + 1), prefix, k.walked, young[:]}, func(scan func(...any) error) error {
				var text string
				var place neuron.Place
				if err := scan(&text, &place); err != nil {
					return err
				}
				if id, err := neuron.ParseID(text); err == nil && k.o.Holds(place) {
					ids = append(ids, id)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, id := range ids {
			if _, err := k.o.Neurons.Erase(ctx, id); err != nil && !errors.Is(err, neuron.ErrBusy) && !errors.Is(err, neuron.ErrNotOwner) {
				return fmt.Errorf("cannot erase %s: %w", id, err)
			} // what is left goes next time
		}
		if n < pageNeurons {
			k.walked = 0
			return nil
		}
		k.walked = last
		if err := k.rest(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

// clearPayloads deletes the payloads of deliveries that no journal, outbox row, dead letter or call names, at two looks one after
// the other: a delivery that moves from one table to the next while they are read may be missed by one.
func (k *Keeper) clearPayloads(ctx context.Context) error {
	found := map[string]bool{}
	old := ident.At(k.o.Now().Add(-k.o.Bounds.Payloads))
	err := k.each(ctx, `select id from content where payload = 1 and id < ? order by id limit 4096`, []any{old[:]}, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		id, err := ident.FromBytes(b)
		found[id.String()] = true
		return err
	})
	if err == nil && len(found) > 0 {
		err = k.named(ctx, found)
	}
	if err != nil {
		return err
	}
	var ops []neuron.Op
	for text := range found {
		id, err := ident.Parse(text)
		if err != nil {
			return err
		}
		if k.suspects[text] {
			ops = append(ops, do(dropPayload, id[:]))
		}
		if len(ops) == chunk {
			if err := k.write(ctx, 0, ops...); err != nil {
				return err
			}
			ops = nil
		}
	}
	k.suspects = found
	return k.write(ctx, 0, ops...)
}

// named takes out of ids what is named somewhere.
func (k *Keeper) named(ctx context.Context, ids map[string]bool) error {
	look := func(b []byte) {
		for rest := b; ; {
			i := bytes.Index(rest, contentName)
			if i < 0 {
				return
			}
			rest = rest[i+len(contentName):]
			if end := bytes.IndexByte(rest, '"'); end > 0 {
				delete(ids, string(rest[:end]))
			}
		}
	}
	for _, sql := range []string{
		`select delivery, null from dead_letter`, `select delivery, null from outbox`, `select delivery, null from dead_letter`,
		`select request, reply from call`, `select reply, null from call_part`,
	} {
		if err := k.each(ctx, sql, nil, func(scan func(...any) error) error {
			var a, b []byte
			err := scan(&a, &b)
			look(a)
			look(b)
			return err
		}); err != nil {
			return err
		}
	}
	for after, n := int64(0), pageTurns; n == pageTurns; {
		n = 0
		began := time.Now()
		if err := k.each(ctx, `select pos, incoming, outgoing from turn where pos > ? order by pos limit 512`, []any{after}, func(scan func(...any) error) error {
			var in, out []byte
			n++
			err := scan(&after, &in, &out)
			look(in)
			look(out)
			return err
		}); err != nil {
			return err
		}
		if err := k.rest(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

const pageTurns = 512
