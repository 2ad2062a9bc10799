package model

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	"soma/message"
)

// K-31: what may be tried again, how often, and after which wait.
func TestRetryDelay(t *testing.T) {
	for _, c := range []struct {
		class    Class
		failures int
		after    time.Duration
		wait     time.Duration
		again    bool
	}{
		{Retryable, 1, 0, 500 * time.Millisecond, true},
		{Retryable, 1, 3 * time.Second, 3 * time.Second, true},
		{Retryable, 1, time.Minute, time.Minute, true},
		{Retryable, 1, time.Minute + 1, 0, false},
		{Retryable, 2, 0, 0, false},
		{Fatal, 1, 0, 0, false},
		{BadRequest, 1, time.Second, 0, false},
		{TooLong, 1, 0, 0, false},
	} {
		if wait, again := RetryDelay(c.class, c.failures, c.after); wait != c.wait || again != c.again {
			t.Errorf("%+v: %v, %v", c, wait, again)
		}
	}
}

// K-31: Retry-After in all its forms.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", " 1.5 ", 1500 * time.Millisecond},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After-Ms", "0.5", 500 * time.Microsecond},
		{"Retry-After", "Wed, 02 Jan 2030 03:04:35 GMT", 30 * time.Second},
		{"Retry-After", "Wed, 02 Jan 2030 03:04:00 GMT", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "-5", 0},
		{"Retry-After", "NaN", 0},
		{"X", "1", 0},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %s: %v, want %v", c.name, c.value, got, c.want)
		}
	}
	h := http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"100"}}
	if got := RetryAfter(h, now); got != 100*time.Millisecond {
		t.Errorf("both: %v", got)
	}
	h = http.Header{"Retry-After": {"1e300"}}
	if got := RetryAfter(h, now); got <= MaxRetryAfter {
		t.Errorf("huge: %v", got)
	}
}

// K-31
func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   Class
	}{
		{429, "", Retryable}, {429, "rate_limit_exceeded", Retryable}, {429, "insufficient_quota", Fatal},
		{500, "", Retryable}, {502, "", Retryable}, {503, "", Retryable}, {524, "", Retryable}, {529, "", Retryable}, {408, "", Retryable},
		{401, "", Fatal}, {402, "", Fatal}, {403, "", Fatal},
		{400, "", BadRequest}, {404, "model_not_found", BadRequest}, {422, "", BadRequest}, {400, "context_length_exceeded", TooLong},
	} {
		if got := ClassOf(c.status, c.code); got != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.code, got, c.want)
		}
	}
}

// K-30: an answer is put together from its events, and events survive their JSON form.
func TestAnswer(t *testing.T) {
	events := []Event{
		{Kind: Reasoning, Text: "hm"}, {Kind: Token, Text: "Hel"}, {Kind: Token, Text: "lo"},
		{Kind: ToolCall, Call: &message.Call{ID: "c", Tool: "python", Arguments: json.RawMessage(`{"code":"1"}`)}},
		{Kind: Done, End: &End{Usage: message.Usage{Input: 1, Output: 2}, Stop: StopCalls, Opaque: []message.Opaque{{Family: "f", Kind: "k", Data: json.RawMessage(`"hm"`)}}}},
	}
	var a Answer
	for i, e := range events {
		if a.End != nil {
			t.Fatalf("complete before event %d", i)
		}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%s came back as %+v, %v", b, back, err)
		}
		a.Add(back)
	}
	want := message.Message{Role: message.Assistant, Text: "Hello", Calls: []message.Call{*events[3].Call}, Opaque: events[4].End.Opaque}
	if !reflect.DeepEqual(a.Message, want) || a.End == nil || a.End.Stop != StopCalls {
		t.Fatalf("%+v", a.Message)
	}
}

// K-09: no request with unpaired history goes out.
func TestCheck(t *testing.T) {
	call := message.Message{Role: message.Assistant, Calls: []message.Call{{ID: "a"}}}
	for name, r := range map[string]Request{
		"unpaired":   {Attempt: 1, Messages: []message.Message{call}},
		"no attempt": {},
	} {
		if e := ErrorOf(r.Check()); e.Class != BadRequest {
			t.Errorf("%s: %v", name, e)
		}
	}
	if err := (Request{Attempt: 1, Messages: []message.Message{call, {Role: message.Tool, CallID: "a"}}}).Check(); err != nil {
		t.Error(err)
	}
	if e := ErrorOf(errors.New("x")); e.Words != "x" || e.Class != BadRequest {
		t.Errorf("%+v", e)
	}
}
