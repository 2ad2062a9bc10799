package sqlrecord

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"soma/hook"
	"soma/ident"
	"soma/session"
)

type note struct {
	session.Envelope
	Text string `json:"text"`
	Bad  any    `json:"bad,omitempty"`
}

type loud struct{ session.Envelope }

func (loud) MarshalJSON() ([]byte, error) { panic(strings.Repeat("é", 1000)) }

func wrapped(data any) session.Signal { return session.Wrapped{Envelope: session.Envelope{Data: data}} }

func env(data any) session.Envelope {
	return session.Envelope{ID: ident.New(time.Now()), Time: time.Now(), Role: "r", Op: "op", Data: data}
}

// S-27, S-37: what is in a payload and what is not.
func TestPayload(t *testing.T) {
	id := ident.Named("test", "message")
	m := session.Message{ID: id, Role: session.Assistant, Sender: "a", Text: "never kept", Recipient: "b"}
	self := map[string]any{"k": 1}
	for _, key := range "abcdefghij" { // without a bound this would be looked at 10^16 times
		self[string(key)] = self
	}
	var nothing *note
	for name, c := range map[string]struct {
		signal session.Signal
		want   string
	}{
		"value":            {wrapped(map[string]int{"a": 1}), `{"a":1}`},
		"text":             {wrapped("x"), `"x"`},
		"nothing":          {wrapped(nil), `null`},
		"fields":           {note{Envelope: env(nil), Text: "t"}, `{"text":"t"}`},
		"fields and data":  {note{Envelope: env(5), Text: "t"}, `{"payload":5,"text":"t"}`},
		"data only":        {session.GateDenied{Envelope: env(5)}, `5`},
		"message":          {session.MessageAdded{Envelope: env(m)}, `{"message_ref":{"id":"` + id.String() + `","role":"assistant","sender":"a","recipient":"b"}}`},
		"message, pointer": {&session.MessageAdded{Envelope: env(&m), Branch: id}, `{"branch":"` + id.String() + `","message_ref":{"id":"` + id.String() + `","role":"assistant","sender":"a","recipient":"b"}}`},
		"message, bare":    {session.MessageAdded{Envelope: env(session.Message{ID: id})}, `{"message_ref":{"id":"` + id.String() + `"}}`},
		"no message":       {session.MessageAdded{Envelope: env("x")}, `{"message_ref":{}}`},
		"hook":             {session.HookSignal{Point: hook.ToolPre, Args: session.HookArgs{Tool: "t"}}, `{"args":{"tool":"t"},"point":"tool.pre"}`},
		"number":           {wrapped(math.Inf(1)), `"+Inf"`},
		"function":         {wrapped(func() {}), `"func()"`},
		"parts":            {note{Envelope: env(nil), Text: "t", Bad: map[string]any{"n": math.NaN(), "ok": []int{1}, "c": make(chan int)}}, `{"bad":{"c":"chan int","n":"NaN","ok":[1]},"text":"t"}`},
		"list":             {wrapped([]any{1, func() {}, struct{ A, b any }{"x", 2}}), `[1,"func()",{"A":"x"}]`},
		"complex":          {wrapped(complex(1, 2)), `"(1+2i)"`},
		"nil pointer":      {nothing, `{"sanitize_error":"*sqlrecord.note: runtime error: invalid memory address or nil pointer dereference"}`},
	} {
		if got := string(Payload(c.signal)); canonical(t, got) != canonical(t, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := Payload(wrapped(self)); !json.Valid(got) || len(got) > MaxPayload {
		t.Errorf("a cycle becomes %.100s", got)
	}
}

// canonical sorts the keys.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// S-27: what cannot be encoded says why, in 256 characters at most.
func TestComplaint(t *testing.T) {
	for name, s := range map[string]session.Signal{"panic": loud{}, "panic inside": wrapped(loud{})} {
		var got map[string]string
		if err := json.Unmarshal(Payload(s), &got); err != nil {
			t.Fatal(err)
		}
		if text := got["sanitize_error"]; len(got) != 1 || utf8.RuneCountInString(text) != 256 || !strings.HasSuffix(text, "éé") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// S-27: at most 16,384 bytes, also where escaping doubles every character, and as much of the data as there is room for.
func TestPayloadIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"plain": strings.Repeat("a", 20_000), "quotes": strings.Repeat(`"`, 20_000), "backslashes": strings.Repeat(`\`, 100_000),
		"control": strings.Repeat("\x01", 20_000), "markup": strings.Repeat("<", 20_000), "wide": strings.Repeat("語", 20_000),
		"dense head": strings.Repeat(`\"`, 5_000) + strings.Repeat("a", 50_000), "dense tail": strings.Repeat("a", 12_000) + strings.Repeat(`"`, 50_000),
		"invalid": strings.Repeat("\xff", 20_000), "lines": strings.Repeat("\u2028", 20_000), "huge": strings.Repeat(`a"`, 5_000_000),
	} {
		checkCut(t, name, text)
	}
	at := MaxPayload - 2
	if got := Payload(wrapped(strings.Repeat("a", at))); len(got) != MaxPayload || got[0] != '"' {
		t.Errorf("a payload that just fits has %d bytes", len(got))
	}
	if got := Payload(wrapped(strings.Repeat("a", at+1))); !strings.HasPrefix(string(got), `{"truncated":true,"original_bytes":16385,"data":"`) {
		t.Errorf("one byte more gives %.60s", got)
	}
}

// S-27
func TestPayloadIsBoundedForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a\"\\<&\n\x00é語😀\u2029")), 1, 40, -1).Draw(t, "part")
		tail := rapid.StringN(0, 40, -1).Draw(t, "tail")
		n := rapid.IntRange(1, 40_000).Draw(t, "length")
		checkCut(t, part, strings.Repeat(part, n/len(part)+1)+strings.Repeat(tail, n/(len(tail)+1)))
	})
}

type failing interface {
	Fatalf(format string, args ...any)
}

func checkCut(t failing, name, text string) {
	whole, _ := json.Marshal(text)
	got := Payload(wrapped(text))
	if len(got) > MaxPayload || !json.Valid(got) {
		t.Fatalf("%s: %d bytes, valid %v", name, len(got), json.Valid(got))
	}
	if len(whole) <= MaxPayload {
		if string(got) != string(whole) {
			t.Fatalf("%s: a payload of %d bytes was changed", name, len(whole))
		}
		return
	}
	var cut struct {
		Truncated bool   `json:"truncated"`
		Original  int    `json:"original_bytes"`
		Data      string `json:"data"`
	}
	if err := json.Unmarshal(got, &cut); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !cut.Truncated || cut.Original != len(whole) || !strings.HasPrefix(string(whole), cut.Data) {
		t.Fatalf("%s: %v of %d bytes, not a beginning: %.40q", name, cut.Truncated, cut.Original, cut.Data)
	}
	// One character more, at most four bytes or an escaped one, would not fit.
	if len(got) < MaxPayload-4 {
		t.Fatalf("%s: only %d bytes are used", name, len(got))
	}
}

// S-27: no room at all leaves the data empty.
func TestNothingFits(t *testing.T) {
	if got := prefix(`"""`, 1); got != "" {
		t.Errorf("got %q", got)
	}
	if got := prefix(`é"`, 3); got != "é" {
		t.Errorf("got %q", got)
	}
	if got := prefix("ab", 2); got != "ab" {
		t.Errorf("got %q", fmt.Sprint(got))
	}
}
