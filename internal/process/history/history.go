package history

import (
	"container/list"
	"context"
	"slices"
	"sync"

	"soma/ident"
	"soma/message"
)

// maxBytes bounds the histories kept in memory; past it those that were used longest ago go.
const maxBytes = 64 << 20

// Branches keeps what the branches hold that are worked on: committed messages are added as they come, so that a step reads
// nothing. They never change, so what is kept cannot become wrong. The zero value is ready; it is safe for concurrent use.
type Branches struct {
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

// branchBytes is what one branch takes beside its messages.
const branchBytes = 256

// Reader reads the messages of a branch after one sequence through another, and the size of their bodies.
type Reader func(ctx context.Context, branch ident.ID, after, through uint64) (list []message.Message, bytes int, err error)

// Through returns the branch's messages 1 to last, and reads those that are not kept. The caller must not change them.
func (hs *Branches) Through(ctx context.Context, read Reader, branch ident.ID, last uint64) ([]message.Message, error) {
	known := hs.take(branch)
	if n := uint64(len(known)); n < last {
		more, bytes, err := read(ctx, branch, n, last)
		if err != nil {
			return nil, err
		}
		known = append(slices.Clip(known), more...)
		hs.put(branch, int(n), more, bytes)
	}
	return slices.Clip(known[:min(uint64(len(known)), last)]), nil
}

func (hs *Branches) take(branch ident.ID) []message.Message {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	e := hs.kept[branch]
	if e == nil {
		return nil
	}
	hs.order.MoveToBack(e)
	return e.Value.(*history).messages
}

// Committed adds a message that was just committed to what is kept of its branch, and begins with a branch's first one. size is
// that of its body in bytes.
func (hs *Branches) Committed(branch ident.ID, seq uint64, m message.Message, size int) {
	hs.put(branch, int(seq)-1, []message.Message{m}, size)
}

// put adds messages to the after first ones of a branch. What does not follow on what is kept changes nothing: it is there
// already, or a read fills the gap.
func (hs *Branches) put(branch ident.ID, after int, more []message.Message, bytes int) {
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
		bytes += branchBytes
	case len(e.Value.(*history).messages) != after:
		return
	}
	k := e.Value.(*history)
	k.messages = append(k.messages, more...)
	k.bytes += bytes
	hs.bytes += bytes
	hs.order.MoveToBack(e)
	for hs.bytes > maxBytes && hs.order.Len() > 1 {
		hs.drop(hs.order.Front())
	}
}

// Forget drops a branch that nothing works on any more.
func (hs *Branches) Forget(branch ident.ID) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if e := hs.kept[branch]; e != nil {
		hs.drop(e)
	}
}

// Clear drops all branches.
func (hs *Branches) Clear() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for hs.order.Len() > 0 {
		hs.drop(hs.order.Front())
	}
}

func (hs *Branches) drop(e *list.Element) {
	k := hs.order.Remove(e).(*history)
	hs.bytes -= k.bytes
	delete(hs.kept, k.branch)
}
