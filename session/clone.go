package session

import (
	"fmt"
	"maps"

	"soma/ident"
)

// Clone makes a free branch that goes on from here: the same messages under new ids, each with its Source, requests and
// responses linked to each other, what named this branch as sender or recipient naming the clone; the same visible subset,
// tools, models and metadata. Name, memory, operations, observer, hooks, callbacks, owner and log are not copied.
//
// It takes the same time whatever the number of messages: they are shared until one side changes, and the ids of the
// clone's follow from the clone's id and theirs.
func (b *Branch) Clone() *Branch {
	c := &Branch{id: ident.New(b.now()), created: b.now(), now: b.now}
	c.at.Store(&attachment{operations: &Operations{}})
	b.mu.Lock()
	defer b.mu.Unlock()
	c.messages = b.messages.split(b.id, c.id)
	c.tools, c.models, c.metadata = b.tools, b.models, maps.Clone(b.metadata)
	return c
}

// Inherit replaces the branch's messages by copies of the source's, as a clone of the source would have them. It takes the
// same time whatever their number. The error wraps ErrNeedsContext where the branch has persistence callbacks, ErrInvalid
// for the branch itself or nil.
func (b *Branch) Inherit(source *Branch) error {
	if source == nil || source == b {
		return fmt.Errorf("cannot inherit: %w source", ErrInvalid)
	}
	source.mu.Lock()
	got := source.messages.split(source.id, b.id)
	source.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.callbacks) > 0 {
		return fmt.Errorf("cannot inherit: %w", ErrNeedsContext)
	}
	b.messages = got
	return nil
}
