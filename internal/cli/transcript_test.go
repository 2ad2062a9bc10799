package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"soma/client"
	"soma/internal/cli/plain"
	"soma/message"
	"soma/wire"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// play is a session's stream as a test writes it.
type play struct {
	seq    uint64
	at     time.Time
	frames []client.Frame
}

func (p *play) event(kind string, body any) *play {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if p.at.IsZero() {
		p.at = noon
	}
	p.seq++
	p.at = p.at.Add(500 * time.Millisecond)
	e := wire.Event{Session: "s", Seq: p.seq, PID: 7, Kind: kind, At: p.at, Body: text}
	p.frames = append(p.frames, client.Frame{Event: &e, Cursor: wire.Cursor{Generation: "g", Seq: p.seq}})
	return p
}

func (p *play) delta(step int64, attempt int, offset int64, text string) *play {
	d := wire.DeltaEvent{PID: 7, Step: step, Attempt: attempt, Offset: offset, Text: text}
	p.frames = append(p.frames, client.Frame{Delta: &d})
	return p
}

func (p *play) output(cell string, offset int64, text string) *play {
	p.frames = append(p.frames, client.Frame{Output: &wire.OutputEvent{Cell: cell, Offset: offset, Text: text}})
	return p
}

func (p *play) started(step int64, attempt int, joined ...string) *play {
	b := wire.StepStartedEvent{Step: step, Attempt: attempt, Turn: len(joined) > 0, Model: "m"}
	for _, text := range joined {
		b.Messages = append(b.Messages, wire.Message{Message: message.Message{Role: message.User, Text: text}})
	}
	return p.event(wire.StepStarted, b)
}

// answered commits an answer with one python call for each code; cells are named c<step>.<n>.
func (p *play) answered(step int64, attempt int, text string, codes ...string) *play {
	b := wire.StepEndedEvent{Step: step, Attempt: attempt, Message: wire.Message{Message: message.Message{Role: message.Assistant, Text: text}}}
	for i, code := range codes {
		args, _ := json.Marshal(map[string]string{"code": code})
		b.Message.Message.Calls = append(b.Message.Message.Calls, message.Call{ID: fmt.Sprint("call", i), Tool: "python", Arguments: args})
		b.Cells = append(b.Cells, fmt.Sprintf("c%d.%d", step, i))
	}
	return p.event(wire.StepEnded, b)
}

func (p *play) result(step int64, n int, output string, change ...func(*wire.ToolResultEvent)) *play {
	b := wire.ToolResultEvent{
		Step: step, Position: n, CallID: fmt.Sprint("call", n), Tool: "python", Cell: fmt.Sprintf("c%d.%d", step, n),
		Status: "ok", DurationMS: 310, Output: output, OutputSize: int64(len(output)),
	}
	for _, fn := range change {
		fn(&b)
	}
	return p.event(wire.ToolResult, b)
}

func (p *play) ended(why string, change ...func(*wire.TurnEndedEvent)) *play {
	b := wire.TurnEndedEvent{Why: why, Steps: 2, Cells: 1, Tokens: 1234}
	for _, fn := range change {
		fn(&b)
	}
	return p.event(wire.TurnEnded, b)
}

func (p *play) exited(code int, reason string) *play {
	return p.event(wire.ProcessExited, wire.StateEvent{State: wire.State{State: wire.Terminated, Reason: reason}, ExitCode: &code})
}

