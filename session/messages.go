package session

import (
	"fmt"
	"slices"

	"soma/ident"
)

// messages are those of one branch. A clone begins with an origin, what it was split from, and copies nothing: the messages
// of the origin are worked out when somebody reads them or one of them changes. The array of own may be shared with clones;
// they see it up to the length that it had then, so appending is free, and a change in place copies the array first.
type messages struct {
	origin *origin
	own    []*Message
	shared bool
	// index finds own messages by id; nil until it is needed.
	index map[ident.ID]int
	// visible are positions, ascending, of what a model sees among the first upTo messages; it sees all later ones. nil: all.
	visible []int
	upTo    int
	// system: the first message is a system message.
	system bool
}

// origin is what a branch held when it was split, seen by the clone.
type origin struct {
	before *origin // of the source itself
	own    []*Message
	n      int // messages in all
	source ident.ID
	clone  ident.ID
}

// split returns what a clone begins with.
func (ms *messages) split(source, clone ident.ID) messages {
	n := ms.len()
	if n == 0 {
		return messages{}
	}
	ms.shared = true
	o := &origin{before: ms.origin, own: ms.own, n: n, source: source, clone: clone}
	return messages{origin: o, visible: ms.visible, upTo: ms.upTo, system: ms.system}
}

func (ms *messages) before() int {
	if ms.origin == nil {
		return 0
	}
	return ms.origin.n
}

func (ms *messages) len() int { return ms.before() + len(ms.own) }

// all returns every message. What it returns is not to be changed.
func (ms *messages) all() []*Message {
	if ms.origin == nil {
		return ms.own
	}
	var chain []*origin
	for o := ms.origin; o != nil; o = o.before {
		chain = append(chain, o)
	}
	list := make([]*Message, 0, ms.len())
	for _, o := range slices.Backward(chain) {
		list = append(list, o.own...)
		from, to := o.source.String(), o.clone.String()
		for i, m := range list {
			list[i] = o.copy(m, from, to)
		}
	}
	ms.own, ms.origin, ms.shared, ms.index = append(list, ms.own...), nil, false, nil
	return ms.own
}

// copy is a message of the source as the clone has it: an id that follows from the clone and the source's, so that nothing needs
// to be remembered, and what named the source names the clone.
func (o *origin) copy(m *Message, from, to string) *Message {
	c := *m
	c.ID, c.Source = derived(o.clone, m.ID), m.ID
	if !m.Request.IsZero() {
		c.Request = derived(o.clone, m.Request)
	}
	if c.Sender == from {
		c.Sender = to
	}
	if c.Recipient == from {
		c.Recipient = to
	}
	return &c
}

func derived(clone, source ident.ID) ident.ID { return ident.Derive(clone, string(source[:])) }

// find returns the position of a message.
func (ms *messages) find(clone, id ident.ID) (int, bool) {
	if ms.index == nil {
		ms.index = make(map[ident.ID]int, len(ms.own))
		for i, m := range ms.own {
			ms.index[m.ID] = i
		}
	}
	if i, ok := ms.index[id]; ok {
		return ms.before() + i, true
	}
	if ms.origin == nil || [8]byte(id[:8]) != [8]byte(clone[:8]) { // derived ids begin with the clone's time
		return 0, false
	}
	ms.all()
	return ms.find(clone, id)
}

// put adds a message or replaces the one with its id. The error wraps ErrInvalid; nothing has changed then.
func (ms *messages) put(branch ident.ID, m *Message, known bool) error {
	if known {
		if at, ok := ms.find(branch, m.ID); ok {
			return ms.replace(at, m)
		}
	}
	switch {
	case m.Role != System:
		ms.own = append(ms.own, m)
		if ms.index != nil {
			ms.index[m.ID] = len(ms.own) - 1
		}
		return nil
	case ms.system:
		ms.all()
		return ms.replace(0, m)
	}
	list := append(make([]*Message, 0, ms.len()+1), m)
	ms.own, ms.index, ms.shared = append(list, ms.all()...), nil, false
	ms.system = true
	if ms.visible != nil {
		moved := append(make([]int, 0, len(ms.visible)+1), 0)
		for _, at := range ms.visible {
			moved = append(moved, at+1)
		}
		ms.visible, ms.upTo = moved, ms.upTo+1
	}
	return nil
}

func (ms *messages) replace(at int, m *Message) error {
	ms.all()
	old := ms.own[at]
	if (old.Role == System) != (m.Role == System) {
		return fmt.Errorf("%w message: %s is of the role %s and cannot become %s", ErrInvalid, m.ID, old.Role, m.Role)
	}
	if ms.shared {
		ms.own, ms.shared = slices.Clone(ms.own), false
	}
	ms.own[at] = m
	if ms.index != nil {
		delete(ms.index, old.ID)
		ms.index[m.ID] = at
	}
	return nil
}

// seen returns what a model sees.
func (ms *messages) seen() []*Message {
	all := ms.all()
	if ms.visible == nil {
		return all
	}
	list := make([]*Message, 0, len(ms.visible)+len(all)-ms.upTo)
	for _, at := range ms.visible {
		list = append(list, all[at])
	}
	return append(list, all[ms.upTo:]...)
}
