package openai

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
	"soma/internal/agent/model"
)

func events(t interface{ Fatal(...any) }, r io.Reader) (out []string) {
	s := newReader(r, "text/event-stream")
	for {
		data, err := s.next()
		if len(data) > 0 {
			out = append(out, string(data))
		}
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// K-35: events come out the same whatever ends their lines, whatever stands between them and however the bytes arrive.
func TestEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r", "\r\n"})
		noise := rapid.SampledFrom([]string{"", ": ping", "event: x", "id: 7", "retry", "data:"})
		var wire strings.Builder
		var want []string
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			for range rapid.IntRange(0, 3).Draw(t, "noise") {
				// two more, for CR and LF make one line end; without a blank line an empty data would join what follows
				wire.WriteString(noise.Draw(t, "line") + end.Draw(t, "end") + "\n\n")
			}
			lines := rapid.SliceOfN(rapid.StringMatching(`[a-z{}: é]{0,8}[a-z]`), 1, 3).Draw(t, "data")
			for _, l := range lines {
				wire.WriteString("data: " + l + end.Draw(t, "end"))
			}
			wire.WriteString(end.Draw(t, "last") + end.Draw(t, "last"))
			want = append(want, strings.Join(lines, "\n"))
		}
		text := wire.String()
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(text), "one byte": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
			"error with data": iotest.DataErrReader(strings.NewReader(text)),
		} {
			if got := events(t, r); !slices.Equal(got, want) {
				t.Fatalf("%s: %q gives %q, want %q", name, text, got, want)
			}
		}
	})
}

// An answer with more calls than a message may have is refused, not cut.
func TestTooManyCalls(t *testing.T) {
	var b strings.Builder
	for i := range model.MaxCalls + 1 {
		fmt.Fprintf(&b, `data: {"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"name":"now","arguments":"{}"}}]}}]}`+"\n\n", i)
	}
	a, _, err := run(t, endpoint(t, 0, bytesOf(b.String()+"data: [DONE]\n\n")), ask())
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.BadRequest || a.End != nil {
		t.Fatalf("%v, %+v", err, a.End)
	}
}
