package floor

import (
	"sync"
	"time"

	"soma/bench/measure"
)

type turn struct {
	actor, seq, id int64
	done           chan error
}

// queue holds the turns that clients wait for.
type queue struct {
	work chan *turn
	done sync.WaitGroup
	mu   sync.Mutex
	next []int64 // the last sequence of each actor
}

func newQueue() queue { return queue{work: make(chan *turn, 4096), next: make([]int64, actors)} }

// drive is what clients do for d: each waits for its turn's commit before it makes the next.
func (q *queue) drive(d time.Duration, clients int) (measure.Result, error) {
	return measure.Drive(d, clients, func(client, n int) error {
		a := int64(n*clients+client) % actors
		q.mu.Lock()
		q.next[a]++
		t := &turn{actor: a, seq: q.next[a], id: int64(n)<<16 | int64(client), done: make(chan error, 1)}
		q.mu.Unlock()
		q.work <- t
		return <-t.done
	})
}

// take waits for the next group; nil is the end.
func (q *queue) take() []*turn {
	first, ok := <-q.work
	if !ok {
		return nil
	}
	turns := []*turn{first}
	for len(turns) < group {
		select {
		case t, ok := <-q.work:
			if !ok {
				return turns
			}
			turns = append(turns, t)
		default:
			return turns
		}
	}
	return turns
}
