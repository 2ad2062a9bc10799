package tool

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func registry(t *testing.T) *Registry {
	t.Helper()
	r, err := NewRegistry(Python("- Sums are exact."), Definition{Name: "now", Schema: json.RawMessage(`{"type":"object"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// K-46: python is a tool with a description, required code and a bounded deadline.
func TestPython(t *testing.T) {
	r := registry(t)
	if d := r.List()[0]; d.Name != "python" || !strings.Contains(d.Description, "cell") || !strings.HasSuffix(d.Description, "\n- Sums are exact.") {
		t.Errorf("%+v", d)
	}
	for text, want := range map[string]time.Duration{
		`{"code":"1"}`:                      time.Hour,
		`{"code":"1","timeout_ms":1500}`:    1500 * time.Millisecond,
		`{"code":"1","timeout_ms":2e3}`:     2 * time.Second,
		`{"code":"1","timeout_ms":3600000}`: time.Hour,
	} {
		c := ParseCall("x", "python", text)
		if err := r.Check(c); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if code, d, err := PythonCall(c.Arguments); code != "1" || d != want || err != nil {
			t.Errorf("%s: %q, %v, %v", text, code, d, err)
		}
	}
}

// K-11: bad arguments never pass, the model reads where they went wrong, and what goes back is valid JSON.
func TestArguments(t *testing.T) {
	r := registry(t)
	for _, c := range []struct{ tool, text, want string }{
		{"python", `{"code":"1"}`, ""},
		{"python", " {\"code\":\"1\"}\n", ""},
		{"now", "", ""},
		{"now", "  ", ""},
		{"python", "", "missing properties: [\"code\"]"},
		{"python", `{"code":"print(1`, "break off at byte 16"},
		{"python", `{"code":"1"}{"code":"2"}`, "the second begins at byte 12"},
		{"python", `{"code":"1"} {"code":"2`, "the second begins at byte 13"},
		{"python", `{"code":"1"}]`, "at byte 12"},
		{"python", `{code:"1"}`, "from byte 1 on"},
		{"python", `print(1)`, "from byte 0 on"},
		{"python", `"print(1)"`, "must be a JSON object"},
		{"python", `null`, "must be a JSON object"},
		{"python", `{"code":1}`, "do not fit its schema"},
		{"python", `{"code":"1","timeout_ms":3600001}`, "do not fit its schema"},
		{"python", `{"code":"1","timeout_ms":0}`, "do not fit its schema"},
		{"python", `{"code":"1","timeout_ms":1.5}`, "do not fit its schema"},
		{"python", `{"code":"1","other":1}`, "do not fit its schema"},
		{"python", strings.Repeat("x", MaxArguments+1), "the limit is 1048576"},
		{"bash", `{}`, `there is no tool "bash"; the tools are: python, now`},
	} {
		call := ParseCall("id", c.tool, c.text)
		if !json.Valid(call.Arguments) || call.ID != "id" || call.Tool != c.tool {
			t.Errorf("%.40q: call %+v", c.text, call)
		}
		err := r.Check(call)
		var refusal *Refusal
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.40q: %v", c.text, err)
		case c.want != "" && (!errors.As(err, &refusal) || !strings.Contains(refusal.Text, c.want)):
			t.Errorf("%.40q: %v, want %q", c.text, err, c.want)
		}
	}
}

// K-11: whatever the model writes, what goes upstream is valid JSON and valid UTF-8, and a good value passes unchanged.
func TestAnyArguments(t *testing.T) {
	if c := ParseCall("id", "python", `{"code":"`+"\xff"+`"}`); !utf8.Valid(c.Arguments) || c.Malformed != "" {
		t.Errorf("bytes that are no UTF-8: %+v", c)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[{}\[\]":,a1 \\]{0,20}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "text")
		c := ParseCall("id", "python", text)
		if !json.Valid(c.Arguments) || !utf8.Valid(c.Arguments) || !utf8.ValidString(c.Malformed) {
			t.Fatalf("%+v", c)
		}
		good := json.Valid([]byte(text)) && utf8.ValidString(text)
		if good != (c.Malformed == "") && strings.TrimSpace(text) != "" && utf8.ValidString(text) {
			t.Fatalf("valid %v, malformed %q", good, c.Malformed)
		}
	})
}

func TestRegistryRefuses(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	for name, defs := range map[string][]Definition{
		"two tools":   {{Name: "a", Schema: object}, {Name: "a", Schema: object}},
		"bad name":    {{Name: "a b", Schema: object}},
		"type object": {{Name: "a", Schema: json.RawMessage(`{"type":"string"}`)}},
		"schema":      {{Name: "a", Schema: json.RawMessage(`{`)}},
	} {
		if _, err := NewRegistry(defs...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
