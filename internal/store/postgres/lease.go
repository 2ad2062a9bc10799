package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/lease"
	"soma/internal/store/schema"
)

var _ lease.Store = (*Store)(nil)

const (
	// serverMicros is the server's clock as it lies in rows.
	serverMicros = `(extract(epoch from clock_timestamp()) * 1000000)::bigint`

	claimNode = `insert into node (id, epoch, url, cert, beat, started_at)
		select $1, coalesce(max(epoch), 0) + 1, '', '', ` + serverMicros + `, ` + serverMicros + ` from node
		on conflict (id) do update set epoch = excluded.epoch, url = '', cert = '', beat = excluded.beat, started_at = excluded.started_at
		returning epoch`
	// forgetNodes takes away rows of homes that are gone. It runs under the lock of a claim, after it: so the row with the
	// greatest epoch there ever was is the one that stays, and no later life gets an epoch that another one had.
	forgetNodes = `delete from node where id in (
		select n.id from node n where n.id <> $1 and greatest(n.beat, n.started_at) < ` + serverMicros + ` - $2::bigint
			and not exists (select 1 from lease l where l.holder = n.id) order by n.id limit 256 for update of n skip locked)`
	// endPlaces keeps the holder: who takes the places then learns whose life ended at them.
	endPlaces = `update lease l set epoch = l.epoch + 1
		from (select place from lease where holder = $1 order by place for update) x where l.place = x.place`
	lockNode   = `select 1 / (case when count(*) = 1 then 1 else 0 end) from (select 1 from node where id = $1 and epoch = $2 for share) x`
	takePlaces = `with x as (
			select l.place, l.holder from lease l where l.place = any($1::bigint[])
				and (l.holder = $2 or not exists (select 1 from node n where n.id = l.holder and n.beat >= ` + serverMicros + ` - $3::bigint))
			order by l.place for update of l)
		update lease l set holder = $2, epoch = l.epoch + 1 from x where l.place = x.place returning l.place, l.epoch, x.holder`
	givePlaces = `update lease l set holder = '' from (
			select l.place from lease l join unnest($2::bigint[], $3::bigint[]) h (place, epoch) on l.place = h.place and l.epoch = h.epoch
			where l.holder = $1 order by l.place for update of l) x
		where l.place = x.place`
	beatNode  = `update node set beat = ` + serverMicros + `, url = $3, cert = $4 where id = $1 and epoch = $2 returning beat`
	leaveNode = `update node set beat = 0 where id = $1 and epoch = $2`
	// selectTable reads nodes and places as of one moment.
	selectTable = `select 0 as part, id, epoch, url, cert, beat, ` + serverMicros + ` from node
		union all select 1, holder, epoch, '', '', place, 0 from lease`
	// endBlockers ends the transactions that keep a session waiting, but none that waits itself.
	endBlockers = `select count(pg_terminate_backend(a.pid)) from unnest(pg_blocking_pids($1::int)) b (pid)
		join pg_stat_activity a on a.pid = b.pid where a.wait_event_type is distinct from 'Lock'`

	claimLock = migrationLock + 1
	copyLock  = migrationLock + 2 // of who fills the database
	// courtesy is how long a takeover waits for a transaction of a holder that was left behind. A paused OS process keeps
	// its locks for as long as it sleeps.
	courtesy      = time.Second
	courtesyAgain = 100 * time.Millisecond
)

// Claim begins a new life of node and ends the earlier ones: the epochs of the places that they held move on. Rows of other
// nodes that have been silent for neuron.NodeKept and hold nothing go with it: where no row is added, none is too many.
// On a database that is being filled by a copy the error is a *schema.SealedError.
func (s *Store) Claim(ctx context.Context, node string) (neuron.Fence, error) {
	f := neuron.Fence{Node: node, Places: &neuron.Epochs{}}
	err := s.takeover(ctx, func(c *session) error {
		if _, err := c.exec(ctx, "select pg_advisory_xact_lock($1)", int64(claimLock)); err != nil {
			return err
		}
		// A copy may have begun since the store was opened.
		if seal, err := sealOf(ctx, c); err != nil || seal != nil {
			if err == nil {
				err = &schema.SealedError{Seal: *seal}
			}
			return err
		}
		epoch, err := c.number(ctx, claimNode, node)
		if err != nil {
			return err
		}
		f.Epoch = uint64(epoch)
		if _, err := c.exec(ctx, endPlaces, node); err != nil {
			return err
		}
		_, err = c.exec(ctx, forgetNodes, node, neuron.NodeKept.Microseconds())
		return err
	})
	if err != nil {
		return neuron.Fence{}, fmt.Errorf("cannot begin the life of node %s: %w", node, err)
	}
	return f, nil
}

