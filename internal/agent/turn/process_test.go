package turn

import (
	"errors"
	"strings"
	"testing"
)

// K-01: the moves are these and no others; an illegal one is a typed error, and the diagram shows the table.
func TestMove(t *testing.T) {
	legal := map[Status][]Status{
		Created:    {Ready, Terminated},
		Ready:      {Running, Blocked, Terminated},
		Running:    {Ready, Blocked, Terminated},
		Blocked:    {Ready, Terminated},
		Terminated: {},
	}
	diagram := Diagram()
	for from, to := range legal {
		for next := range legal {
			want := false
			for _, s := range to {
				want = want || s == next
			}
			err := Move(from, next)
			if (err == nil) != want {
				t.Errorf("Move(%s, %s) = %v", from, next, err)
			}
			var move *MoveError
			if !want && (!errors.Is(err, ErrIllegalMove) || !errors.As(err, &move) || move.From != from || move.To != next) {
				t.Errorf("Move(%s, %s): error %#v", from, next, err)
			}
			if shown := strings.Contains(diagram, "    "+string(from)+" --> "+string(next)+": "); shown != want {
				t.Errorf("the diagram shows %s --> %s: %v", from, next, shown)
			}
		}
	}
	if Move("nowhere", Ready) == nil {
		t.Error("a move from an unknown state is legal")
	}
}
