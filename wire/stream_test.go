package wire

import "testing"

func TestCursor(t *testing.T) { // I-22
	for text, want := range map[string]Cursor{
		"": {}, "0": {}, "7": {Seq: 7}, "g.7": {"g", 7}, "a.b-c_d.0": {"a.b-c_d", 0}, "g.9223372036854775807": {"g", 1<<63 - 1},
	} {
		got, err := ParseCursor(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if text != "" && got.String() != text {
			t.Errorf("%q comes back as %q", text, got)
		}
	}
	for _, text := range []string{".", ".7", "g.", "g", "-1", "g.-1", "g.1.x", "a b.1", "g.9223372036854775808", "g\n.1", " 1"} {
		if got, err := ParseCursor(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestValidID(t *testing.T) { // I-21
	long := make([]byte, MaxID)
	for i := range long {
		long[i] = 'a'
	}
	for _, id := range []string{"a", "A-Z_0.9", "...", string(long)} {
		if !ValidID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "a b", "ä", "a\x00", string(long) + "a"} {
		if ValidID(id) {
			t.Errorf("%q is taken", id)
		}
	}
}
