package link

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"soma/internal/pykernel/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side records what a link tells it.
type side struct {
	link     *Link
	frames   []uint64
	acked    []uint64
	evidence uint64
	output   string
	pongs    []uint64
	waited   int
	waiting  error
	hello    error
	keep     bool // frames are not settled
}

func (s *side) Waiting() error                           { s.waited++; return s.waiting }
func (s *side) Hello(context.Context, frame.Hello) error { return s.hello }
func (s *side) Acked(seqs []uint64)                      { s.acked = append(s.acked, seqs...) }
func (s *side) Evidence(seq uint64)                      { s.evidence = seq }
func (s *side) Output(_ string, _ int64, text string)    { s.output += text }
func (s *side) Pong(n uint64)                            { s.pongs = append(s.pongs, n) }
func (s *side) Frame(seq uint64, _ *frame.Frame) {
	s.frames = append(s.frames, seq)
	if !s.keep {
		s.link.Settle(seq)
	}
}

// P-017: the vectors of both languages.
func TestSequenceVectors(t *testing.T) {
	var cases []struct {
		Name          string
		Last          uint64
		Seqs, Applied []uint64
	}
	b, err := os.ReadFile("../../../protocol/pykernel/vectors/sequence.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		l := New()
		if c.Last > 0 {
			if _, err := l.receive(c.Last, 1); err != nil {
				t.Fatal(err)
			}
			l.Settle(c.Last)
		}
		applied := []uint64{}
		for _, seq := range c.Seqs {
			fresh, err := l.receive(seq, 1)
			if err != nil {
				t.Fatal(err)
			}
			if fresh {
				applied = append(applied, seq)
				l.Settle(seq)
			}
		}
		if !slices.Equal(applied, c.Applied) {
			t.Errorf("%s: applied %v, want %v", c.Name, applied, c.Applied)
		}
		if want := max(c.Last, slices.Max(c.Seqs)); l.Ack() != want {
			t.Errorf("%s: acknowledged %d, want %d", c.Name, l.Ack(), want)
		}
	}
}

// P-014, P-213: an acknowledgement is cumulative: it stops at the first frame whose consequence is not committed.
func TestAckIsThePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		n := rapid.IntRange(1, 20).Draw(t, "frames")
		for i := range n {
			if _, err := l.receive(uint64(2*i+1), 1); err != nil {
				t.Fatal(err)
			}
		}
		settled := map[int]bool{}
		for _, i := range rapid.Permutation(indexes(n)).Draw(t, "order") {
			l.Settle(uint64(2*i + 1))
			settled[i] = true
			want := uint64(0)
			for j := 0; settled[j]; j++ {
				want = uint64(2*j + 1)
			}
			if got := l.Ack(); got != want {
				t.Fatalf("acknowledged %d, want %d", got, want)
			}
		}
		if l.held != 0 || len(l.open) != 0 {
			t.Fatalf("%d bytes in %d frames are held", l.held, len(l.open))
		}
	})
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// P-016: the outbox is bounded in frames and in bytes, and an acknowledgement makes room.
func TestRoom(t *testing.T) {
	l := New()
	for i := range MaxFrames {
		if err := l.Room(); err != nil {
			t.Fatalf("after %d frames: %v", i, err)
		}
		l.Append(uint64(i+1), []byte("{}"), false)
	}
	if err := l.Room(); !errors.Is(err, ErrFull) {
		t.Errorf("%d frames: %v", MaxFrames, err)
	}
	if _, _, err := l.confirm(1); err != nil || l.Room() != nil {
		t.Errorf("after an acknowledgement: %v, %v", err, l.Room())
	}
	l = New()
	l.Append(1, make([]byte, MaxBytes), false)
	if err := l.Room(); !errors.Is(err, ErrFull) {
		t.Errorf("%d bytes: %v", MaxBytes, err)
	}
}

