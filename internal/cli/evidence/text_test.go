package evidence

import (
	"strings"
	"testing"
	"time"

	"soma/message"
	"soma/wire"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func end(ms int) *time.Time { t := at(ms); return &t }

// A chain of causes runs straight down whatever its length; what branches off stands before it, with its own chain.
func TestTraceText(t *testing.T) {
	cost := int64(1_500_000)
	tr := wire.Trace{
		Asked: "7", Is: "process", Correlation: "c", StartedAt: noon, EndedAt: at(1500), Tokens: 12, Cost: &cost, Cut: "more than 64 neurons",
		Gaps: []wire.TraceGap{{Neuron: "me/process/7", Feed: wire.FeedIn, First: 40}},
		Nodes: []wire.TraceNode{
			{Kind: wire.NodeGap, ID: "g", What: "what led here is not kept any more", State: "gone", At: noon},
			{Kind: wire.NodeDelivery, ID: "d1", Depth: 1, What: "a.v1", Neuron: "me/process/7", Caller: "me/session/s", State: "handled", At: noon, Attempts: 3, End: end(20)},
			{Kind: wire.NodeInput, ID: "i", Depth: 2, What: "do it\nnow", State: "delivered", Note: "steer", At: at(1)},
			{Kind: wire.NodeDelivery, ID: "d2", Depth: 2, What: "b.v1", Neuron: "me/x/y", Caller: "me/process/7", State: "refused", Code: "no_handler", Error: "nobody", Dead: true, At: at(2)},
			{Kind: wire.NodeDelivery, ID: "d3", Depth: 3, What: "ended.v1", Neuron: "me/process/7", State: "handled", At: at(3)},
			{Kind: wire.NodeInference, ID: "x.2", Depth: 2, What: "openai:m", Step: 1, Attempt: 2, Neuron: "me/process/7", State: "done", Usage: &message.Usage{Input: 5, Output: 7}, Cost: &cost, At: at(4), End: end(1004)},
			{Kind: wire.NodeDelivery, ID: "d4", Depth: 3, What: "answer.v1", Neuron: "me/process/7", State: "handled", At: at(1004), Asked: true},
			{Kind: wire.NodeCell, ID: "cell", Depth: 4, What: "1+1\x1b[2J", Neuron: "me/process/7", State: "ok", At: at(1005), End: end(1500)},
			{Kind: wire.NodeDelivery, ID: "d5", Depth: 5, What: "done.v1", Neuron: "me/process/7", State: "retrying", Attempts: 4, Due: end(9000), At: at(1500)},
		},
	}
	want := `process 7 of correlation c
2026-01-02 12:00:00.000, 1.500 s, 12 tokens, cost $0.001500

what led to what:

WHAT                                    STATE                                                 WHERE                          AFTER  ID
(what led here is not kept any more)                                                          -                            0.000 s  g
a.v1                                    handled at attempt 3                                  me/session/s → me/process/7  0.000 s  d1
├ input: do it now                      delivered                                             -                            0.001 s  i
├ b.v1                                  refused no_handler: nobody, a dead letter             me/process/7 → me/x/y        0.002 s  d2
│ ended.v1                              handled                                               me/process/7                 0.003 s  d3
inference, step 1 attempt 2: openai:m   done, 12 tokens, $0.001500                            me/process/7                 0.004 s  x.2
answer.v1 <- asked for                  handled                                               me/process/7                 1.004 s  d4
cell: 1+1                               ok                                                    me/process/7                 1.005 s  cell
done.v1                                 retrying, attempt 4 to come, due 12:00:09.000         me/process/7                 1.500 s  d5

in order of time:

AT               TOOK  WHERE                        WHAT                                   STATE
12:00:00.000  0.020 s  me/session/s → me/process/7  a.v1                                   handled at attempt 3
12:00:00.001           -                            input: do it now                       delivered
12:00:00.002           me/process/7 → me/x/y        b.v1                                   refused no_handler: nobody, a dead letter
12:00:00.003           me/process/7                 ended.v1                               handled
12:00:00.004  1.000 s  me/process/7                 inference, step 1 attempt 2: openai:m  done, 12 tokens, $0.001500
12:00:01.004           me/process/7                 answer.v1 <- asked for                 handled
12:00:01.005  0.495 s  me/process/7                 cell: 1+1                              ok
12:00:01.500           me/process/7                 done.v1                                retrying, attempt 4 to come, due 12:00:09.000

gap: the in journal of me/process/7 begins with 40; what came before is not kept any more

not all was looked for: more than 64 neurons
`
	squeeze := func(s string) string {
		for strings.Contains(s, "   ") {
			s = strings.ReplaceAll(s, "   ", "  ")
		}
		return s
	}
	if got := traceText(&tr); squeeze(got) != squeeze(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// N-15: a journal's gap is a line of its own with the sequences that are gone, in a page as in a stream.
func TestJournalText(t *testing.T) {
	j := &journal{neuron: "me/process/7", feed: wire.FeedOut, after: 10}
	for text, e := range map[string]wire.JournalEntry{
		"   300  2026-01-02 12:00:00.000  neuron.delivery_ended.v1    e                           me/x/y                d2 was not handled: no_handler\n": {
			Alias: "neuron.delivery_ended.v1", Target: "me/x/y", Ended: &wire.JournalEnded{ID: "d2", Target: "me/x/y", Code: "no_handler"}},
		"   300  2026-01-02 12:00:00.000  b.v1                        e                           -                     emitted to 3, hop 2\n": {
			Alias: "b.v1", Receivers: new(3), Depth: 2},
		"   300  2026-01-02 12:00:00.000  c.v1                        e                           me/x/y                via conn, call r, at attempt 2, signal\n": {
			Alias: "c.v1", Target: "me/x/y", Via: "conn", Request: "r", Attempts: 2, Signal: true},
	} {
		e.Seq, e.ID, e.At = 300, "e", noon
		if got := j.line(&e); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	j.feed = wire.FeedIn
	if got := j.line(&wire.JournalEntry{Seq: 1, ID: "e", At: noon, Alias: "a.v1", Target: "me/x/y", Refused: "too_deep"}); !strings.Contains(got, "  outside               refused: too_deep\n") {
		t.Errorf("%q", got)
	}
	if got := gapLine(11, 40); got != "        (11 to 39 are not kept any more)\n" {
		t.Errorf("%q", got)
	}
	if got := gapLine(500, 3); !strings.Contains(got, "the database is another one") {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{"7": "me/process/7", "session/s": "me/session/s", "you/a/b": "you/a/b", "x": "x", "0": "0"} {
		if got := neuronOf(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
