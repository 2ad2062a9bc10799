package message

import "testing"

// K-09
func TestCheckPaired(t *testing.T) {
	call := func(ids ...string) Message {
		m := Message{Role: Assistant}
		for _, id := range ids {
			m.Calls = append(m.Calls, Call{ID: id, Tool: "python"})
		}
		return m
	}
	res := func(id string) Message { return Message{Role: Tool, CallID: id} }
	user := Message{Role: User, Text: "hi"}
	note := Message{Role: Note, Text: "daemon restarted"}
	for name, c := range map[string]struct {
		history []Message
		paired  bool
	}{
		"empty":          {nil, true},
		"plain":          {[]Message{user, call()}, true},
		"two in order":   {[]Message{user, call("a", "b"), res("a"), res("b"), call()}, true},
		"note between":   {[]Message{user, call("a", "b"), res("a"), note, res("b")}, true},
		"swapped":        {[]Message{user, call("a", "b"), res("b"), res("a")}, false},
		"missing at end": {[]Message{user, call("a")}, false},
		"user between":   {[]Message{user, call("a"), user, res("a")}, false},
		"orphan":         {[]Message{user, res("a")}, false},
		"twice":          {[]Message{user, call("a"), res("a"), res("a")}, false},
	} {
		if err := CheckPaired(c.history); (err == nil) != c.paired {
			t.Errorf("%s: CheckPaired = %v, want paired %v", name, err, c.paired)
		}
	}
}
