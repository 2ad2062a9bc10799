package supervise_test

import (
	"encoding/json"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
)

// P-066: a python kernel that sends more than it may is not kept at its word: what is beyond a mebibyte goes, and is said to be cut.
func TestTracesAreBounded(t *testing.T) {
	h := pykerneltest.New(t, probed)
	id := ident.New(time.Now()).String()
	_, cell := h.Open("a", `import soma_wire
def change(path, n): return {'path': path, 'kind': 'changed', 'diff': 'x' * n, 'truncated': False}
changes = [change('a', 700_000), change('b', 700_000), change('c', 1_000), change('d' * 400_000, 0), change('e', 1)]
probe.api._link.send(soma_wire.encode({'type': 'trace', 'cell': '`+id+`', 'changes': changes}), 'trace', True)`)
	if m := h.Outcome(cell); m.Status != pykernel.CellOK {
		t.Fatalf("%+v", m)
	}
	h.Until("the trace", func() bool { return h.Count(`select count(*) from cell_trace where cell = ?`, id) == 1 })
	var body []byte
	err := h.Store.Query(t.Context(), `select body from cell_trace`, nil, func(scan func(...any) error) error { return scan(&body) })
	var changes []pykernel.Change
	if err == nil {
		err = json.Unmarshal(body, &changes)
	}
	if err != nil || len(changes) != 3 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	for i, want := range []struct {
		path      string
		diff      int
		truncated bool
	}{{"a", 700_000, false}, {"b", 0, true}, {"c", 1_000, false}} {
		if c := changes[i]; c.Path != want.path || len(c.Diff) != want.diff || c.Truncated != want.truncated {
			t.Errorf("of %s there are %d bytes, truncated %v", c.Path, len(c.Diff), c.Truncated)
		}
	}
}
