package shorten

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"soma/ident"
	"soma/message"
	"soma/wire"
)

// N-46: whatever an event's texts hold, its body is bounded and valid, what is cut is the beginning, and calls stay valid.
func TestEventsAreBounded(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := func(name string) string {
			part := rapid.SampledFrom([]string{"a", "é€😀", "\x01\x02", "<&>", "\"\\", "\u2028", "\xff"}).Draw(r, name)
			return strings.Repeat(part, rapid.SampledFrom([]int{0, 3, 300, 3000}).Draw(r, name+" times"))
		}
		value := text("value")
		m := wire.Message{Seq: 1, ID: ident.New(time.Now()).String(), At: time.Now(), Message: message.Message{Role: message.Assistant, Text: text("text"), Result: JSON(text("result"))}}
		call := message.Call{Tool: "python", Arguments: JSON(map[string]any{"code": text("code"), "timeout_ms": 5}), Malformed: text("malformed")}
		for i := range rapid.SampledFrom([]int{0, 1, 5, 128}).Draw(r, "calls") {
			call.ID = fmt.Sprintf("%064d", i)
			m.Message.Calls = append(m.Message.Calls, call)
		}
		var many []wire.Message
		for range rapid.SampledFrom([]int{1, 2, 400}).Draw(r, "messages") {
			many = append(many, m)
			many[len(many)-1].Message = message.Message{Role: message.User, Text: m.Message.Text}
		}
		many[0].Line = text("line") // one wake joins at a time
		shown := wire.Shown{Repair: text("repair")}
		var called []string
		for i := range rapid.SampledFrom([]int{0, 1, 6}).Draw(r, "notes") {
			shown.ImageErrors = append(shown.ImageErrors, text("image error"))
			called = append(called, text("name"))
			if i < 4 {
				shown.Images = append(shown.Images, wire.CellImage{N: i + 1, Media: text("media"), Name: text("file")})
			}
		}
		cells := make([]string, len(m.Message.Calls))
		for i := range cells {
			cells[i] = ident.New(time.Now()).String()
		}
		for _, body := range []any{
			wire.InputEvent{Text: text("input")}, wire.InputEvent{Line: text("line")}, wire.StepEndedEvent{Message: m, Cells: cells}, wire.StepStartedEvent{Messages: many, Model: strings.Repeat("m", 4096)},
			wire.ToolResultEvent{Value: &value, Output: text("output"), Tail: text("tail"), Error: text("error"), Note: text("note"), Shown: shown},
			wire.CellEvent{Output: text("output"), Tail: text("tail"), Cell: wire.Cell{Code: text("code"), Value: &value, Note: text("note"), Calls: called, Shown: shown,
				Error: &wire.CellFault{Type: text("type"), Message: text("message"), Traceback: text("trace")}}},
		} {
			b := Event(body)
			if len(b) > wire.MaxEvent || !json.Valid(b) || !utf8.Valid(b) {
				r.Fatalf("%T: %d bytes, valid %v: %.3000s", body, len(b), json.Valid(b), b)
			}
		}
		short := cutMessage(m, cutMessages)
		if short.Cut && !strings.HasPrefix(m.Message.Text, short.Message.Text) {
			r.Fatal("not the beginning")
		}
		for i, c := range short.Message.Calls {
			var a, whole struct{ Code string }
			if json.Unmarshal(c.Arguments, &a) != nil || json.Unmarshal(m.Message.Calls[i].Arguments, &whole) != nil || !strings.HasPrefix(whole.Code, a.Code) {
				r.Fatalf("call %s", c.Arguments)
			}
		}
	})
}
