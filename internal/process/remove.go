package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/wire"
)

// stateRemoving is the state of a session whose rows are being deleted; when they have gone its id stays taken.
const stateRemoving = "removing"

// MarkRemoving begins the removal of a session: from its commit on there is nothing to follow.
type MarkRemoving struct {
	Session string
	branch  ident.ID
}

// SQL returns the statement.
func (*MarkRemoving) SQL() string {
	return `update session set state = 'removing' where id = ? and state <> 'removing'`
}

// Args returns the column values.
func (o *MarkRemoving) Args() []any { return []any{o.Session} }

// takeID leaves a row by which the id of a removed session is known, with sums of nothing.
type takeID struct {
	session string
	at      time.Time
}

func (*takeID) SQL() string {
	return `insert into ledger_sum (session, provider, model, attempts, input, cache_read, cache_write, output, reasoning, cost, unknown, estimated, removed_at)
values (?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?) on conflict do nothing`
}

func (o *takeID) Args() []any { return []any{o.session, "", "", o.at.UnixMicro()} }

// DropSession deletes the row of a session, the last of all that is its own.
type DropSession struct{ ID string }

// SQL returns the statement.
func (*DropSession) SQL() string { return `delete from session where id = ?` }

// Args returns the column values.
func (o *DropSession) Args() []any { return []any{o.ID} }

// wasRemoved reports whether a session of this id was removed.
func wasRemoved(q querier, session string) (bool, error) {
	n := 0
	err := q.Query(`select count(*) from ledger_sum where session = ?`, []any{session}, func(scan func(...any) error) error { return scan(&n) })
	return n > 0 && session != "", err
}

// removeSession marks a session for removal once nothing of it runs. From then on it takes nothing.
func (h *Host) removeSession(t *neuron.Turn, m removing) error {
	s, err := existingSession(t)
	if err != nil {
		return err
	}
	if why, err := inUse(t, m.Session); err != nil {
		return err
	} else if why != "" {
		return neuron.SettleAs(codeInUse, fmt.Errorf("session %s is in use: %s", m.Session, why))
	}
	used, err := lastUse(t, m.Session)
	if err != nil {
		return err
	}
	if !m.Before.IsZero() && !used.Before(m.Before) {
		return neuron.SettleAs(codeUsed, fmt.Errorf("session %s was used at %s", m.Session, used.Format(time.RFC3339)))
	}
	s.Removing, s.Closed = true, true
	t.Write(&takeID{session: m.Session, at: t.Now()}, &MarkRemoving{Session: m.Session, branch: s.Branch})
	return neuron.SetState(t, sessionType, s)
}

// InUse says what of a session runs, "" if nothing does.
func (h *Host) InUse(ctx context.Context, session string) (string, error) {
	return inUse(h.rows(ctx), session)
}

// inUse says what of a session runs, "" if nothing does.
func inUse(q querier, session string) (string, error) {
	var busy []string
	err := q.Query(`select pid, state from process where session = ? and ended_at is null order by pid`, []any{session}, func(scan func(...any) error) error {
		var pid ident.PID
		var state string
		err := scan(&pid, &state)
		busy = append(busy, fmt.Sprintf("process %s is %s", pid, strings.ToLower(state)))
		return err
	})
	if err != nil {
		return "", err
	}
	err = q.Query(`select id, state from kernel where state in ('booting', 'running', 'ending') and session = ? order by id`, []any{session},
		func(scan func(...any) error) error {
			var id, state string
			err := scan(&id, &state)
			busy = append(busy, fmt.Sprintf("python kernel %s is %s", id, state))
			return err
		})
	return strings.Join(busy[:min(len(busy), 4)], ", "), err
}

// lastUse returns when something last happened in a session.
func lastUse(q querier, session string) (time.Time, error) {
	at := int64(0)
	err := q.Query(`select coalesce((select at from event where session = s.id order by seq desc limit 1), s.created_at) from session s where s.id = ?`,
		[]any{session}, func(scan func(...any) error) error { return scan(&at) })
	return fromMicro(at), err
}

// BeginRemoval marks a session for removal: from its commit on the session takes nothing and is told as gone, and who deletes its
// rows goes on with that whatever happens. A session that is marked already, or gone, is no error; then marked is false.
// Errors: *wire.Error with not_found; in_use, also for one that was used at or after before where that is not zero.
func (h *Host) BeginRemoval(ctx context.Context, id string, before time.Time) (marked bool, err error) {
	s, _, err := h.session(ctx, id)
	switch {
	case err != nil:
		return false, err
	case s == nil:
		return false, gone(h.absent(ctx, id))
	case s.State == stateRemoving:
		return false, nil
	}
	err = h.deliver(ctx, sessionID(h.o.Owner, id), removeType.Alias(), removing{Session: id, Before: before})
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Code == wire.InUse && before.IsZero() {
		return false, refused.Do("end it first, or remove it by force")
	}
	return err == nil, gone(err)
}

// gone makes no error of one that says that a session was removed.
func gone(err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Code == wire.Gone {
		return nil
	}
	return err
}

// Scrub takes the answers out of spool files that nobody waits for.
func (h *Host) Scrub() error { return h.spools.Scrub() }
