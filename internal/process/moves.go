package process

import (
	"context"
	"errors"
	"fmt"

	"soma/ident"
	"soma/internal/agent/turn"
	"soma/internal/neuron"
)

// Gain takes places over whose neurons run here from now on: it queues the processes that are Ready there and learns which
// cells run. The engine has gained them before.
func (h *Host) Gain(ctx context.Context, places neuron.PlaceSet) error {
	if err := h.cells.Load(h.rows(ctx), places); err != nil {
		return err
	}
	return h.slots.gain(ctx, places)
}

// Release forgets what is known of places that were given up: other nodes may change it now.
func (h *Host) Release(places neuron.PlaceSet) {
	h.slots.release(places)
	h.cells.Release(places)
	h.shown.Clear()
	h.histories.Clear()
	h.texts.Clear()
	h.states.Clear()
}

// Busy reports whether a process of the place holds a slot. It calls nobody.
func (h *Host) Busy(place neuron.Place) bool { return h.slots.busy(place) }

// PlaceOf returns the place of a process; known is false where there is no such process.
func (h *Host) PlaceOf(ctx context.Context, pid uint64) (place neuron.Place, known bool, err error) {
	if place, ok := h.places.known.Get(ident.PID(pid).String()); ok {
		return place, true, nil
	}
	session := ""
	err = h.rows(ctx).Query(`select session from process where pid = ?`, []any{int64(pid)}, func(scan func(...any) error) error { return scan(&session) })
	if err != nil || session == "" {
		return 0, false, err
	}
	place = neuron.PlaceOf(session)
	h.places.put(ident.PID(pid), place)
	return place, true, nil
}

// SessionOfAnyCell returns the session of a cell that runs or has ended, of whatever place, "" where there is none.
func (h *Host) SessionOfAnyCell(ctx context.Context, cell string) (string, error) {
	session := ""
	err := h.rows(ctx).Query(`select session from cell where id = ?`, []any{cell}, func(scan func(...any) error) error { return scan(&session) })
	return session, err
}

// nodeOf names the node that holds a session, "" where there is one only.
func (h *Host) nodeOf(session string) string {
	if h.o.NodeOf == nil {
		return ""
	}
	return h.o.NodeOf(neuron.PlaceOf(session))
}

// gain queues every process of the places that is Ready, in pages, oldest first.
func (s *slots) gain(ctx context.Context, places neuron.PlaceSet) error {
	var after int64
	for n := -1; n != 0; {
		n = 0
		err := s.host.o.Reader.Query(ctx, `select pid, session from process where ended_at is null and state = ? and pid > ? order by pid limit 1000`,
			[]any{string(turn.Ready), after}, func(scan func(...any) error) error {
				n++
				var session string
				err := scan(&after, &session)
				if place := neuron.PlaceOf(session); err == nil && places.Has(place) {
					s.mu.Lock()
					s.ready(ident.PID(after), place)
					s.mu.Unlock()
				}
				return err
			})
		if err != nil {
			return fmt.Errorf("cannot read who is ready: %w", err)
		}
	}
	s.wake()
	return nil
}

// release takes the processes of the places out of the queue.
func (s *slots) release(places neuron.PlaceSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, at := range s.known {
		if places.Has(at.place) {
			s.done(pid)
			delete(s.causes, pid)
		}
	}
}

func (s *slots) busy(place neuron.Place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.known {
		if at.running && at.place == place {
			return true
		}
	}
	return false
}

// moved reports whether an error says that the place is another node's, or may be: that one goes on.
func moved(err error) bool {
	return errors.Is(err, neuron.ErrNotOwner) || errors.Is(err, neuron.ErrFenced)
}
