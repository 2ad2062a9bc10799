package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
)

const (
	// tendGap is the time between two looks for what python kernels have left that are no longer this node's.
	tendGap = 5 * time.Second
	// leaveWait bounds the wait for a python kernel to be let go before it is taken again.
	leaveWait = 10 * time.Second
)

// Gain takes over the python kernels of places that this node has been given, before the engine takes work there. Those that
// ran here go on. Those of another node are lost to it: their open cells end with what is known of them, and their owners are
// told that they are gone. All that happens in the background; the error is that of a failed read.
func (s *Supervisor) Gain(ctx context.Context, places neuron.PlaceSet) error {
	if err := s.letGo(ctx, places); err != nil {
		return fmt.Errorf("cannot take python kernels over: %w", err)
	}
	found, err := s.recover(ctx, places)
	if err != nil {
		return fmt.Errorf("cannot take python kernels over: %w", err)
	}
	s.mu.Lock()
	for _, k := range found {
		s.kernels[k.id] = k
	}
	s.mu.Unlock()
	s.adopt(found...)
	return nil
}

// letGo waits until the last python kernel of the places that was released is not owned here any more.
func (s *Supervisor) letGo(ctx context.Context, places neuron.PlaceSet) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	for {
		s.mu.Lock()
		left, change := 0, s.change
		for _, k := range s.kernels {
			if places.Has(k.place) {
				left++
			}
		}
		s.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%d of them have not been let go: %w", left, context.Cause(ctx))
		}
	}
}

// Release lets the python kernels of places go that were given up. Whoever holds the places next takes them for lost; this
// node ends them once it sees that.
func (s *Supervisor) Release(places neuron.PlaceSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kernels {
		if places.Has(k.place) {
			k.leave()
		}
	}
}

// Busy reports whether a python kernel of the place lives here. It calls nobody.
func (s *Supervisor) Busy(place neuron.Place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kernels {
		if k.place == place {
			return true
		}
	}
	return false
}

// leave ends the ownership of a python kernel, which lives on.
func (k *kernel) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.leaving:
	default:
		close(k.leaving)
	}
}

// tend ends the python kernels of this node that another one has taken for lost, for as long as ctx lasts.
func (s *Supervisor) tend(ctx context.Context) error {
	look := time.NewTicker(tendGap)
	defer look.Stop()
	for {
		if err := s.endLost(ctx); err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("cannot end python kernels that are no longer this node's", "err", err)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// endLost ends the processes behind run directories whose rows say that their python kernel has ended, or that have none.
func (s *Supervisor) endLost(ctx context.Context) error {
	entries, err := os.ReadDir(s.opt.RunDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := e.Name()
		if s.find(id) != nil {
			continue
		}
		state := string(pykernel.Ended)
		rerr := s.opt.Reader.Query(ctx, `select state from kernel where id = ?`, []any{id}, func(scan func(...any) error) error { return scan(&state) })
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		if state == string(pykernel.Ended) && s.find(id) == nil {
			err = errors.Join(err, s.endLeft(ctx, id))
		}
	}
	return err
}

func (s *Supervisor) endLeft(ctx context.Context, id string) error {
	dir := filepath.Join(s.opt.RunDir, id)
	pid, err := osproc.LockHolder(filepath.Join(dir, "lock"))
	if err == nil && pid > 0 {
		p, perr := osproc.Open(pid, "")
		switch {
		case perr == nil:
			err = p.Group().End(ctx)
			p.Close()
		case !errors.Is(perr, osproc.ErrGone):
			err = perr
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.endJobs(ctx, id); err != nil {
		return err
	}
	if err := errors.Join(osproc.EndMarked(ctx, marker(id)), os.RemoveAll(dir)); err != nil {
		return err
	}
	s.opt.Log.Info("a python kernel was ended that another node has taken for lost", "kernel", id)
	return nil
}

// endJobs ends the recorded jobs of a python kernel that have not ended by themselves and are those very processes still.
func (s *Supervisor) endJobs(ctx context.Context, kernel string) error {
	var all []osproc.Group
	err := s.opt.Reader.Query(ctx, `select pgid, leader from job where kernel = ? and state in ('running', 'lost') and leader <> ''`, []any{kernel},
		func(scan func(...any) error) error {
			var g osproc.Group
			err := scan(&g.PGID, &g.Leader)
			if g.Led() {
				all = append(all, g)
			}
			return err
		})
	if err != nil {
		return err
	}
	return osproc.EndGroups(ctx, all)
}
