package soma_test

import (
	"strconv"
	"strings"
	"testing"
)

// public are the areas that programs of others import.
var public = []string{"session", "hook", "message", "ident", "client", "wire"}

// No exported signature of a public package names an internal type: no public package imports an internal one at all, so that
// neither a type, nor an alias, nor something embedded can.
func TestPublicPackagesNameNothingInternal(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if !within(s.room, public...) {
			if !tooling(s.room) && !within(s.room, "internal", "cmd", "web") {
				t.Errorf("%s is neither internal nor in the list of what is public", s.path)
			}
			continue
		}
		seen[strings.SplitN(s.room, "/", 2)[0]] = true
		for _, spec := range s.file.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			if to, ok := strings.CutPrefix(p, module+"/"); ok && !within(to, public...) {
				t.Errorf("%s: a public package imports %s", s.at(spec), to)
			}
			if strings.Contains(p, ".") {
				t.Errorf("%s: a public package imports %s, another module's", s.at(spec), p)
			}
		}
	}
	if len(seen) != len(public) {
		t.Errorf("public packages were looked for in %v, found in %v", public, seen)
	}
}
