package engine

import "fmt"

// state is where an activation is; it has one job at most, from take until rest or more.
type state uint8

const (
	idle       state = iota // nothing to do: may be passivated
	queued                  // in the run queue
	busy                    // on a worker
	committing              // its record is at the committer
)

// event moves an activation.
type event uint8

const (
	arrive event = iota // a delivery came into the mailbox
	take                // a worker took it from the run queue
	stage               // its record went to the committer
	more                // the job is over and deliveries wait
	rest                // the job is over and nothing waits
)

const never = state(255)

// moves is the life of an activation: moves[state][event].
var moves = [...][5]state{
	//            arrive      take   stage       more    rest
	idle:       {queued, never, never, never, never},
	queued:     {queued, busy, never, never, never},
	busy:       {busy, never, committing, queued, idle},
	committing: {committing, never, committing, queued, idle},
}

func (s state) on(ev event) state {
	next := moves[s][ev]
	if next == never {
		panic(fmt.Sprintf("activation in state %d got event %d", s, ev))
	}
	return next
}
