package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"soma/ident"
)

// registry is a Mail of the test that knows who has a mailbox, and nothing else.
type registry struct {
	Mail
	mu  sync.Mutex
	has map[ident.ID]bool
}

func (r *registry) Has(owner ident.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has[owner]
}

func (r *registry) Register(owner ident.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has[owner] {
		return ErrExists
	}
	r.has[owner] = true
	return nil
}

func (r *registry) Unregister(owner ident.ID) []Letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.has, owner)
	return nil
}

func newWorld(t *rapid.T, sessions, branches int) ([]*Session, []*Branch) {
	ss, bs := make([]*Session, sessions), make([]*Branch, branches)
	for i := range ss {
		s, err := New(Options{Mail: &registry{has: map[ident.ID]bool{}}})
		if err != nil {
			t.Fatal(err)
		}
		ss[i] = s
	}
	for i := range bs {
		b, err := NewBranch(BranchOptions{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		bs[i] = b
	}
	return ss, bs
}

// check looks at all sessions at one moment: every branch has at most one owner, what it is attached to is all of one session,
// and the session knows it. No session changes while its lock is held.
func check(ss []*Session, bs []*Branch) error {
	for _, s := range ss {
		s.mu.RLock()
		defer s.mu.RUnlock()
	}
	for _, s := range ss {
		if s.order.Len() != len(s.byID) || (s.def == nil) != (s.order.Len() == 0) || s.def != nil && s.member(s.def.id) != s.def {
			return fmt.Errorf("session %s: %d in order, %d by id, default %v", s.id, s.order.Len(), len(s.byID), s.def)
		}
		boxes := s.mail.(*registry)
		boxes.mu.Lock()
		n := len(boxes.has)
		boxes.mu.Unlock()
		if n != s.order.Len() {
			return fmt.Errorf("session %s: %d members, %d mailboxes", s.id, s.order.Len(), n)
		}
		for b := range s.members() {
			a := b.at.Load()
			if s.member(b.id) != b || a.owner != s || !boxes.Has(b.id) || b.memory.Load() == nil {
				return fmt.Errorf("session %s: member %s is attached by half", s.id, b.id)
			}
		}
	}
	for _, b := range bs {
		a := b.at.Load()
		owners := 0
		for _, s := range ss {
			if s.byID[b.id] != nil {
				owners++
			}
		}
		switch {
		case a.owner == nil && (owners != 0 || a.observer != nil || a.hooks != nil || a.user != ""):
			return fmt.Errorf("branch %s is free, with %d owners and %+v", b.id, owners, a)
		case a.owner != nil && (owners != 1 || a.observer != a.owner.observer || a.operations != a.owner.operations ||
			a.hooks != a.owner.hooks || a.user != a.owner.id.String()):
			return fmt.Errorf("branch %s has %d owners and %+v", b.id, owners, a)
		}
	}
	return nil
}

// step is one thing done to a session.
type step struct {
	what    int
	session int
	batch   []int
}

func drawSteps(t *rapid.T, label string, sessions, branches, most int) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what: rapid.IntRange(0, 9).Draw(t, "what"), session: rapid.IntRange(0, sessions-1).Draw(t, "session"),
			batch: rapid.SliceOfN(rapid.IntRange(0, branches-1), 1, 4).Draw(t, "batch"),
		}
	}), 1, most).Draw(t, label)
}

