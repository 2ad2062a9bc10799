package retention

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"soma/wire"
)

// selectAtRest reads sessions in which nothing runs and nothing has happened since a time.
const selectAtRest = `select id, place, branch, kind, workspace, used from (
select s.id, s.place, s.branch, s.kind, s.workspace, coalesce((select at from event e where e.session = s.id order by seq desc limit 1), s.created_at) as used
from session s where s.id > ? and s.state <> 'removing'
and not exists (select 1 from process p where p.session = s.id and p.ended_at is null)
and not exists (select 1 from kernel k where k.state in ('booting', 'running', 'ending') and k.session = s.id)
) x where used < ? order by id limit ?`

// pruneTime is when a prune leaves the rest to the next one.
const pruneTime = 10 * time.Second

// Prune removes up to r.Limit sessions that are at rest and in which nothing has happened since r.Before, and returns them in
// order of their ids with what was stored of each. A dry run tells the same and removes nothing. One that was used meanwhile
// stays, and is told so; so is one whose place another node holds. more says that there may be more after the last of them.
func (k *Keeper) Prune(ctx context.Context, r wire.Prune) (list []wire.Pruned, more bool, err error) {
	limit := min(r.Limit, wire.MaxPrune)
	if limit <= 0 {
		limit = wire.DefaultPrune
	}
	found, targets, err := k.atRest(ctx, r.Before, r.After, limit+1)
	if err != nil {
		return nil, false, err
	}
	more = len(found) > limit
	list = []wire.Pruned{}
	began := time.Now()
	for i := range found[:min(len(found), limit)] {
		if len(list) > 0 && time.Since(began) > pruneTime {
			return list, true, nil
		}
		p, t := &found[i], &targets[i]
		if err := k.find(ctx, t); err != nil {
			return list, more, err
		}
		if p.Tables, err = k.count(ctx, t); err != nil {
			return list, more, err
		}
		p.Rows = sum(p.Tables)
		switch {
		case r.DryRun:
		case !k.o.Holds(t.place):
			p.State = wire.Elsewhere
		default:
			rm, err := k.Remove(ctx, p.Session, wire.Remove{Before: &r.Before})
			var refused *wire.Error
			switch {
			case errors.As(err, &refused) && (refused.Code == wire.InUse || refused.Code == wire.NotFound):
				p.State = wire.Stays
			case err != nil:
				return list, true, err
			default:
				p.State = rm.State
			}
		}
		list = append(list, *p)
	}
	return list, more, nil
}

func (k *Keeper) atRest(ctx context.Context, before time.Time, after string, limit int) (found []wire.Pruned, targets []target, err error) {
	err = k.each(ctx, selectAtRest, []any{after, before.UnixMicro(), int64(limit)}, func(scan func(...any) error) error {
		var p wire.Pruned
		var used int64
		t, err := scanTarget(func(dest ...any) error { return scan(append(dest, &p.Kind, &p.Workspace, &used)...) })
		p.Session, p.UsedAt = t.session, time.UnixMicro(used).UTC()
		found, targets = append(found, p), append(targets, t)
		return err
	})
	return found, targets, err
}

// PruneOld marks for removal what has been at rest for longer than the person keeps it.
func (k *Keeper) PruneOld(ctx context.Context) error {
	if k.o.Keep <= 0 {
		return nil
	}
	before := k.o.Now().Add(-k.o.Keep)
	var marked atomic.Int64
	for after, n := "", wire.MaxPrune; n == wire.MaxPrune; {
		found, targets, err := k.atRest(ctx, before, after, wire.MaxPrune)
		if err != nil {
			return err
		}
		if n = len(found); n > 0 {
			after = found[n-1].Session
		}
		err = k.atOnce(ctx, targets, func(t *target) error {
			ok, err := k.o.Sessions.BeginRemoval(ctx, t.session, before)
			var refused *wire.Error
			switch {
			case ok:
				marked.Add(1)
			case errors.As(err, &refused): // it is used again, or has gone
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		k.wake()
	}
	if n := marked.Load(); n > 0 {
		k.o.Log.Info("old sessions are removed", "sessions", n, "keep", k.o.Keep)
	}
	return nil
}

// Spent returns what was asked of each model and what it cost, sessions that were removed included, as of one moment.
func (k *Keeper) Spent(ctx context.Context) ([]wire.Spent, error) {
	list := []wire.Spent{}
	err := k.each(ctx, `select provider, model, sum(attempts), sum(input), sum(cache_read), sum(cache_write), sum(output), sum(reasoning), sum(cost),
sum(unknown), sum(estimated), sum(removed) from (
select provider, model, 1 as attempts, input, cache_read, cache_write, output, reasoning, coalesce(cost, 0) as cost,
case when cost is null then 1 else 0 end as unknown, estimated, 0 as removed from ledger
union all
select provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, attempts from ledger_sum where attempts > 0
) x group by provider, model order by provider, model`, nil, func(scan func(...any) error) error {
		var s wire.Spent
		err := scan(&s.Provider, &s.Model, &s.Attempts, &s.Input, &s.CacheRead, &s.CacheWrite, &s.Output, &s.Reasoning, &s.Cost, &s.Unknown,
			&s.Estimated, &s.Removed)
		list = append(list, s)
		return err
	})
	return list, err
}