// P-015: a python kernel that sends more than its outbox can hold is cut off before it fills the daemon's memory.
func TestUnsettledFramesAreBounded(t *testing.T) {
	l := New()
	for i := range maxOpen {
		if _, err := l.receive(uint64(i+1), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.receive(maxOpen+1, 1); err == nil {
		t.Error("the number of frames has no bound")
	}
	if _, err := New().receive(1, maxOpenBytes+1); err == nil {
		t.Error("their size has no bound")
	}
}

// P-018: a new daemon numbers on from what was given before, and believes an acknowledgement of it.
func TestContinue(t *testing.T) {
	l := New()
	l.Continue(5)
	if _, _, err := l.confirm(6); !errors.Is(err, frame.ErrMalformed) {
		t.Errorf("an acknowledgement past the last number: %v", err)
	}
	if _, _, err := l.confirm(5); err != nil {
		t.Error(err)
	}
	l.Append(5, []byte("{}"), false)
	l.Append(6, []byte("{}"), false)
	if len(l.out) != 1 || l.out[0].seq != 6 {
		t.Errorf("%d frames", len(l.out))
	}
}

func TestAppendKeepsNumbersRising(t *testing.T) {
	l := New()
	l.Append(5, []byte("{}"), false)
	l.Append(5, []byte("{}"), false)
	l.Append(3, []byte("{}"), false)
	l.Append(9, []byte("{}"), true)
	if len(l.out) != 2 {
		t.Errorf("%d frames", len(l.out))
	}
	if l.Written(5) || !l.Written(9) || l.Written(7) {
		t.Error("what was written is not told apart")
	}
	if seqs, _, err := l.confirm(7); err != nil || !slices.Equal(seqs, []uint64{5}) || !l.Written(5) {
		t.Errorf("confirmed %v, %v", seqs, err)
	}
	if _, _, err := l.confirm(10); !errors.Is(err, frame.ErrMalformed) {
		t.Errorf("an acknowledgement of what was never sent: %v", err)
	}
}

// fake is a python kernel's end of a connection.
type fake struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// serve runs one connection; the script plays the python kernel. It returns what Serve returns.
func serve(t *testing.T, l *Link, s *side, script func(f fake)) error {
	t.Helper()
	s.link = l
	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- l.Serve(t.Context(), ours, frame.Attach{Kernel: "k1", Token: "00ff", Grace: 1, Lease: 1, Protocol: 1}, s)
	}()
	script(fake{t, theirs, bufio.NewReader(theirs)})
	theirs.Close()
	return <-ended
}

func (f fake) read() map[string]json.RawMessage {
	f.t.Helper()
	object, err := frame.Read(f.r)
	if err != nil {
		f.t.Fatalf("the fake kernel cannot read: %v", err)
	}
	var v map[string]json.RawMessage
	if err := json.Unmarshal(object, &v); err != nil {
		f.t.Fatal(err)
	}
	return v
}

func (f fake) write(format string, args ...any) {
	f.t.Helper()
	unit, err := frame.Append(nil, fmt.Appendf(nil, format, args...))
	if err == nil {
		_, err = f.conn.Write(unit)
	}
	if err != nil {
		f.t.Fatalf("the fake kernel cannot write: %v", err)
	}
}

func (f fake) hello(ack uint64) {
	f.t.Helper()
	f.write(`{"hello":{"protocol":1,"bundle":"","epoch":1,"ack":%d,"pid":1,"pgid":1,"leader":"","ready":true,"jobs":[],"external":0,
"awaited_external":0,"external_jobs":[],"dropped":0,"cells":[],"finished":[],"python":""}}`, ack)
}

func (f fake) expect(seq, ack uint64) {
	f.t.Helper()
	u := f.read()
	if string(u["seq"]) != fmt.Sprint(seq) || string(u["ack"]) != fmt.Sprint(ack) {
		f.t.Errorf("got %s %s, want frame %d with acknowledgement %d", u["seq"], u["ack"], seq, ack)
	}
}

// P-012, P-014, P-016: frames go out in order after the hello, from the one that it does not acknowledge; the next
// connection repeats what was not acknowledged, under the same numbers.
func TestServe(t *testing.T) {
	l := New()
	s := &side{}
	for _, seq := range []uint64{2, 3, 7} {
		l.Append(seq, []byte(`{"type":"interrupt","cell":"c"}`), false)
	}
	err := serve(t, l, s, func(f fake) {
		if attach := f.read()["attach"]; !strings.Contains(string(attach), `"ack":0`) {
			t.Errorf("attach %s", attach)
		}
		f.hello(2)
		f.expect(3, 0)
		f.expect(7, 0)
		f.write(`{"seq":4,"ack":3,"frame":{"type":"ready"}}`)
		if ack := f.read()["ack"]; string(ack) != "4" {
			t.Errorf("acknowledgement %s", ack)
		}
		f.write(`{"seq":4,"ack":3,"frame":{"type":"ready"}}`) // a replay is acknowledged again
		if ack := f.read()["ack"]; string(ack) != "4" {
			t.Errorf("acknowledgement of a replay %s", ack)
		}
	})
	if err == nil || !slices.Equal(s.frames, []uint64{4}) || !slices.Equal(s.acked, []uint64{2, 3}) {
		t.Errorf("%v: frames %v, acknowledged %v", err, s.frames, s.acked)
	}
	if s.evidence != 0 {
		t.Errorf("evidence %d before anything proves it", s.evidence)
	}
	_ = serve(t, l, s, func(f fake) {
		if attach := f.read()["attach"]; !strings.Contains(string(attach), `"ack":4`) {
			t.Errorf("second attach %s", attach)
		}
		f.hello(3)
		f.expect(7, 4)
		l.Append(8, []byte(`{"type":"shutdown"}`), false)
		l.Ping(9)
		f.expect(8, 4)
		if ping := f.read()["ping"]; string(ping) != "9" {
			t.Errorf("ping %s", ping)
		}
		f.write(`{"pong":9}`)
		f.write(`{"output":{"cell":"c","offset":0,"text":"hi"}}`)
		f.write(`{"ack":8}`)
		f.write(`{"seq":5,"ack":8,"frame":{"type":"of a newer side"}}`)
		f.read()
	})
	if s.evidence != 4 || s.output != "hi" || !slices.Equal(s.pongs, []uint64{9}) || !slices.Equal(s.acked, []uint64{2, 3, 7, 8}) {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.frames, []uint64{4, 5}) || l.Ack() != 5 {
		t.Errorf("frames %v, acknowledgement %d", s.frames, l.Ack())
	}
}

// P-213, P-017: a frame whose consequence is not committed is not acknowledged, and is not applied again when it comes again.
func TestUnsettledFramesAreNotAcknowledged(t *testing.T) {
	l := New()
	s := &side{keep: true}
	_ = serve(t, l, s, func(f fake) {
		f.read()
		f.hello(0)
		f.write(`{"seq":1,"ack":0,"frame":{"type":"ready"}}`)
		l.Append(1, []byte(`{"type":"shutdown"}`), false)
		f.expect(1, 0)
	})
	_ = serve(t, l, s, func(f fake) {
		if attach := f.read()["attach"]; !strings.Contains(string(attach), `"ack":0`) {
			t.Errorf("attach %s", attach)
		}
		f.hello(1)
		f.write(`{"seq":1,"ack":1,"frame":{"type":"ready"}}`)
		f.read() // the old acknowledgement again
		l.Settle(1)
		if ack := f.read()["ack"]; string(ack) != "1" {
			t.Errorf("acknowledgement %s", ack)
		}
	})
	if !slices.Equal(s.frames, []uint64{1}) {
		t.Errorf("frames %v", s.frames)
	}
}

// P-012, P-013: what may not stand for a hello ends the connection, and a refusal is told apart.
func TestHelloIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(f fake)
		want   func(error) bool
	}{
		"refused": {func(f fake) { f.write(`{"refused":"token"}`) }, func(err error) bool {
			var r *Refused
			return errors.As(err, &r) && r.Reason == "token"
		}},
		"no hello": {func(f fake) { f.write(`{"pong":1}`) }, func(err error) bool { return errors.Is(err, frame.ErrMalformed) }},
		"garbage":  {func(f fake) { _, _ = f.conn.Write([]byte("HTTP/1.1 200 OK\r\n")) }, func(err error) bool { return errors.Is(err, frame.ErrTooLarge) }},
		"ack":      {func(f fake) { f.hello(3) }, func(err error) bool { return errors.Is(err, frame.ErrMalformed) }},
		"protocol": {func(f fake) {
			f.write(`{"hello":{"protocol":2,"bundle":"","epoch":1,"ack":0,"pid":1,"pgid":1,"leader":"","ready":true,"jobs":[],"external":0,"awaited_external":0,"external_jobs":[],"dropped":0,"cells":[],"finished":[],"python":""}}`)
		}, func(err error) bool { return errors.Is(err, ErrProtocol) }},
		"cut": {func(fake) {}, func(err error) bool { return err != nil }},
	} {
		l := New()
		l.Append(1, []byte(`{"type":"shutdown"}`), false)
		err := serve(t, l, &side{}, func(f fake) {
			f.read()
			c.answer(f)
			if name != "cut" {
				_, _ = f.r.ReadByte() // until it is cut
			}
		})
		if !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
		if l.Written(1) {
			t.Errorf("%s: a frame was written", name)
		}
	}
}

