package wake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Bounds of one wake.
const (
	maxEnds    = 256 // that are known one by one, to be retired when they are read
	maxNotices = 8   // that the model reads in full, the newest
	maxLines   = 32  // that it reads in one line each, and people too
)

// News is what one wake tells: ends, in the order in which they came. The zero value tells nothing; it is a value.
type News struct {
	Ends []End `json:"ends"`
	More int   `json:"more,omitempty"` // further ends that are only counted
}

// Parse reads what String has written.
func Parse(text string) (News, error) {
	var n News
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return News{}, fmt.Errorf("cannot read a wake: %w", err)
	}
	return n, nil
}

// String is the form in which it is stored.
func (n News) String() string {
	b, err := json.Marshal(n)
	if err != nil { // plain strings and numbers
		panic(err)
	}
	return string(b)
}

// With returns the news with one end more. One that is told already stays as it is.
func (n News) With(e End) News {
	known := func(o End) bool { return o.Kind == e.Kind && o.ID == e.ID && o.Kernel == e.Kernel }
	switch {
	case slices.ContainsFunc(n.Ends, known):
	case len(n.Ends) < maxEnds:
		n.Ends = append(slices.Clone(n.Ends), e)
		if old := len(n.Ends) - 1 - maxNotices; old >= 0 { // only the newest are told with more than their line
			o := &n.Ends[old]
			o.Value, o.Note, o.Tail = "", "", ""
		}
	default:
		n.More++
	}
	return n
}

// Read returns the news after these ended cells and jobs of a python kernel were read, and whether that changed it.
func (n News) Read(kernel string, cells, jobs []string) (News, bool) {
	changed := false
	ends := slices.Clone(n.Ends)
	for i := range ends {
		e := &ends[i]
		ids := jobs
		if e.Kind == Cell {
			ids = cells
		}
		if !e.Read && e.Kernel == kernel && slices.Contains(ids, e.ID) {
			e.Read, changed = true, true
		}
	}
	n.Ends = ends
	return n, changed
}

// Unread returns the ends that nobody has read; none, and the wake has nothing to tell.
func (n News) Unread() []End {
	return slices.DeleteFunc(slices.Clone(n.Ends), func(e End) bool { return e.Read })
}

// Empty reports whether all that it tells was read.
func (n News) Empty() bool { return n.More == 0 && len(n.Unread()) == 0 }

// Line is what people read, a line for each end.
func (n News) Line() string {
	unread := n.Unread()
	var lines []string
	for _, e := range unread[:min(len(unread), maxLines)] {
		lines = append(lines, e.Line())
	}
	if more := len(unread) + n.More - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Notice is what the model reads.
func (n News) Notice() string {
	unread := n.Unread()
	parts := []string{"[Work in the background has ended. This message is not from a person: go on with what waited for it, or say what came of it.]"}
	full := max(0, len(unread)-maxNotices)
	if told := unread[:min(full, maxLines)]; len(told) > 0 {
		var lines []string
		for _, e := range told {
			lines = append(lines, fmt.Sprintf("%s [%s]", e.Line(), e.ID))
		}
		parts = append(parts, strings.Join(lines, "\n"))
	}
	if more := full - min(full, maxLines) + n.More; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more cells or jobs have ended, too.", more))
	}
	for _, e := range unread[full:] {
		parts = append(parts, e.notice())
	}
	return strings.Join(parts, "\n\n")
}
