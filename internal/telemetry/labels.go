package telemetry

import (
	"strings"
	"sync"
)

// other stands for every value past a bound.
const other = "other"

// Bounds of labels whose values come from outside the wiring.
const (
	maxName   = 128 // bytes
	maxCodes  = 64  // of refusals, per kind
	maxModels = 64  // pairs of provider and model
)

// names is a set of label values that grows to a bound; what comes later is other. It is safe for concurrent use.
type names struct {
	most int

	mu    sync.Mutex
	known map[string]bool
}

func newNames(most int) *names { return &names{most: most, known: map[string]bool{}} }

// of returns the label of a value.
func (n *names) of(value string) string {
	if !plain(value) {
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[value] {
		if len(n.known) >= n.most {
			return other
		}
		n.known[value] = true
	}
	return value
}

// plain reports whether a value looks like a name and not like a path or a text.
func plain(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '/' || s[0] == '.' || s[0] == '~' {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@+", r))
	}) < 0
}

// among returns value if it is one of the list, else other.
func among(value string, list ...string) string {
	for _, v := range list {
		if v == value {
			return value
		}
	}
	return other
}
