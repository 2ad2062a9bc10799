package engine

import (
	"context"

	"soma/internal/feed"
	"soma/internal/neuron"
)

// journal is one feed of one neuron.
type journal struct {
	id   neuron.ID
	feed neuron.Feed
}

// Read returns up to limit entries (at most Limits.JournalEntries, which 0 means too) of a feed after the sequence. A reader
// behind what is kept gets a page with Reset set. The error is the store's, or neuron.ErrFenced.
func (e *Engine) Read(ctx context.Context, id neuron.ID, f neuron.Feed, after uint64, limit int) (neuron.Page, error) {
	if limit <= 0 || limit > e.limits.JournalEntries {
		limit = e.limits.JournalEntries
	}
	p, err := e.store.Entries(ctx, id, f, after, limit)
	if err == nil {
		err = e.Believes()
	}
	return p, err
}

// Watch follows a feed from the entry after the cursor, without polling. The caller closes the watcher; its Next returns
// feed.ErrClosed when the engine has stopped.
func (e *Engine) Watch(id neuron.ID, f neuron.Feed, after feed.Cursor) *feed.Watcher[neuron.Entry] {
	return e.journals.Watch(journal{id, f}, after, func(ctx context.Context, after uint64, limit int) (feed.Page[neuron.Entry], error) {
		p, err := e.Read(ctx, id, f, after, limit)
		if err != nil {
			return feed.Page[neuron.Entry]{}, err
		}
		page := feed.Page[neuron.Entry]{Gone: p.Reset, Reset: feed.Reset{First: p.First, Last: p.Last, Tallies: p.Tallies}}
		for i, entry := range p.Entries {
			page.Items = append(page.Items, feed.Item[neuron.Entry]{Seq: p.Seqs[i], Value: entry})
		}
		return page, nil
	})
}