// P-082: whoever owes its hello is looked at every two seconds, for as long as the answer is that it only computes. P-016: an
// acknowledgement that nothing else carries goes out after ackWait.
func TestHelloIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &side{}
		began := time.Now()
		_ = serve(t, New(), s, func(f fake) {
			f.read()
			<-time.After(7 * time.Second)
			f.hello(0)
			f.write(`{"seq":1,"ack":0,"frame":{"type":"ready"}}`)
			f.read()
		})
		if s.waited != 3 || !slices.Equal(s.frames, []uint64{1}) || time.Since(began) != 7*time.Second+ackWait {
			t.Errorf("looked %d times, frames %v, %v", s.waited, s.frames, time.Since(began))
		}
		s = &side{waiting: errors.New("stopped")}
		if err := serve(t, New(), s, func(f fake) { f.read(); <-time.After(3 * time.Second) }); !errors.Is(err, s.waiting) {
			t.Errorf("error %v", err)
		}
	})
}

// What breaks the protocol after the hello ends the connection too; a handler's no does as well.
func TestBrokenUnitsEndTheConnection(t *testing.T) {
	for _, unit := range []string{`{}`, `{"ack":9}`, `{"refused":"token"}`, `{"seq":0,"ack":0,"frame":{"type":"ready"}}`} {
		err := serve(t, New(), &side{}, func(f fake) {
			f.read()
			f.hello(0)
			f.write("%s", unit)
			_, _ = f.r.ReadByte() // until it is cut
		})
		if !errors.Is(err, frame.ErrMalformed) {
			t.Errorf("%s: %v", unit, err)
		}
	}
	s := &side{hello: errors.New("not mine")}
	if err := serve(t, New(), s, func(f fake) { f.read(); f.hello(0); _, _ = f.r.ReadByte() }); !errors.Is(err, s.hello) {
		t.Errorf("error %v", err)
	}
}

// A connection ends with its context, in both halves.
func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	ours, theirs := net.Pipe()
	defer theirs.Close()
	l := New()
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx, ours, frame.Attach{}, &side{link: l}) }()
	f := fake{t, theirs, bufio.NewReader(theirs)}
	f.read()
	f.hello(0)
	l.Append(1, []byte(`{"type":"shutdown"}`), false)
	f.expect(1, 0)
	why := errors.New("detach")
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

// P-016: a large frame and many small ones go out whole.
func TestLargeFrames(t *testing.T) {
	l := New()
	for i := range 20 {
		l.Append(uint64(i+1), fmt.Appendf(nil, `{"type":"execute","code":%q}`, strings.Repeat("x", i*i*1000)), false)
	}
	_ = serve(t, l, &side{}, func(f fake) {
		f.read()
		f.hello(0)
		for i := range 20 {
			u := f.read()
			if string(u["seq"]) != fmt.Sprint(i+1) || len(u["frame"]) < i*i*1000 {
				t.Errorf("frame %s of %d bytes", u["seq"], len(u["frame"]))
			}
		}
	})
}
