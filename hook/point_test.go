package hook

import (
	"errors"
	"slices"
	"testing"
)

// S-30: the vocabulary is closed.
func TestTable(t *testing.T) {
	want := []Point{
		"session.start", "session.end", "branch.create", "branch.end", "prompt.submit", "api.pre_call", "api.post_call",
		"api.stream_chunk", "tool.pre", "tool.post", "tool.error", "message.add", "artifact.created",
	}
	var got, blocking, unrecorded []Point
	for _, row := range Table() {
		got = append(got, row.Point)
		if row.Blocks {
			blocking = append(blocking, row.Point)
		}
		if !row.Recorded {
			unrecorded = append(unrecorded, row.Point)
		}
		if row.When == "" {
			t.Errorf("%s does not say when it is emitted", row.Point)
		}
		if p, err := Parse(string(row.Point)); err != nil || p != row.Point {
			t.Errorf("Parse(%q) = %q, %v", row.Point, p, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has %v, want %v", got, want)
	}
	if !slices.Equal(blocking, []Point{PromptSubmit, ToolPre}) {
		t.Errorf("%v block", blocking)
	}
	if !slices.Equal(unrecorded, []Point{MessageAdd}) {
		t.Errorf("%v leave no record", unrecorded)
	}
}

// S-30
func TestUnknownNames(t *testing.T) {
	for _, name := range []string{"", "tool", "tool.Pre", "tool.pre ", "before_tool_call"} {
		if p, err := Parse(name); !errors.Is(err, ErrUnknown) || p != "" {
			t.Errorf("Parse(%q) = %q, %v", name, p, err)
		}
		if _, err := Find(Point(name)); !errors.Is(err, ErrUnknown) {
			t.Errorf("Find(%q): %v", name, err)
		}
	}
	Table()[0].Point = "changed"
	if _, err := Find(SessionStart); err != nil {
		t.Error("who gets the table can change it")
	}
}
