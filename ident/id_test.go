package ident

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// N-20: ids are 16 bytes and time-ordered, also when the clock stands still or goes back.
func TestNewIsOrdered(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	var last ID
	for i := range 200_000 {
		if i == 100_000 {
			now = now.Add(-time.Hour)
		}
		id := New(now)
		if slices.Compare(id[:], last[:]) <= 0 {
			t.Fatalf("id %d: %v does not sort after %v", i, id, last)
		}
		if id.String() <= last.String() {
			t.Fatalf("id %d: text %v does not sort after %v", i, id, last)
		}
		last = id
	}
}

func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), Size, Size).Draw(t, "id"))
		got, err := Parse(id.String())
		if err != nil || got != id {
			t.Fatalf("Parse(%q) = %v, %v", id.String(), got, err)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "x", "0000000000000000000000000u", "00000000000000000000000001", "0000000000000000000000000000"} {
		if id, err := Parse(s); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, id)
		}
	}
}

func TestDeriveAndAttempt(t *testing.T) {
	a := New(time.Now())
	if first, again := Derive(a, "x"), Derive(a, "x"); first != again || first == Derive(a, "y") {
		t.Error("Derive is not a function of its arguments")
	}
	if !Derive(a, "x").Time().Equal(a.Time()) {
		t.Error("Derive lost the time")
	}
	if got := a.WithAttempt(7); got.Attempt() != 7 || got.WithAttempt(0) != a {
		t.Errorf("WithAttempt: %v of %v", got, a)
	}
	if Named("a", "bc") == Named("ab", "c") {
		t.Error("Named does not part space and name")
	}
}

// At is where the ids of a time begin.
func TestAt(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	if id := At(now); !id.Time().Equal(now) || id.String() > Derive(id, "x").String() || At(now.Add(-time.Millisecond)).String() >= id.String() {
		t.Errorf("%v of %v", id, id.Time())
	}
	if id := At(time.Unix(-5, 0)); !id.IsZero() {
		t.Errorf("before 1970: %v", id)
	}
}
