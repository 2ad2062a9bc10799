package process

import (
	"context"
	"slices"
	"sync"

	"soma/ident"
	"soma/message"
)

// maxHistoryBytes bounds the histories kept in memory; past it those that were used longest ago go.
const maxHistoryBytes = 64 << 20

// histories keeps what the running branches hold, so that a step reads only the messages that are new. Committed messages
// never change, so what is kept cannot become wrong.
type histories struct {
	mu    sync.Mutex
	kept  map[ident.ID]*history
	bytes int
	clock uint64
}

type history struct {
	messages []message.Message // seq 1, 2, …; only ever appended to, so that readers may hold a prefix
	bytes    int
	used     uint64
}

// through returns the branch's messages 1 to last. The caller must not change them.
func (hs *histories) through(ctx context.Context, h *Host, branch ident.ID, last uint64) ([]message.Message, error) {
	known := hs.take(branch)
	if n := uint64(len(known)); n < last {
		more, bytes, err := messagesBetween(ctx, h.o.Reader, branch, n, last)
		if err != nil {
			return nil, err
		}
		known = hs.put(branch, known, more, bytes)
	}
	if uint64(len(known)) < last {
		return known, nil // the last rows were removed meanwhile
	}
	return slices.Clip(known[:last]), nil
}

func (hs *histories) take(branch ident.ID) []message.Message {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.clock++
	if k := hs.kept[branch]; k != nil {
		k.used = hs.clock
		return k.messages
	}
	return nil
}

// put appends more to what is kept of a branch, unless another step did so meanwhile.
func (hs *histories) put(branch ident.ID, known, more []message.Message, bytes int) []message.Message {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.kept == nil {
		hs.kept = map[ident.ID]*history{}
	}
	k := hs.kept[branch]
	if k == nil {
		k = &history{used: hs.clock}
		hs.kept[branch] = k
	}
	if len(k.messages) != len(known) {
		return append(slices.Clip(known), more...)
	}
	k.messages = append(k.messages, more...)
	k.bytes += bytes
	hs.bytes += bytes
	for hs.bytes > maxHistoryBytes && len(hs.kept) > 1 {
		hs.dropOldest()
	}
	return k.messages
}

func (hs *histories) dropOldest() {
	var oldest ident.ID
	var found *history
	for id, k := range hs.kept {
		if found == nil || k.used < found.used {
			oldest, found = id, k
		}
	}
	hs.bytes -= found.bytes
	delete(hs.kept, oldest)
}

// forget drops a branch that nothing works on any more.
func (hs *histories) forget(branch ident.ID) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if k := hs.kept[branch]; k != nil {
		hs.bytes -= k.bytes
		delete(hs.kept, branch)
	}
}
