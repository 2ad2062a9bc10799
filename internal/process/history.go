package process

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"soma/ident"
	"soma/message"
)

// maxHistoryBytes bounds the histories kept in memory; past it those that were used longest ago go.
const maxHistoryBytes = 64 << 20

// histories keeps what the branches hold that are worked on: committed messages are added as they come, so that a step reads
// nothing. They never change, so what is kept cannot become wrong.
type histories struct {
	mu    sync.Mutex
	kept  map[ident.ID]*list.Element // of *history
	order list.List                  // longest unused first
	bytes int
}

type history struct {
	branch   ident.ID
	messages []message.Message // seq 1, 2, …; only ever appended to, so that readers may hold a prefix
	bytes    int
}

// historyBytes is what one branch takes beside its messages.
const historyBytes = 256

// through returns the branch's messages 1 to last. The caller must not change them.
func (hs *histories) through(ctx context.Context, h *Host, branch ident.ID, last uint64) ([]message.Message, error) {
	known := hs.take(branch)
	if n := uint64(len(known)); n < last {
		more, bytes, err := messagesBetween(ctx, h.o.Reader, branch, n, last)
		if err != nil {
			return nil, err
		}
		known = append(slices.Clip(known), more...)
		hs.put(branch, int(n), more, bytes)
	}
	return slices.Clip(known[:min(uint64(len(known)), last)]), nil
}

func (hs *histories) take(branch ident.ID) []message.Message {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	e := hs.kept[branch]
	if e == nil {
		return nil
	}
	hs.order.MoveToBack(e)
	return e.Value.(*history).messages
}

// committed adds a message that was just committed to what is kept of its branch, and begins with a branch's first one.
func (hs *histories) committed(m *insertMessage) {
	hs.put(m.branch, int(m.seq)-1, []message.Message{m.said}, m.size)
}

// put adds messages to the after first ones of a branch. What does not follow on what is kept changes nothing: it is there
// already, or a read fills the gap.
func (hs *histories) put(branch ident.ID, after int, more []message.Message, bytes int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	e := hs.kept[branch]
	switch {
	case e == nil && after > 0:
		return
	case e == nil:
		if hs.kept == nil {
			hs.kept = map[ident.ID]*list.Element{}
		}
		e = hs.order.PushBack(&history{branch: branch})
		hs.kept[branch] = e
		bytes += historyBytes
	case len(e.Value.(*history).messages) != after:
		return
	}
	k := e.Value.(*history)
	k.messages = append(k.messages, more...)
	k.bytes += bytes
	hs.bytes += bytes
	hs.order.MoveToBack(e)
	for hs.bytes > maxHistoryBytes && hs.order.Len() > 1 {
		hs.drop(hs.order.Front())
	}
}

// forget drops a branch that nothing works on any more.
func (hs *histories) forget(branch ident.ID) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if e := hs.kept[branch]; e != nil {
		hs.drop(e)
	}
}

// clear drops all branches.
func (hs *histories) clear() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for hs.order.Len() > 0 {
		hs.drop(hs.order.Front())
	}
}

func (hs *histories) drop(e *list.Element) {
	k := hs.order.Remove(e).(*history)
	hs.bytes -= k.bytes
	delete(hs.kept, k.branch)
}
