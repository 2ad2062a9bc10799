package neuron_test

import (
	"errors"
	"strings"
	"testing"

	"soma/internal/neuron"
)

// N-01: the text form is owner/kind/key, read strictly.
func TestParseID(t *testing.T) {
	longest := "o/k/" + strings.Repeat("x", neuron.MaxIDBytes-4)
	for _, text := range []string{"me/process/7", "a/b/c", "me/session/größe 1", longest} {
		id, err := neuron.ParseID(text)
		if err != nil || id.String() != text {
			t.Errorf("%q is %+v, %v", text, id, err)
		}
		var back neuron.ID
		if err := back.UnmarshalText([]byte(text)); err != nil || back != id {
			t.Errorf("%q unmarshals to %+v, %v", text, back, err)
		}
	}
	if id, err := neuron.ParseID("me/process/7"); err != nil || id != (neuron.ID{Owner: "me", Kind: "process", Key: "7"}) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, text := range []string{"", "/", "//", "a", "a/b", "a/b/", "a//c", "/b/c", "a/b/c/", "a/b/c/d", "a/b/c\x00", "a/b/c\xff", longest + "x"} {
		if id, err := neuron.ParseID(text); !errors.Is(err, neuron.ErrInvalidID) {
			t.Errorf("%q is %+v, %v", text, id, err)
		}
	}
}