// Take makes the node the holder of those of the places that are free, its own, or left behind by a node whose beat is older
// than the lease.
func (s *Store) Take(ctx context.Context, fence neuron.Fence, places neuron.PlaceSet) (map[neuron.Place]neuron.Taken, error) {
	var taken map[neuron.Place]neuron.Taken
	err := s.takeover(ctx, func(c *session) error {
		taken = map[neuron.Place]neuron.Taken{}
		if _, err := c.exec(ctx, lockNode, fence.Node, int64(fence.Epoch)); err != nil {
			return err
		}
		r, err := c.exec(ctx, takePlaces, numbers(places), fence.Node, s.options.Lease.Microseconds())
		if err != nil {
			return err
		}
		for _, row := range r.Rows {
			taken[neuron.Place(binary.BigEndian.Uint64(row[0]))] = neuron.Taken{Epoch: binary.BigEndian.Uint64(row[1]), From: string(row[2])}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot take places: %w", fencedBy(err))
	}
	return taken, nil
}

// fencedBy names the failure of lockNode.
func fencedBy(err error) error {
	if hasCode(err, divisionByZero) {
		return neuron.ErrFenced
	}
	return err
}

// Give frees the places that fence still holds.
func (s *Store) Give(ctx context.Context, fence neuron.Fence, places neuron.PlaceSet) error {
	err := s.takeover(ctx, func(c *session) error { return give(ctx, c, fence, places) })
	if err != nil {
		return fmt.Errorf("cannot give places back: %w", err)
	}
	return nil
}

func give(ctx context.Context, c *session, fence neuron.Fence, places neuron.PlaceSet) error {
	var list []neuron.Place
	for p := range places.All() {
		if fence.Places.Has(p) {
			list = append(list, p)
		}
	}
	_, err := c.exec(ctx, givePlaces, fence.Node, integers(len(list), func(i int) int64 { return int64(list[i]) }),
		integers(len(list), func(i int) int64 { return int64(fence.Places[list[i]]) }))
	return err
}

// Leave gives all places back and ends the node's beat.
func (s *Store) Leave(ctx context.Context, fence neuron.Fence) error {
	err := s.takeover(ctx, func(c *session) error {
		if err := give(ctx, c, fence, neuron.AllPlaces()); err != nil {
			return err
		}
		_, err := c.exec(ctx, leaveNode, fence.Node, int64(fence.Epoch))
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot leave the other nodes: %w", err)
	}
	return nil
}

// Beat writes the beat of the node's life and reads the table.
func (s *Store) Beat(ctx context.Context, fence neuron.Fence, info lease.NodeInfo) (t lease.Table, err error) {
	err = s.control.use(ctx, func(c *session) error {
		r, err := c.exec(ctx, beatNode, fence.Node, int64(fence.Epoch), info.URL, info.Cert)
		if err != nil {
			return err
		}
		if len(r.Rows) != 1 {
			return neuron.ErrFenced
		}
		t, err = s.table(ctx, c)
		return err
	})
	if err != nil {
		return lease.Table{}, fmt.Errorf("cannot beat: %w", err)
	}
	return t, nil
}

func (s *Store) table(ctx context.Context, c *session) (t lease.Table, err error) {
	r, err := c.exec(ctx, selectTable)
	if err != nil {
		return t, err
	}
	for _, row := range r.Rows {
		id, epoch, last := string(row[1]), binary.BigEndian.Uint64(row[2]), int64(binary.BigEndian.Uint64(row[5]))
		if binary.BigEndian.Uint32(row[0]) == 1 {
			t.Places[last] = lease.Held{Holder: id, Epoch: epoch}
			continue
		}
		t.Now = time.UnixMicro(int64(binary.BigEndian.Uint64(row[6]))).UTC()
		n := lease.Node{ID: id, Epoch: epoch, URL: string(row[3]), Cert: string(row[4])}
		if last != 0 {
			n.Beat = time.UnixMicro(last).UTC()
			n.Alive = t.Now.Sub(n.Beat) <= s.options.Lease
		}
		t.Nodes = append(t.Nodes, n)
	}
	slices.SortFunc(t.Nodes, func(a, b lease.Node) int { return strings.Compare(a.ID, b.ID) }) // at the server it would double the work
	return t, nil
}

// takeover runs fn in one transaction of the control session. Whoever keeps it waiting longer than courtesy is ended: fn
// locks only rows of holders that were left behind, and of the caller.
func (s *Store) takeover(ctx context.Context, fn func(c *session) error) error {
	return s.control.use(ctx, func(c *session) error {
		watch, done := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		var werr error
		watcher.Go(func() { werr = s.endBlockers(watch, c.c.PID()) })
		err := c.transaction(ctx, func() error { return fn(c) })
		done()
		watcher.Wait()
		return errors.Join(err, werr)
	})
}

// endBlockers ends what keeps the session of pid waiting, until ctx does.
func (s *Store) endBlockers(ctx context.Context, pid uint32) error {
	for wait := courtesy; ; wait = courtesyAgain {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		err := s.hints.use(ctx, func(h *session) error {
			_, err := h.exec(ctx, endBlockers, int64(pid))
			return err
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot end a transaction that was left behind: %w", err)
		}
	}
}
