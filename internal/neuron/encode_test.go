package neuron

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/ident"
)

// What is written by hand is what encoding/json would write.
func TestEncodedByHand(t *testing.T) {
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "plain"}), rapid.String())
	ids := rapid.Custom(func(t *rapid.T) (id ident.ID) {
		if rapid.Bool().Draw(t, "set") {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), ident.Size, ident.Size).Draw(t, "id"))
		}
		return id
	})
	bodies := rapid.Custom(func(t *rapid.T) json.RawMessage {
		if !rapid.Bool().Draw(t, "set") {
			return nil
		}
		b, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "body"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
	same := func(t *rapid.T, got []byte, v any) {
		want, err := json.Marshal(v)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s\nwant %s, %v", got, want, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		x := Execution{ID: ids.Draw(t, "id"), Attempt: rapid.Int().Draw(t, "attempt"), Neuron: ID{"o", texts.Draw(t, "kind of neuron"), "k/y"},
			Kind: texts.Draw(t, "kind"), Policy: Policy(texts.Draw(t, "policy")), Input: bodies.Draw(t, "input"), Then: texts.Draw(t, "then"),
			Deadline: time.Duration(rapid.Int64().Draw(t, "deadline")), Depth: rapid.Int().Draw(t, "depth"),
			Correlation: ids.Draw(t, "correlation"), Causation: ids.Draw(t, "causation"),
			StartedAt: time.Unix(0, rapid.Int64().Draw(t, "at")).UTC(), Crashes: rapid.Int().Draw(t, "crashes"),
			Estimate: rapid.Int64().Draw(t, "estimate")}
		b, err := AppendExecution(nil, &x)
		if err != nil {
			t.Fatal(err)
		}
		same(t, b, &x)
		e := Ended{ID: x.ID, Attempt: x.Attempt, Status: Status(x.Kind), Payload: bodies.Draw(t, "payload"), Error: texts.Draw(t, "error")}
		same(t, AppendEnded(nil, &e), &e)
	})
	if _, err := AppendExecution(nil, &Execution{StartedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a time after the year 9999 was written")
	}
}
