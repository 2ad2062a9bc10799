package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"soma/client"
	"soma/internal/cli/plain"
	"soma/message"
	"soma/wire"
)

// maxUserLines is how many lines of an input are shown; the person has written it.
const maxUserLines = 12

// transcript writes a session's events as a person reads them: text as it streams, cells with their code and output, one
// line for each thing that happened besides. What streams is reconciled with what was committed: nothing is printed twice,
// nothing is missing, and text that did not become part of the conversation is marked. It is not safe for concurrent use.
type transcript struct {
	s       *screen
	whole   bool    // long inputs and code are not folded
	picture picture // how images are shown; nil: they are only named
	live    liveText
	calls   []*cellView // of the last answer, in call order; the first open one is shown live
	began   time.Time   // of the agent turn
	state   wire.State
	noted   string // the last note
	summary string // of a turn that was ended from outside: said after the end of the process
}

// What a turn's end says of why, where something depends on it.
const (
	whyDone       = "done"
	whyTerminated = "terminated"
)

// liveText is the text of the attempt that streams.
type liveText struct {
	step     int64
	attempt  int
	shown    strings.Builder // what was printed of it; the model's own bound holds
	thinking bool
	cleaner  plain.Cleaner
}

func newTranscript(s *screen) *transcript { return &transcript{s: s} }

// frame shows one frame of the stream.
func (t *transcript) frame(f client.Frame) error {
	var err error
	switch {
	case f.Event != nil:
		err = t.event(*f.Event)
	case f.Delta != nil:
		t.delta(*f.Delta)
	case f.Output != nil:
		t.output(*f.Output)
	case f.Reset != nil:
		t.note("the daemon's store has no longer what came before: going on at event " + fmt.Sprint(f.Reset.Last))
		t.live, t.calls = liveText{}, nil
	}
	if err != nil {
		return err
	}
	return t.s.flush()
}

func show[T any](e wire.Event, fn func(T)) error {
	var body T
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return fmt.Errorf("cannot read event %d (%s): %w", e.Seq, e.Kind, err)
	}
	fn(body)
	return nil
}

func (t *transcript) event(e wire.Event) error {
	switch e.Kind {
	case wire.StepStarted:
		return show(e, func(b wire.StepStartedEvent) { t.stepStarted(e.At, b) })
	case wire.StepEnded:
		return show(e, t.stepEnded)
	case wire.StepFailed:
		return show(e, t.stepFailed)
	case wire.ToolResult:
		return show(e, t.toolResult)
	case wire.CellStarted:
		return show(e, t.cellStarted)
	case wire.CellEnded:
		return show(e, t.cellEnded)
	case wire.TurnEnded:
		return show(e, func(b wire.TurnEndedEvent) { t.turnEnded(e.At, b) })
	case wire.NoteAdded:
		return show(e, func(b wire.NoteEvent) { t.note(b.Message.Message.Text); t.move(b.State) })
	case wire.ProcessState:
		return show(e, func(b wire.StateEvent) { t.move(&b.State) })
	case wire.ProcessExited:
		return show(e, func(b wire.StateEvent) { t.exited(e.PID, b) })
	}
	return nil // inputs are shown when they join; kinds that are not known here are passed over
}

func (t *transcript) note(text string) {
	t.noted = text
	for i, line := range strings.Split(strings.TrimSpace(plain.Clean(text)), "\n") {
		mark := "* "
		if i > 0 {
			mark = "  "
		}
		t.s.line(ansiDim, mark, line)
	}
}

func (t *transcript) stepStarted(at time.Time, b wire.StepStartedEvent) {
	if b.Turn {
		t.flushSummary()
		t.began = at
	}
	for _, m := range b.Messages {
		switch {
		case m.Line != "": // a wake
			t.note(m.Line)
		case m.Message.Role == message.User:
			t.said(m.Message.Text)
		case m.Message.Role == message.Note:
			t.note(m.Message.Text)
		}
	}
	if b.Step != t.live.step || b.Attempt != t.live.attempt {
		t.drop()
		t.live.step, t.live.attempt = b.Step, b.Attempt
	}
	t.move(b.State)
}

func (t *transcript) said(text string) {
	lines := strings.Split(strings.TrimRight(plain.Clean(text), "\n"), "\n")
	t.s.block()
	for i, line := range lines {
		if i == maxUserLines && len(lines) > maxUserLines+1 && !t.whole {
			t.s.line(ansiDim, "> ", fmt.Sprintf("… %d more lines", len(lines)-i))
			break
		}
		t.s.line(ansiBold, "> ", line)
	}
}

// drop forgets the text that streamed, and says so if some of it was printed.
func (t *transcript) drop() {
	if t.live.shown.Len() > 0 {
		t.note("the text above was cut off and is not part of the conversation")
	}
	t.live = liveText{}
}

func (t *transcript) delta(d wire.DeltaEvent) {
	l := &t.live
	if d.Step != l.step || d.Attempt != l.attempt {
		return
	}
	if d.Reasoning {
		if !l.thinking {
			l.thinking = true
			t.note("thinking …")
		}
		return
	}
	// A gap stays open until the answer is committed: what comes after it could not be printed in order.
	if text, ok := beyond(d.Text, d.Offset, int64(l.shown.Len())); ok {
		t.speak(text)
	}
}

// beyond returns what of a text at an offset lies past the first n bytes; it is false where nothing does, or where there is
// a gap before it.
func beyond(text string, offset, n int64) (string, bool) {
	if skip := n - offset; skip >= 0 && skip < int64(len(text)) {
		return text[skip:], true
	}
	return "", false
}