func (p *play) text(t testing.TB, colour bool) string {
	t.Helper()
	var out bytes.Buffer
	tr := newTranscript(newScreen(&out, colour))
	for _, f := range p.frames {
		if err := tr.frame(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.finish(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func lines(n int, word string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s %d\n", word, i+1)
	}
	return b.String()
}

// I-10: the transcript streams, and each thing stands in it once, whatever of the stream was lost or came twice.
func TestTranscript(t *testing.T) {
	value := "42"
	for _, c := range []struct {
		name string
		play *play
		want string
	}{
		{
			"a whole run",
			new(play).started(1, 1, "study this folder").delta(1, 1, 0, "I count ").delta(1, 1, 8, "files.").
				answered(1, 1, "I count files.", "n = 42\n\nn").output("c1.0", 0, "look").output("c1.0", 4, "ing\n").
				result(1, 0, "looking\n", func(b *wire.ToolResultEvent) { b.Value = &value }).
				started(2, 1).delta(2, 1, 0, "There are 42.").answered(2, 1, "There are 42.").
				ended("done").exited(0, "finished"),
			`> study this folder

I count files.

  | n = 42
  |
  | n
    looking
    = 42
  [ok, 0.31 s]

There are 42.

steps 2, cells 1, tokens 1234, cost unknown, seconds 2.5
`,
		},
		{
			"nothing live arrived",
			new(play).started(1, 1, "go").answered(1, 1, "Well.", "1").result(1, 0, "out\n").
				started(2, 1).answered(2, 1, "Done.").ended("done"),
			"> go\n\nWell.\n\n  | 1\n    out\n  [ok, 0.31 s]\n\nDone.\n\nsteps 2, cells 1, tokens 1234, cost unknown, seconds 2.5\n",
		},
		{
			"live text twice and with a gap",
			new(play).started(1, 1, "go").delta(1, 1, 0, "abc").delta(1, 1, 0, "abcd").delta(1, 1, 2, "cde").delta(1, 1, 7, "hi").
				answered(1, 1, "abcdefghi\n").ended("done"),
			"> go\n\nabcdefghi\n\nsteps 2, cells 1, tokens 1234, cost unknown, seconds 1.0\n",
		},
		{
			"a superseded attempt",
			new(play).started(1, 1, "go").delta(1, 1, 0, "I thi").
				event(wire.StepFailed, wire.StepFailedEvent{Step: 1, Attempt: 1, Class: "lost"}).
				event(wire.NoteAdded, wire.NoteEvent{Message: wire.Message{Message: message.Message{Role: message.Note, Text: "the daemon ended: made again"}}}).
				started(1, 2).delta(1, 1, 0, "I think").delta(1, 2, 0, "I kn").answered(1, 2, "I know.").ended("done"),
			`> go

I thi
* the text above was cut off and is not part of the conversation
* the daemon ended: made again

I know.

steps 2, cells 1, tokens 1234, cost unknown, seconds 2.5
`,
		},
		{
			"an attempt that was superseded unseen",
			new(play).started(1, 1, "go").delta(1, 1, 0, "Left").started(1, 2).answered(1, 2, "Right").ended("done"),
			"> go\n\nLeft\n* the text above was cut off and is not part of the conversation\n\nRight\n\nsteps 2, cells 1, tokens 1234, cost unknown, seconds 1.5\n",
		},
		{
			"what was committed is not what streamed",
			new(play).started(1, 1, "go").delta(1, 1, 0, "Left").answered(1, 1, "Right").ended("done"),
			"> go\n\nLeft\n* the text above was cut off and is not part of the conversation\n\nRight\n\nsteps 2, cells 1, tokens 1234, cost unknown, seconds 1.0\n",
		},
		{
			"cells that overlap are shown one after the other",
			new(play).started(1, 1, "go").answered(1, 1, "", "a()", "b()", "c()").output("c1.1", 0, "B1\n").output("c1.0", 0, "A1\n").
				output("c1.1", 3, "B2\n").result(1, 1, "B1\nB2\nB3\n").output("c1.0", 6, "A3\n").result(1, 0, "A1\nA2\nA3\n").
				result(1, 2, "", func(b *wire.ToolResultEvent) { b.Status, b.Error = "error", "Traceback\nZeroDivisionError: 1" }),
			`> go

  | a()
    A1
    A2
    A3
  [ok, 0.31 s]

  | b()
    B1
    B2
    B3
  [ok, 0.31 s]

  | c()
    Traceback
    ZeroDivisionError: 1
  [error, 0.31 s]
`,
		},
		{
			"much of everything",
			new(play).started(1, 1, lines(20, "say")).answered(1, 1, "", lines(40, "code")).output("c1.0", 0, lines(100, "out")).
				result(1, 0, lines(100, "out"), func(b *wire.ToolResultEvent) { b.Status, b.Note = "unknown", "names are gone" }),
			quote("> ", lines(12, "say")) + "> … 8 more lines\n\n" + quote("  | ", lines(24, "code")) + "  | … 16 more lines\n" +
				quote("    ", lines(30, "out")) + "    … 491 bytes more of output: soma logs --cell c1.0\n    names are gone\n" +
				"  [result unknown: it may have happened, and was not repeated, 0.31 s]\n",
		},
		{
			"sequences for the terminal",
			new(play).started(1, 1, "a\x1b[2Jb\x1b]52;c;aGk=\ac").delta(1, 1, 0, "red \x1b[3").delta(1, 1, 7, "1mtext\u009b1m\u202e!").
				answered(1, 1, "red \x1b[31mtext\u009b1m\u202e!", "1").output("c1.0", 0, "10%\r20%\r").output("c1.0", 8, "\nend\r\n").
				result(1, 0, "10%\r20%\r\nend\r\n"),
			"> abc\n\nred text1m!\n\n  | 1\n    10%\n    20%\n    end\n  [ok, 0.31 s]\n",
		},
		{
			"provider trouble, then pause and crashes",
			new(play).started(1, 1, "go").
				event(wire.StepFailed, wire.StepFailedEvent{Step: 1, Attempt: 1, Error: "429 slow down"}).
				event(wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Blocked, Reason: "provider delay", Detail: "429 slow down"}}).
				event(wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Blocked, Reason: "provider delay", Detail: "429 slow down"}}).
				event(wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Ready}}).
				event(wire.ProcessState, wire.StateEvent{State: wire.State{State: wire.Blocked, Reason: "paused"}}).
				started(1, 2).
				event(wire.NoteAdded, wire.NoteEvent{
					Message: wire.Message{Message: message.Message{Text: "the model could not be asked: no such model"}},
					State:   &wire.State{State: wire.Blocked, Reason: "waiting for input"},
				}).ended("failed", func(b *wire.TurnEndedEvent) { b.Words = "no such model" }),
			`> go
* waits: provider delay: 429 slow down
* paused; go on with soma resume
* the model could not be asked: no such model

steps 2, cells 1, tokens 1234, cost unknown, seconds 4.0
`,
		},
		{
			"killed: the figures come last",
			new(play).started(1, 1, "go").delta(1, 1, 0, "I was").ended("terminated", func(b *wire.TurnEndedEvent) { n := int64(12_345_678); b.Cost, b.Estimated = &n, true }).
				exited(137, "killed"),
			`> go

I was
* the text above was cut off and is not part of the conversation
* process 7 ended: killed (exit code 137)

steps 2, cells 1, tokens 1234, cost ~$0.0123, seconds 0.5
`,
		},
		{
			"a reset",
			new(play).started(1, 1, "go").delta(1, 1, 0, "half").reset(40).started(9, 1, "more").answered(9, 1, "whole"),
			"> go\n\nhalf\n* the daemon's store has no longer what came before: going on at event 40\n\n> more\n\nwhole\n",
		},
		{
			"cells without an agent",
			new(play).event(wire.CellStarted, wire.CellEvent{Cell: wire.Cell{ID: "x", Code: "1/0"}}).output("x", 0, "pr").
				event(wire.CellEnded, wire.CellEvent{
					Cell:   wire.Cell{ID: "x", Code: "1/0", Status: "error", OutputSize: 6, Error: &wire.CellFault{Type: "ZeroDivisionError", Message: "division by zero"}},
					Output: "print\n",
				}),
			"  | 1/0\n    print\n    ZeroDivisionError: division by zero\n  [error, 0.00 s]\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.play.text(t, false); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func (p *play) reset(last uint64) *play {
	p.seq = last
	p.frames = append(p.frames, client.Frame{Reset: &wire.ResetEvent{Last: last}, Cursor: wire.Cursor{Generation: "h", Seq: last}})
	return p
}

