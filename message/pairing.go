package message

import "fmt"

// CheckPaired reports the first place where history is not paired: each assistant message with k calls must be followed
// at once by k tool messages with the same ids in the same order (K-09). Notes are passed over, as no provider sees them.
// A nil error means that the history may be sent to a provider.
func CheckPaired(history []Message) error {
	var open []Call
	var at int
	for i, m := range history {
		switch {
		case m.Role == Note:
		case m.Role == Tool:
			if len(open) == 0 {
				return fmt.Errorf("message %d answers call %q, which no assistant message before it waits for", i, m.CallID)
			}
			if open[0].ID != m.CallID {
				return fmt.Errorf("message %d answers call %q where call %q of message %d is next", i, m.CallID, open[0].ID, at)
			}
			open = open[1:]
		case len(open) > 0:
			return fmt.Errorf("message %d (%s) stands before the result of call %q of message %d", i, m.Role, open[0].ID, at)
		case m.Role == Assistant:
			open, at = m.Calls, i
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("call %q of message %d has no result", open[0].ID, at)
	}
	return nil
}
