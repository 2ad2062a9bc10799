package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// agrees holds the cutting of valid JSON against encoding/json, and of anything else against running past its end.
func agrees(t *testing.T, in []byte) {
	t.Helper()
	object, isObject := members(in)
	list, isList := elements(in)
	got, isText := text(in)
	if !json.Valid(in) || !utf8.Valid(in) {
		return
	}
	in = bytes.TrimSpace(in)
	var wantObject map[string]json.RawMessage
	if want := in[0] == '{'; isObject != want || want && json.Unmarshal(in, &wantObject) != nil {
		t.Fatalf("members(%q) is %v", in, isObject)
	}
	if len(object) != len(wantObject) {
		t.Fatalf("members(%q) are %q", in, object)
	}
	for name, v := range wantObject {
		if !bytes.Equal(object[name], v) {
			t.Fatalf("members(%q)[%q] is %q, want %q", in, name, object[name], v)
		}
		agrees(t, v)
	}
	var wantList []json.RawMessage
	if want := in[0] == '['; isList != want || want && json.Unmarshal(in, &wantList) != nil {
		t.Fatalf("elements(%q) is %v", in, isList)
	}
	if len(list) != len(wantList) {
		t.Fatalf("elements(%q) are %q", in, list)
	}
	for i, v := range wantList {
		if !bytes.Equal(list[i], v) {
			t.Fatalf("elements(%q)[%d] is %q, want %q", in, i, list[i], v)
		}
		agrees(t, v)
	}
	var want string
	if in[0] == '"' && json.Unmarshal(in, &want) == nil && isText && got != want {
		t.Fatalf("text(%q) is %q, want %q", in, got, want)
	}
}

var split = []string{
	`{}`, ` { } `, `[]`, ` [ ] `, `""`, `null`, `1`, `-1.5e+3`, `{"a":1}`, ` { "a" : 1 , "b" : [ ] , "a" : { "c" : "}" } } `,
	`[1,2 , "x,]" ,{"a":[[]]},null,true]`, `{"\"":"\\"}`, `{"a\\":"\\\""}`, `"a\"b\\"`, `"\\\\\""`, `"\u00e9\ud83d\ude00\ud800\udc00x"`,
	`"\ud800"`, `"\ud800\ud800\udc00"`, `"\ud800x\udc00"`, `"\udc00\ud800"`, `"\ud800\n"`, `"\/\b\f\n\r\t"`, `"é€😀"`, `{"\u0061":1}`,
}

// An output's object is cut as encoding/json cuts it.
func TestSplit(t *testing.T) { // P-210
	for _, in := range split {
		if !json.Valid([]byte(in)) {
			t.Fatalf("%q is not valid", in)
		}
		agrees(t, []byte(in))
		if in[0] == '"' {
			if _, ok := text([]byte(in)); !ok {
				t.Errorf("text(%q) is refused", in)
			}
		}
		for n := range in { // cut short, and with a byte changed
			agrees(t, []byte(in[:n]))
			for _, c := range "{}[]\",:\\ u0" {
				agrees(t, []byte(in[:n]+string(c)+in[n+1:]))
			}
		}
	}
	for _, in := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1,}`, `{"a" 1}`, `{1:2}`, `{,}`, `x`} {
		if m, ok := members([]byte(in)); ok {
			t.Errorf("members(%q) are %q", in, m)
		}
	}
	for _, in := range []string{``, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `x`} {
		if m, ok := elements([]byte(in)); ok {
			t.Errorf("elements(%q) are %q", in, m)
		}
	}
}

func FuzzSplit(f *testing.F) { // P-210
	for _, in := range split {
		f.Add([]byte(in))
	}
	f.Fuzz(agrees)
}

// A done keeps what it says, whatever its text holds.
func TestDoneText(t *testing.T) { // P-036
	out := strings.Repeat("line \"é€😀\"\\\t\x01\u2028</script>\n", 1000)
	frame, err := json.Marshal(map[string]any{"seq": 1, "ack": 0, "frame": map[string]any{
		"type": "done", "cell": "c", "status": "ok", "started_at": 1, "duration_ms": 2, "value": "v", "wake": false,
		"output": map[string]any{"head": out, "tail": "t\"", "size": 7, "spill": map[string]any{"path": "/p", "size": 5, "whole": true}},
		"images": []any{map[string]any{"media": "image/png", "data": "AAAA", "name": "a.png"}}, "later": "x",
	}})
	if err != nil {
		t.Fatal(err)
	}
	u, err := Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	d := u.Frame.Done
	if d.Output.Head != out || d.Output.Tail != `t"` || d.Output.Size != 7 || *d.Value != "v" || *d.Wake || d.DurationMS != 2 {
		t.Errorf("the done is %.200s", fmt.Sprint(*d))
	}
	if s := d.Output.Spill; s == nil || s.Path != "/p" || s.Size != 5 || !s.Whole {
		t.Errorf("the spill is %v", s)
	}
	if len(d.Images) != 1 || len(d.Images[0].Data) != 3 || d.Images[0].Name != "a.png" {
		t.Errorf("the images are %v", d.Images)
	}
}

func BenchmarkDone(b *testing.B) {
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 10_480)
	frame, err := json.Marshal(map[string]any{"seq": 1, "ack": 0, "frame": map[string]any{
		"type": "done", "cell": "c", "status": "ok", "started_at": 1, "duration_ms": 1,
		"output": map[string]any{"head": text, "tail": text[:64<<10], "size": 10_000_000},
	}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Parse(frame); err != nil {
			b.Fatal(err)
		}
	}
}
