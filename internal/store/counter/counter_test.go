package counter

import (
	"errors"
	"fmt"
	"testing"

	"soma/internal/neuron"
)

var rows = []neuron.Sequence{{Name: "n", Last: "last", Save: "save"}, {Name: "unsaved", Last: "last"}}

func load(t *testing.T, c *Counters, k Key, last int64) {
	t.Helper()
	if err := c.Load(k, func(string) (int64, error) { return last, nil }); err != nil {
		t.Fatal(err)
	}
}

// M-04: numbers go on from the row, are given again where a group was dropped, and are asked for again once forgotten.
func TestNumbers(t *testing.T) {
	c, err := New(rows)
	if err != nil {
		t.Fatal(err)
	}
	k, other := Key{"n", "a"}, Key{"unsaved", "a"}
	load(t, c, k, 7)
	load(t, c, other, 0)
	if a, b, d := c.Next(k, 0), c.Next(k, 3), c.Next(other, 4); a != 8 || b != 9 || d != 1 {
		t.Errorf("numbers %d, %d, %d", a, b, d)
	}
	if m := c.Moved(); len(m) != 1 || m[0] != (Moved{k, 9, 3, "save"}) {
		t.Errorf("moved: %+v", m)
	}
	c.Drop()
	if n := c.Next(k, 0); n != 8 {
		t.Errorf("after a dropped group: %d", n)
	}
	c.Keep()
	load(t, c, k, 100) // it is known: nobody is asked
	if n := c.Next(k, 0); n != 9 {
		t.Errorf("after a committed group: %d", n)
	}
	c.Forget()
	load(t, c, k, 100)
	if n := c.Next(k, 0); n != 101 {
		t.Errorf("after all was forgotten: %d", n)
	}
	why := errors.New("why")
	if err := c.Load(Key{"n", "b"}, func(string) (int64, error) { return 0, why }); !errors.Is(err, why) {
		t.Errorf("a row that cannot be read: %v", err)
	}
	if err := c.Load(Key{"unknown", "b"}, nil); err == nil {
		t.Error("a counter of no sequence was loaded")
	}
}

// Counters in memory are bounded, and go on from their rows when they were forgotten.
func TestBounded(t *testing.T) {
	c, err := New(rows)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * most {
		k := Key{"n", fmt.Sprint(i)}
		load(t, c, k, 0)
		c.Next(k, 0)
		c.Keep()
	}
	if len(c.known) > most || len(c.group) != 0 {
		t.Errorf("%d counters in memory, %d in the group", len(c.known), len(c.group))
	}
}

func TestSequencesAreComplete(t *testing.T) {
	for _, list := range [][]neuron.Sequence{{rows[0], rows[0]}, {{Name: "n", Save: "x"}}, {{Last: "x", Save: "y"}}} {
		if _, err := New(list); err == nil {
			t.Errorf("%+v was accepted", list)
		}
	}
}
