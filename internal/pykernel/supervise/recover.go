package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/osproc"
	"soma/internal/pykernel"
	"soma/internal/pykernel/bundle"
)

// recover reads the live python kernels of the places and finds the processes of those that ran at this node; nothing is
// awaited. Where the node is not alone, those of other nodes are found as lost, and always those of no node.
func (s *Supervisor) recover(ctx context.Context, places neuron.PlaceSet) ([]*kernel, error) {
	type row struct {
		pykernel.InsertKernel
		state, reason, leader, modules string
		pid, pgid                      int
		last                           int64
	}
	var rows []row
	err := s.opt.Reader.Query(ctx, `select id, owner, session, branch, node, workspace, python, token, state, reason, os_pid, pgid, leader, last_seq, modules from kernel
where state in ('booting', 'running', 'ending') order by used_at, id`, nil,
		func(scan func(...any) error) error {
			var r row
			var branch []byte
			err := scan(&r.ID, &r.Owner, &r.Session, &branch, &r.Node, &r.Workspace, &r.Python, &r.Token, &r.state, &r.reason, &r.pid, &r.pgid, &r.leader,
				&r.last, &r.modules)
			if err != nil {
				return err
			}
			r.Branch, err = ident.FromBytes(branch)
			if r.Node == s.opt.Node || r.Node == pykernel.NoNode || s.opt.Shared {
				rows = append(rows, r)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	var found []*kernel
	for _, r := range rows {
		k, err := s.newKernel(&r.InsertKernel)
		if err != nil {
			return nil, fmt.Errorf("python kernel %s: %w", r.ID, err)
		}
		if !places.Has(k.place) {
			continue
		}
		if err := s.load(ctx, k, pykernel.KernelState(r.state) != pykernel.Booting && r.pid > 0); err != nil {
			return nil, err
		}
		k.link.Continue(uint64(r.last))
		k.modules = r.modules
		if r.Node != s.opt.Node {
			k.foreign = true
			reason := fmt.Sprintf("it ran at node %s, which has lost the session", r.Node)
			if r.Node == pykernel.NoNode {
				reason = r.reason
			}
			k.end(reason)
			found = append(found, k)
			continue
		}
		if r.pid > 0 {
			k.fresh = false
			close(k.noted)
			p, err := osproc.Open(r.pid, r.leader)
			switch {
			case err == nil && !k.owns(p):
				p.Close()
				k.end("its process belongs to another home")
			case err == nil:
				k.found(p)
				k.proc = p
			case errors.Is(err, osproc.ErrGone):
				// Its children may live on in its group, so bury ends that too.
				k.lost = osproc.Group{PGID: r.pgid, Leader: r.leader}
				k.end(k.deathText(""))
			default:
				return nil, err
			}
		}
		if pykernel.KernelState(r.state) == pykernel.Ending {
			k.end(r.reason)
		}
		k.publish()
		found = append(found, k)
	}
	return found, nil
}

// owns reports whether a process runs from this home's run directory. In a copy of a home the rows name the processes of the
// original, which must not be touched. One whose cell has closed its lock is known by its arguments.
func (k *kernel) owns(p *osproc.Process) bool {
	if pid, err := osproc.LockHolder(filepath.Join(k.dir, "lock")); err == nil && pid == p.PID {
		return true
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	return err == nil && slices.Contains(strings.Split(string(line), "\x00"), k.dir)
}

// load reads what waits for k and what has come from it.
func (s *Supervisor) load(ctx context.Context, k *kernel, written bool) error {
	err := s.opt.Reader.Query(ctx, `select seq, cell, body, at from kernel_frame where kernel = ? order by seq`, []any{k.id},
		func(scan func(...any) error) error {
			f := &pykernel.AppendFrame{Kernel: k.id}
			var seq, at int64
			var body []byte
			if err := scan(&seq, &f.Cell, &body, &at); err != nil {
				return err
			}
			f.Seq, f.Body, f.At = uint64(seq), body, time.UnixMicro(at)
			k.append(f, written)
			return nil
		})
	if err != nil {
		return err
	}
	err = s.opt.Reader.Query(ctx, `select item from kernel_inbox where kernel = ?`, []any{k.id}, func(scan func(...any) error) error {
		var item string
		err := scan(&item)
		k.items[item] = 0
		return err
	})
	if err != nil {
		return err
	}
	for item := range k.items {
		if id, ok := strings.CutPrefix(item, pykernel.BackgroundItem("")); ok {
			if c := k.open(id); c != nil {
				c.background = true
			}
		}
	}
	err = s.opt.Reader.Query(ctx, `select id, cell, command, pid, pgid, leader, service, started_at from job where kernel = ? and state = 'running'`,
		[]any{k.id}, func(scan func(...any) error) error {
			var j pykernel.JobStart
			var service, started int64
			err := scan(&j.Job, &j.Cell, &j.Command, &j.PID, &j.PGID, &j.Leader, &service, &started)
			j.Service, j.StartedAt = service != 0, started/1000
			k.jobs[j.Job] = j
			return err
		})
	if err != nil {
		return err
	}
	return s.opt.Reader.Query(ctx, `select id from kernel_call where kernel = ? and state = 'started'`, []any{k.id},
		func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			k.begun[id] = true
			return err
		})
}

// sweepBundles removes the unpacked sources that neither this program nor a live python kernel uses. One that boots may use any.
func (s *Supervisor) sweepBundles(ctx context.Context) error {
	if s.opt.SourceDir != "" {
		return nil // the digest of the embedded sources is not known here
	}
	keep := map[string]bool{s.bundle.Digest: true}
	err := s.opt.Reader.Query(ctx, `select distinct bundle from kernel where state in ('booting', 'running', 'ending')`, nil,
		func(scan func(...any) error) error {
			var digest string
			err := scan(&digest)
			keep[digest] = true
			return err
		})
	if err != nil || keep[""] {
		return err
	}
	return bundle.Sweep(s.opt.BundleDir, keep)
}

// sweep removes run directories that no live row names; a python kernel that still runs from one ends within a second.
func (s *Supervisor) sweep(known map[string]*kernel) error {
	entries, err := os.ReadDir(s.opt.RunDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if known[e.Name()] == nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.opt.RunDir, e.Name())))
		}
	}
	return err
}
