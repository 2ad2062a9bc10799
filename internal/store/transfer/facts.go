package transfer

import (
	"context"
	"fmt"
)

// Facts are what a person is told of a store that is copied: what is in it, and what is under way.
type Facts struct {
	Sessions    int64 `json:"sessions"`
	Messages    int64 `json:"messages"`
	Processes   int64 `json:"processes"`  // that have not ended
	Inferences  int64 `json:"inferences"` // executions under way: they are made again
	Kernels     int64 `json:"kernels"`    // python kernels that live
	Cells       int64 `json:"cells"`      // that run in them
	Deliveries  int64 `json:"deliveries"` // on their way
	DeadLetters int64 `json:"dead_letters"`
	LastAt      int64 `json:"last_at"` // of the newest message or event, Unix microseconds; 0 for none
}

// Look counts them.
func Look(ctx context.Context, from Source) (f Facts, err error) {
	for _, c := range []struct {
		into  *int64
		query string
	}{
		{&f.Sessions, `select count(*) from session`},
		{&f.Messages, `select count(*) from message`},
		{&f.Processes, `select count(*) from process where ended_at is null`},
		{&f.Inferences, `select count(*) from execution`},
		{&f.Kernels, `select count(*) from kernel where state <> 'ended'`},
		{&f.Cells, `select count(*) from cell where state <> 'ended'`},
		{&f.Deliveries, `select count(*) from outbox`},
		{&f.DeadLetters, `select count(*) from dead_letter`},
		{&f.LastAt, `select coalesce(max(at), 0) from event`},
	} {
		if *c.into, err = from.Number(ctx, c.query); err != nil {
			return f, fmt.Errorf("cannot look at the store: %w", err)
		}
	}
	return f, nil
}