func quote(mark, text string) string {
	return mark + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+mark) + "\n"
}

// I-12: colour is for terminals; without it the text is the same.
func TestTranscriptColour(t *testing.T) {
	p := new(play).started(1, 1, "go").answered(1, 1, "Hm.", "1/0").
		result(1, 0, "", func(b *wire.ToolResultEvent) { b.Status, b.Error = "error", "boom" }).ended("done")
	coloured, bare := p.text(t, true), p.text(t, false)
	if !strings.Contains(coloured, ansiRed+"boom"+ansiReset) || !strings.Contains(coloured, ansiDim) {
		t.Errorf("no colour in %q", coloured)
	}
	if plain.Clean(coloured) != bare || strings.Contains(bare, "\x1b") {
		t.Errorf("bare text differs:\n%q\n%q", plain.Clean(coloured), bare)
	}
}

// I-10: however the live text and output is cut, lost or repeated, the same transcript comes out.
func TestTranscriptIsTheSameForEveryCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, -1).Draw(t, "text")
		out := rapid.StringOfN(rapid.SampledFrom([]rune("ab\n\ré")), 0, 40, -1).Draw(t, "output")
		live := func(whole string, emit func(offset int64, part string)) {
			for range rapid.IntRange(0, 8).Draw(t, "parts") {
				runes := []rune(whole)
				i := rapid.IntRange(0, len(runes)).Draw(t, "from")
				j := rapid.IntRange(i, len(runes)).Draw(t, "to")
				emit(int64(len(string(runes[:i]))), string(runes[i:j]))
			}
		}
		bare := new(play).started(1, 1, "go").answered(1, 1, text, "1").result(1, 0, out).ended("done")
		cut := new(play).started(1, 1, "go")
		live(text, func(at int64, part string) { cut.delta(1, 1, at, part) })
		cut.answered(1, 1, text, "1")
		live(out, func(at int64, part string) { cut.output("c1.0", at, part) })
		cut.result(1, 0, out).ended("done")
		if got, want := cut.text(new(testing.T), false), bare.text(new(testing.T), false); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestTranscriptRefusesABrokenEvent(t *testing.T) {
	e := wire.Event{Seq: 3, Kind: wire.StepEnded, Body: json.RawMessage(`[`)}
	err := newTranscript(newScreen(new(bytes.Buffer), false)).frame(client.Frame{Event: &e})
	if err == nil || !strings.Contains(err.Error(), "event 3 (step.ended)") {
		t.Errorf("error %v", err)
	}
}

