package neuron

import (
	"cmp"
	"slices"
)

// Op is one typed write of a turn, a value that the committer hands to the store. Ops are declared by the room that owns
// the table. One Op value belongs to one record and is not reused.
type Op interface {
	// SQL returns the statement with ? placeholders: a constant text, prepared once, that all engines share.
	SQL() string
	// Args returns the column values in the order of the placeholders: nil, int64, float64, string, []byte or bool.
	Args() []any
}

// Guarded is an Op that must change exactly one row; where it does not, the record fails with the error of Guard.
type Guarded interface {
	Op
	Guard() error
}

// Shared is an Op, Guarded or not, on a row that neurons of other places change as well, at the same time, from other nodes. A store
// runs the shared ops of a group first, right after it has checked the fence, in order of LockKey: so two nodes never wait
// for each other. They see nothing of what their group writes otherwise, and they carry no number.
type Shared interface {
	Op
	// LockKey names the row over all tables, such as "budget/<id>".
	LockKey() string
}

// SharedOp is a shared op and the index of its record.
type SharedOp struct {
	Record int
	Op     Shared
	key    string
}

// SharedOps returns the shared ops of a group in the order in which a store runs them.
func SharedOps(group []*Record) []SharedOp {
	var all []SharedOp
	for i, r := range group {
		for _, op := range r.Ops {
			if s, ok := op.(Shared); ok {
				all = append(all, SharedOp{i, s, s.LockKey()})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b SharedOp) int { return cmp.Compare(a.key, b.key) })
	return all
}

// Numbered is an Op that carries the next number of a sequence. The committer gives the number when the record enters a
// group, and gives it anew when the group is redone, so numbers follow the order of commits.
type Numbered interface {
	Op
	// Sequence names the counter: the name of a Sequence, and the key within it.
	Sequence() (name, key string)
	// SetNumber is called before Args.
	SetNumber(n uint64)
}

// Sequence tells how a class of counters is loaded and saved. Numbers start at 1.
type Sequence struct {
	Name string
	// Last is a query for the last number given: one placeholder (the key), one column; no row means 0.
	Last string
	// Save is a statement with the placeholders (number, key); it runs once a group for each counter that moved, after
	// the group's other writes. It is empty where Last finds the number in the numbered rows, none of which ever goes.
	Save string
}
