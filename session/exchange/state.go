package exchange

import "fmt"

// State says what is to be expected of somebody who is bound to a messenger.
type State uint8

// The states. Working is the first one.
const (
	Working  State = iota
	Done           // has done its part and can be woken up
	Finished       // gets no mail from messengers any more
)

var stateNames = [...]string{"working", "done", "finished"}

// String is the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// event is what happens to a state.
type event uint8

const (
	done event = iota
	finished
	wakeup // by another
	called // the owner uses its tool to send or to ask for help: it works
)

// transitions is the whole machine; what is not in it cannot happen.
var transitions = map[State]map[event]State{
	Working: {done: Done, finished: Finished, wakeup: Working, called: Working},
	Done:    {done: Done, finished: Finished, wakeup: Working, called: Working},
	// Finished is the end.
	Finished: {finished: Finished},
}

// next is the one transition function; it is false where the table has nothing.
func (s State) next(e event) (State, bool) {
	next, ok := transitions[s][e]
	return next, ok
}