// I-15: when a watcher is done, and with which code.
func TestEnding(t *testing.T) {
	blocked := func(b *wire.TurnEndedEvent) { b.State = &wire.State{State: wire.Blocked, Reason: "waiting for input"} }
	note := func(p *play, state string) *play {
		return p.event(wire.NoteAdded, wire.NoteEvent{State: &wire.State{State: state}})
	}
	for _, c := range []struct {
		name   string
		ending ending
		play   *play
		want   string
	}{
		{"finished", ending{}, new(play).started(1, 1, "go").ended("done").exited(0, "finished"), "done 0"},
		{"turn done, end to come", ending{}, new(play).started(1, 1, "go").ended("done"), "goes on"},
		{"killed", ending{}, new(play).ended("terminated").exited(137, "killed"), "done 137"},
		{"kept", ending{keep: true}, new(play).ended("done", blocked), "done 0 waits"},
		{"kept with more inputs", ending{keep: true}, new(play).ended("done", func(b *wire.TurnEndedEvent) { b.State = &wire.State{State: wire.Ready} }), "goes on"},
		{"failed", ending{}, new(play).ended("failed", blocked), "done 1 waits"},
		{"failed, the note told the state", ending{}, note(new(play), wire.Blocked).ended("failed"), "done 1 waits"},
		{"failed with more inputs", ending{}, note(new(play), wire.Ready).ended("failed"), "goes on"},
		{"interrupted", ending{}, new(play).ended("interrupted", blocked), "done 1 waits"},
		{"attached", ending{attach: true}, new(play).ended("failed", blocked), "goes on"},
		{"its input was cancelled", ending{input: "i"}, new(play).event(wire.InputEnded, wire.InputEvent{ClientID: "i", State: "cancelled"}), "done 1 waits"},
		{"another input was cancelled", ending{input: "i"}, new(play).event(wire.InputEnded, wire.InputEvent{ClientID: "j", State: "cancelled"}), "goes on"},
	} {
		e := c.ending
		for _, f := range c.play.frames {
			if err := e.event(*f.Event); err != nil {
				t.Fatal(err)
			}
		}
		got := "goes on"
		if e.done {
			got = fmt.Sprintf("done %d", e.code)
		}
		if e.waits {
			got += " waits"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// K-02: a wait for the provider says why, and until when in the person's time.
func TestProviderDelay(t *testing.T) {
	got := waitingFor(wire.State{State: wire.Blocked, Reason: "provider delay", Detail: "until 2026-03-01T10:00:05Z: busy: try later (HTTP 503)"})
	at := time.Date(2026, 3, 1, 10, 0, 5, 0, time.UTC).Local().Format("15:04:05")
	if got != "the model's provider failed: busy: try later (HTTP 503); it is asked again at "+at {
		t.Error(got)
	}
}