func (t *transcript) speak(text string) {
	if t.live.shown.Len() == 0 {
		t.s.block()
	}
	t.live.shown.WriteString(text)
	t.s.write("", "", t.live.cleaner.Clean(text))
}

func (t *transcript) stepEnded(b wire.StepEndedEvent) {
	text := b.Message.Message.Text
	rest, same := strings.CutPrefix(text, t.live.shown.String())
	if !same || b.Step != t.live.step || b.Attempt != t.live.attempt {
		t.drop()
		t.live.step, t.live.attempt, rest = b.Step, b.Attempt, text
	}
	if rest != "" {
		t.speak(rest)
	}
	t.s.endLine()
	t.live = liveText{}
	t.calls = t.calls[:0]
	for i, c := range b.Message.Message.Calls {
		v := &cellView{call: c.ID, tool: c.Tool, code: codeOf(c), whole: t.whole}
		if i < len(b.Cells) {
			v.cell = b.Cells[i]
		}
		t.calls = append(t.calls, v)
	}
	t.showCalls()
	t.move(b.State)
}

// codeOf is what a call's arguments say to a person: the code of a cell, else the arguments.
func codeOf(c message.Call) string {
	var a struct {
		Code *string `json:"code"`
	}
	if c.Malformed == "" && json.Unmarshal(c.Arguments, &a) == nil && a.Code != nil {
		return *a.Code
	}
	return string(c.Arguments)
}

// stepFailed says nothing of why: a note, a state or the end of the turn comes with it and does.
func (t *transcript) stepFailed(b wire.StepFailedEvent) {
	if b.Step == t.live.step && b.Attempt == t.live.attempt {
		t.drop()
	}
	t.move(b.State)
}

func (t *transcript) move(s *wire.State) {
	if s == nil {
		return
	}
	if s.State == wire.Blocked && (s.State != t.state.State || s.Reason != t.state.Reason) {
		if text := waitingFor(*s); text != "" {
			t.note(text)
		}
	}
	t.state = *s
}

// onBackground is why a process is blocked that nobody needs: cells or jobs of its agent run on. It is named on a terminal only,
// once it lasts (pulseAfter): most of it has ended before that.
const onBackground = "background work"

// waitingFor says what a person must know of a blocked process; it is empty for the waits of every turn.
func waitingFor(s wire.State) string {
	text, words := "", ""
	if s.Detail != "" {
		words = ": " + s.Detail
	}
	switch s.Reason {
	case onInput, onBackground, "tool result", "":
	case "paused":
		text = "paused; go on with soma resume"
	case "crash loop":
		text = "blocked after crashes without progress" + words + "; go on with soma resume"
	case "interrupted":
		text = "interrupted" + words
	case "provider delay":
		text = "waits: " + s.Reason + words
		when, why, _ := strings.Cut(strings.TrimPrefix(s.Detail, "until "), ": ")
		if at, err := time.Parse(time.RFC3339, when); err == nil {
			text = fmt.Sprintf("the model's provider failed: %s; it is asked again at %s", why, at.Local().Format(time.TimeOnly))
		}
	default:
		text = "waits: " + s.Reason + words
	}
	return text
}

func (t *transcript) turnEnded(at time.Time, b wire.TurnEndedEvent) {
	t.drop()
	t.calls = nil
	switch {
	case b.Why == whyDone, b.Why == whyTerminated:
	case b.Words != "" && !strings.Contains(t.noted, b.Words):
		t.note(b.Why + ": " + b.Words)
	case b.Words == "":
		t.note(b.Why)
	}
	seconds := "unknown"
	if !t.began.IsZero() {
		seconds = fmt.Sprintf("%.1f", at.Sub(t.began).Seconds())
	}
	t.summary = fmt.Sprintf("steps %d, cells %d, tokens %d, cost %s, seconds %s", b.Steps, b.Cells, b.Tokens, plain.CostAbout(b.Cost, b.Estimated), seconds)
	t.move(b.State)
	if b.Why != whyTerminated {
		t.flushSummary()
	}
}

func (t *transcript) flushSummary() {
	if t.summary == "" {
		return
	}
	t.s.block()
	t.s.line(ansiDim, "", t.summary)
	t.summary = ""
}

func (t *transcript) exited(pid uint64, b wire.StateEvent) {
	t.move(&b.State)
	if b.ExitCode != nil && *b.ExitCode != 0 {
		t.note(fmt.Sprintf("process %d ended: %s (exit code %d)", pid, endWords(b.State), *b.ExitCode))
	}
	t.flushSummary()
}

func endWords(s wire.State) string {
	switch {
	case s.Reason != "" && s.Detail != "":
		return s.Reason + ": " + s.Detail
	case s.Reason != "":
		return s.Reason
	}
	return "ended"
}

// busy says what the process is at, as far as the events tell; it is empty where nothing runs.
func (t *transcript) busy() string {
	for _, v := range t.calls {
		if v.begun && !v.done {
			return "the cell runs"
		}
	}
	switch {
	case t.state.State == wire.Running:
		return "the model is asked"
	case t.state.State == wire.Blocked && t.state.Reason == onBackground:
		return "work goes on in the background"
	}
	return ""
}

// finish writes what is held back.
func (t *transcript) finish() error {
	t.flushSummary()
	t.s.endLine()
	return t.s.flush()
}
