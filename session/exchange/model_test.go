package exchange_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/session"
	"soma/session/exchange"
)

// model is an exchange as simple as it can be: lists of letters.
type model struct {
	bound   int
	out     map[int][]copyOf // outbox, and what waits
	waiting map[int][]copyOf
	in      map[int][]copyOf // in the order of arrival
	dropped uint64
}

type copyOf struct{ n, from, to int } // to is -1 for a broadcast that is not collected yet

func (m *model) has(i int) bool { _, ok := m.in[i]; return ok }

func (m *model) collect(i, owners int) int {
	todo := m.waiting[i]
	lost := 0
	for _, l := range m.out[i] {
		if l.to >= 0 {
			todo = append(todo, l)
			continue
		}
		found := false
		for to := range owners {
			if to != i && m.has(to) {
				found = true
				todo = append(todo, copyOf{l.n, i, to})
			}
		}
		if !found {
			lost++
		}
	}
	m.out[i], m.waiting[i] = nil, nil
	counted := map[int]bool{}
	full := map[int]bool{}
	for _, l := range todo {
		if !m.has(l.to) {
			lost++
			continue
		}
		counted[l.n] = true
		if full[l.to] || len(m.in[l.to]) >= m.bound {
			full[l.to] = true
			m.waiting[i] = append(m.waiting[i], l)
			continue
		}
		m.in[l.to] = append(m.in[l.to], l)
	}
	m.dropped += uint64(lost)
	return len(counted)
}

// S-40, S-41, S-42, S-43, S-44, S-47: whatever is done in whatever order, the exchange holds what the model holds.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 4
		bound := rapid.IntRange(1, 5).Draw(t, "bound")
		x := exchange.New(exchange.Options{Bound: bound})
		m := &model{bound: bound, out: map[int][]copyOf{}, waiting: map[int][]copyOf{}, in: map[int][]copyOf{}}
		var ids []ident.ID
		for range most {
			ids = append(ids, ident.New(time.Now()))
		}
		who := func(label string) int { return rapid.IntRange(0, most-1).Draw(t, label) }
		sent := 0
		numbers := func(letters []session.Letter) (all []int) {
			for _, l := range letters {
				all = append(all, l.Content.(int))
			}
			return all
		}
		is := func(what string, got []int, want []copyOf) {
			var n []int
			for _, l := range want {
				n = append(n, l.n)
			}
			if !slices.Equal(got, n) {
				t.Fatalf("%s: %v, want %v", what, got, n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				i := who("owner")
				if err := x.Register(ids[i]); m.has(i) != errors.Is(err, session.ErrExists) {
					t.Fatalf("registering: %v", err)
				}
				if !m.has(i) {
					m.in[i] = []copyOf{}
				}
			},
			"unregister": func(t *rapid.T) {
				i := who("owner")
				if rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
					return
				}
				want := slices.Concat(m.waiting[i], m.out[i], m.in[i])
				is("unregistered", numbers(x.Unregister(ids[i])), want)
				m.dropped += uint64(len(want))
				delete(m.in, i)
				delete(m.out, i)
				delete(m.waiting, i)
			},
			"send": func(t *rapid.T) {
				from, to := who("from"), rapid.IntRange(-1, most-1).Draw(t, "to")
				var recipient ident.ID
				if to >= 0 {
					recipient = ids[to]
				}
				_, err := x.Send(ids[from], recipient, sent, "")
				switch {
				case !m.has(from):
					if !errors.Is(err, session.ErrNotFound) {
						t.Fatalf("an unknown sender: %v", err)
					}
				case len(m.out[from])+len(m.waiting[from]) >= bound:
					if !errors.Is(err, session.ErrFull) {
						t.Fatalf("a full outbox: %v", err)
					}
				default:
					if err != nil {
						t.Fatal(err)
					}
					m.out[from] = append(m.out[from], copyOf{sent, from, to})
				}
				sent++
			},
			"collect": func(t *rapid.T) {
				i := who("owner")
				n, err := x.Collect(context.Background(), ids[i])
				if !m.has(i) {
					if !errors.Is(err, session.ErrNotFound) {
						t.Fatalf("an unknown owner: %v", err)
					}
					return
				}
				if want := m.collect(i, most); err != nil || n != want {
					t.Fatalf("collected %d, want %d: %v", n, want, err)
				}
			},
			"sync": func(t *rapid.T) {
				n, err := x.Sync(context.Background())
				want := 0
				for i := range most { // ids are in the order in which they were made
					if m.has(i) {
						want += m.collect(i, most)
					}
				}
				if err != nil || n != want {
					t.Fatalf("collected %d, want %d: %v", n, want, err)
				}
			},
			"pop": func(t *rapid.T) {
				i, from := who("owner"), who("from")
				l, found := x.Pop(ids[i], ids[from])
				at := slices.IndexFunc(m.in[i], func(l copyOf) bool { return l.from == from })
				if found != (at >= 0) || found && l.Content != m.in[i][at].n {
					t.Fatalf("popped %v %v", l.Content, found)
				}
				if found {
					m.in[i] = slices.Delete(m.in[i], at, at+1)
				}
			},
			"drain": func(t *rapid.T) {
				i := who("owner")
				is("drained", waiting(x.Drain(ids[i])), m.waiting[i])
				delete(m.waiting, i)
			},
			"": func(*rapid.T) {
				for i, id := range ids {
					if x.Has(id) != m.has(i) {
						t.Fatalf("%d has a mailbox: %v", i, x.Has(id))
					}
					is("received", numbers(x.Receive(id)), m.in[i])
					is("pending", waiting(x.Pending(id)), m.waiting[i])
					for from, sender := range ids {
						only := slices.DeleteFunc(slices.Clone(m.in[i]), func(l copyOf) bool { return l.from != from })
						is("received of one", numbers(x.Receive(id, sender)), only)
					}
					if box, found := x.Get(id); found {
						is("outbox", numbers(box.Letters(exchange.Outbox)), m.out[i])
					}
				}
				if x.Dropped() != m.dropped {
					t.Fatalf("%d dropped, want %d", x.Dropped(), m.dropped)
				}
			},
		})
	})
}

func waiting(letters []exchange.Waiting) (all []int) {
	for _, w := range letters {
		all = append(all, w.Content.(int))
	}
	return all
}
