package wake

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
	"soma/internal/pykernel"
)

func job(id string, code int) End {
	return OfJob(pykernel.JobEnded{Kernel: "k", Job: id, Command: "make " + id + "\n", ExitCode: &code, DurationMS: 1234, Bytes: 3, Tail: "ok\n"})
}

// P-044, P-053: the one line for people, and the notice for the model with the id, the result and how to read it.
func TestWords(t *testing.T) {
	value := "42"
	signal := -15
	for want, e := range map[string]End{
		"cell finished (status=ok, ran 90.0s): x = slow()": OfCell(pykernel.CellEnded{Cell: "c1", Status: "ok", DurationMS: 90_000, Value: &value,
			Output: pykernel.Output{Head: strings.Repeat("a", 2000), Tail: "the end\n", Size: 5000}}, "\n  x = slow()\nx"),
		"cell finished (status=error, ran 0.5s): 1/0": OfCell(pykernel.CellEnded{Cell: "c2", Status: "error", DurationMS: 450, Note: "late",
			Error: &pykernel.CellFault{Type: "ZeroDivisionError", Message: "division by zero"}}, "1/0"),
		"job finished (exit_code=0, ran 1.2s): make j1":        job("j1", 0),
		"job finished (exit_code=-15, timed out, ran 3.0s): a": OfJob(pykernel.JobEnded{Job: "j2", Command: "a", ExitCode: &signal, TimedOut: true, DurationMS: 3000}),
		"job finished (exit status unknown, ran 0.0s): b":      OfJob(pykernel.JobEnded{Job: "j3", Command: "b"}),
		"job stopped with its python kernel: sleep 9":          OfLostJob("k", "j4", "sleep 9"),
		"cell finished (status=unknown): " + long("x", 200):    OfCell(pykernel.CellEnded{Cell: "c3", Status: "unknown"}, strings.Repeat("x", 300)),
	} {
		if e.Line() != want {
			t.Errorf("line %q, want %q", e.Line(), want)
		}
	}
	n := News{}.With(OfCell(pykernel.CellEnded{Cell: "c1", Status: "ok", Value: &value,
		Output: pykernel.Output{Head: strings.Repeat("a", 2000), Tail: "the end\n", Size: 5000}}, "x")).With(job("j1", 2))
	text := n.Notice()
	for _, want := range []string{"not from a person", "cell id: c1\nresult: 42\nread its output of 5000 bytes with output.read(\"c1\"); the end of it:\naaa", "a" + "the end\n",
		"job finished (exit_code=2, ran 1.2s): make j1\njob id: j1, handle: jobs[\"j1\"]\nall of its output:\nok"} {
		if !strings.Contains(text, want) {
			t.Errorf("the notice lacks %q:\n%s", want, text)
		}
	}
	if n.Line() != n.Ends[0].Line()+"\n"+n.Ends[1].Line() {
		t.Errorf("line %q", n.Line())
	}
}

func long(s string, n int) string { return strings.Repeat(s, n-len("…")) + "…" }

// P-044: a wake is retired when all that it tells was read, not when a part of it was; ids of jobs are their kernel's own.
func TestRead(t *testing.T) {
	c := OfCell(pykernel.CellEnded{Kernel: "k", Cell: "1", Status: "ok"}, "x")
	n := News{}.With(job("1", 0)).With(c).With(job("1", 7))
	if len(n.Ends) != 2 || *n.Ends[0].ExitCode != 0 {
		t.Fatalf("an end is told twice: %+v", n)
	}
	for _, other := range []struct {
		kernel      string
		cells, jobs []string
	}{{"other", []string{"1"}, []string{"1"}}, {"k", []string{"2"}, []string{"2"}}} {
		if _, changed := n.Read(other.kernel, other.cells, other.jobs); changed {
			t.Errorf("%+v changes it", other)
		}
	}
	part, changed := n.Read("k", nil, []string{"1"})
	if !changed || part.Empty() || strings.Contains(part.Notice(), "job") || strings.Contains(part.Line(), "job") || n.Ends[0].Read {
		t.Errorf("after the job was read: %+v, %q", part, part.Line())
	}
	if _, changed := part.Read("k", nil, []string{"1"}); changed {
		t.Error("read again is a change")
	}
	all, changed := part.Read("k", []string{"1"}, nil)
	if !changed || !all.Empty() {
		t.Errorf("after all was read: %+v", all)
	}
	if back, err := Parse(all.String()); err != nil || back.String() != all.String() {
		t.Errorf("stored: %+v, %v", back, err)
	}
	if _, err := Parse("x"); err == nil {
		t.Error("what is no news was read")
	}
}

// K-15: however many ends one wake tells of, and whatever they hold, its words and its stored form stay within bounds and are
// whole characters, and each end is told or counted.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aé€😀\n\x00\"")), 0, 3000, -1)
		var n News
		count := rapid.IntRange(0, 400).Draw(t, "ends")
		s, cut := text.Draw(t, "text"), rapid.IntRange(0, 3).Draw(t, "cut")
		s = s[min(cut, len(s)):]
		for i := range count {
			code := i
			if i%2 == 0 {
				n = n.With(OfJob(pykernel.JobEnded{Kernel: "k", Job: fmt.Sprint(i), Command: s, Tail: s, Bytes: 1 << 20, ExitCode: &code}))
			} else {
				n = n.With(OfCell(pykernel.CellEnded{Kernel: "k", Cell: fmt.Sprint(i), Note: s, Value: &s, Output: pykernel.Output{Head: s, Size: int64(len(s))}}, s))
			}
		}
		notice, line := n.Notice(), n.Line()
		if len(notice) > 32<<10 || len(line) > 16<<10 || len(n.String()) > 384<<10 {
			t.Fatalf("notice %d, line %d, stored %d bytes", len(notice), len(line), len(n.String()))
		}
		if !utf8.ValidString(notice) || !utf8.ValidString(line) {
			t.Fatal("half a character")
		}
		if len(n.Ends)+n.More != count || n.Empty() != (count == 0) {
			t.Fatalf("%d ends and %d more of %d", len(n.Ends), n.More, count)
		}
		if count > 0 && !strings.Contains(notice, fmt.Sprintf("id: %d", min(count, maxEnds)-1)) {
			t.Fatalf("the newest is not told: %s", notice)
		}
		for _, l := range strings.Split(line, "\n") {
			if l != "" && !strings.Contains(l, "finished") && !strings.HasPrefix(l, "and ") {
				t.Fatalf("a line of its own: %q", l)
			}
		}
	})
}