// do takes the step; only the errors that may come are passed over.
func (st step) do(ss []*Session, bs []*Branch) error {
	s, b := ss[st.session], bs[st.batch[0]]
	var err error
	switch st.what {
	case 0, 1, 2:
		batch := make([]*Branch, len(st.batch))
		for i, n := range st.batch {
			batch[i] = bs[n]
		}
		err = s.Include(batch...)
	case 3, 4, 5:
		_, err = s.Remove(b.id)
	case 6:
		var clone *Branch
		if clone, err = s.Split(b.id); err == nil {
			_, err = s.Remove(clone.id) // else the world would grow
		}
	case 7:
		var made *Branch
		if made, err = s.NewBranch(BranchOptions{AsDefault: true}); err == nil {
			_, err = s.Remove(made.id)
		}
	case 8:
		err = s.SetDefault(b.id)
	case 9:
		s.Hooks()
	}
	if errors.Is(err, ErrOwned) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// S-01, S-09: several goroutines include, remove, split and choose defaults in several sessions that share branches; at every
// moment each branch has one owner at most, and nothing is attached by half.
func TestMembershipUnderConcurrency(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ss, bs := newWorld(t, rapid.IntRange(1, 3).Draw(t, "sessions"), rapid.IntRange(1, 5).Draw(t, "branches"))
		scripts := make([][]step, rapid.IntRange(2, 4).Draw(t, "goroutines"))
		for i := range scripts {
			scripts[i] = drawSteps(t, fmt.Sprint("script ", i), len(ss), len(bs), 25)
		}
		var wg, watch sync.WaitGroup
		done := make(chan struct{})
		var seen error
		watch.Go(func() {
			for seen == nil {
				seen = check(ss, bs)
				select {
				case <-done:
					return
				default:
				}
			}
		})
		errs := make([]error, len(scripts))
		for i, script := range scripts {
			wg.Go(func() {
				for _, st := range script {
					if errs[i] = st.do(ss, bs); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		close(done)
		watch.Wait()
		if err := errors.Join(append(errs, seen, check(ss, bs))...); err != nil {
			t.Fatal(err)
		}
	})
}

// S-01, S-03, S-05, S-06: the same steps one after another against a model that is a few lists.
func TestMembershipModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ss, bs := newWorld(t, 3, 6)
		order := make([][]*Branch, len(ss))
		def := make([]*Branch, len(ss))
		for i, s := range ss {
			order[i], def[i] = []*Branch{s.Default()}, s.Default()
		}
		owner := func(b *Branch) int {
			return slices.IndexFunc(order, func(list []*Branch) bool { return slices.Contains(list, b) })
		}
		for _, st := range drawSteps(t, "steps", len(ss), len(bs), 60) {
			n, s, b := st.session, ss[st.session], bs[st.batch[0]]
			switch st.what {
			case 0, 1, 2:
				var batch []*Branch
				foreign := false
				for _, i := range st.batch {
					batch = append(batch, bs[i])
					foreign = foreign || owner(bs[i]) >= 0 && owner(bs[i]) != n
				}
				if err := s.Include(batch...); errors.Is(err, ErrOwned) != foreign || (err != nil) != foreign {
					t.Fatalf("include: %v, foreign %v", err, foreign)
				}
				for _, b := range batch {
					if !foreign && !slices.Contains(order[n], b) {
						order[n] = append(order[n], b)
					}
				}
				if def[n] == nil && !foreign {
					def[n] = batch[0]
				}
			case 3, 4, 5:
				member := owner(b) == n
				if _, err := s.Remove(b.id); errors.Is(err, ErrNotFound) == member || (err == nil) != member {
					t.Fatalf("remove: %v, member %v", err, member)
				}
				order[n] = slices.DeleteFunc(order[n], func(other *Branch) bool { return other == b })
				if def[n] == b {
					def[n] = nil
					if len(order[n]) > 0 {
						def[n] = order[n][0]
					}
				}
			case 6, 7:
				first := s.Default()
				if first == nil {
					continue
				}
				if _, err := s.Remove(first.id); err != nil {
					t.Fatal(err)
				}
				order[n] = slices.DeleteFunc(order[n], func(other *Branch) bool { return other == first })
				def[n] = nil
				if len(order[n]) > 0 {
					def[n] = order[n][0]
				}
			case 8, 9:
				member := owner(b) == n
				if err := s.SetDefault(b.id); (err == nil) != member {
					t.Fatalf("set default: %v, member %v", err, member)
				}
				if member {
					def[n] = b
				}
			}
			for i, s := range ss {
				if !slices.Equal(s.Branches(), order[i]) || s.Default() != def[i] {
					t.Fatalf("session %d has %v and %v, want %v and %v", i, s.Branches(), s.Default(), order[i], def[i])
				}
			}
			if err := check(ss, bs); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// S-09: of many that include one branch at once, each with others around it in another order, exactly one wins.
func TestOneWins(t *testing.T) {
	for range 50 {
		var shared []*Branch
		for range 6 {
			b, err := NewBranch(BranchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			shared = append(shared, b)
		}
		wins := make([]*Session, 8)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range wins {
			batch := slices.Clone(shared)
			for n := range i {
				batch[0], batch[n%len(batch)] = batch[n%len(batch)], batch[0]
			}
			wg.Go(func() {
				<-start
				s, err := New(Options{Branches: batch})
				if err == nil {
					wins[i] = s
				} else if !errors.Is(err, ErrOwned) {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		wins = slices.DeleteFunc(wins, func(s *Session) bool { return s == nil })
		if len(wins) != 1 {
			t.Fatalf("%d have won", len(wins))
		}
		for _, b := range shared {
			if b.at.Load().owner != wins[0] {
				t.Fatal("a branch belongs to somebody who has lost")
			}
		}
	}
}

// S-11, S-12: any sequence of adding, replacing, splitting and hiding on a family of clones against plain lists of texts.
func TestMessagesModel(t *testing.T) {
	type entry struct {
		text    string
		visible bool
	}
	rapid.Check(t, func(t *rapid.T) {
		first, err := NewBranch(BranchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		branches, model := []*Branch{first}, [][]entry{nil}
		for n := range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, len(branches)-1).Draw(t, "branch")
			b, text := branches[i], fmt.Sprint(n)
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what <= 3:
				if _, err := b.Add(Message{Role: Instruction, Text: text}); err != nil {
					t.Fatal(err)
				}
				model[i] = append(model[i], entry{text, true})
			case what == 4:
				if _, err := b.Add(Message{Role: System, Text: "s" + text}); err != nil {
					t.Fatal(err)
				}
				if len(model[i]) > 0 && model[i][0].text[0] == 's' {
					model[i][0].text = "s" + text
				} else {
					model[i] = slices.Insert(model[i], 0, entry{"s" + text, true})
				}
			case what <= 6 && len(branches) < 6:
				branches = append(branches, b.Clone())
				model = append(model, slices.Clone(model[i]))
			case what == 7 && len(model[i]) > 0:
				at := rapid.IntRange(0, len(model[i])-1).Draw(t, "at")
				m := b.Messages()[at]
				m.Text += "+"
				if _, err := b.Add(m); err != nil {
					t.Fatal(err)
				}
				model[i][at].text += "+"
			case what == 8:
				var ids []ident.ID
				for at, m := range b.Messages() {
					model[i][at].visible = rapid.Bool().Draw(t, "visible")
					if model[i][at].visible {
						ids = append(ids, m.ID)
					}
				}
				if err := b.SetVisible(ids...); err != nil {
					t.Fatal(err)
				}
			case what == 9:
				b.Messages() // works its copies out
			}
		}
		for i, b := range branches {
			var all, seen []string
			for _, m := range b.Visible() {
				seen = append(seen, m.Text)
			}
			for _, m := range b.Messages() {
				all = append(all, m.Text)
				if at, err := b.Message(m.ID); err != nil || at.Text != m.Text {
					t.Fatalf("branch %d does not find %s: %v", i, m.ID, err)
				}
			}
			var wantAll, wantSeen []string
			for _, e := range model[i] {
				wantAll = append(wantAll, e.text)
				if e.visible {
					wantSeen = append(wantSeen, e.text)
				}
			}
			if !slices.Equal(all, wantAll) || !slices.Equal(seen, wantSeen) || b.Len() != len(wantAll) {
				t.Fatalf("branch %d has %q, shows %q; want %q, %q", i, all, seen, wantAll, wantSeen)
			}
		}
	})
}
