package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"soma/client"
	"soma/message"
	"soma/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is a transcript of one input and steps results, all ok.
func told() []message.Message {
	all := []message.Message{{Role: message.User, Text: "work"}}
	for range steps {
		all = append(all, message.Message{Role: message.Assistant}, message.Message{Role: message.Tool, Status: message.OK})
	}
	return all
}

// The judge is worth as much as what it finds: each kind of fault is one that it must find, and each honest answer none.
func TestJudge(t *testing.T) {
	result := func(m []message.Message, n int) *message.Message { return &m[2*n] }
	for name, c := range map[string]struct {
		change                 func(history []message.Message, count map[string]int) []message.Message
		lost, doubled, unknown int
	}{
		"all well":          {func(h []message.Message, _ map[string]int) []message.Message { return h }, 0, 0, 0},
		"ran twice":         {func(h []message.Message, c map[string]int) []message.Message { c["3"] = 2; return h }, 0, 1, 0},
		"said and not done": {func(h []message.Message, c map[string]int) []message.Message { c["4"] = 0; return h }, 1, 0, 0},
		"unknown and done": {func(h []message.Message, _ map[string]int) []message.Message {
			result(h, 5).Status = message.Unknown
			return h
		}, 0, 0, 1},
		"unknown and not done": {func(h []message.Message, c map[string]int) []message.Message {
			result(h, 5).Status, c["5"] = message.Unknown, 0
			return h
		}, 0, 0, 1},
		"denied and done": {func(h []message.Message, _ map[string]int) []message.Message {
			result(h, 6).Status, result(h, 6).Text = message.Error, "not_started: gone"
			return h
		}, 0, 1, 0},
		"denied and not done": {func(h []message.Message, c map[string]int) []message.Message {
			result(h, 6).Status, result(h, 6).Text, c["6"] = message.Error, "not_started: gone", 0
			return h
		}, 0, 0, 0},
		"a result is missing": {func(h []message.Message, _ map[string]int) []message.Message { return h[:len(h)-1] }, 1, 0, 0},
		"the input came twice": {func(h []message.Message, _ map[string]int) []message.Message {
			return append([]message.Message{h[0]}, h...)
		}, 1, 0, 0},
	} {
		count := map[string]int{}
		for n := 1; n <= steps; n++ {
			count[fmt.Sprint(n)] = 1
		}
		var found tally
		found.judge(name, c.change(told(), count), count)
		if v := found.verdict(); len(v.Lost) != c.lost || len(v.Doubled) != c.doubled || int(v.Unknown) != c.unknown {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Each end of a job and of a cell in the background is told once, whatever else has happened.
func TestJudgeWakes(t *testing.T) {
	const in8 = "cell finished (status=ok, ran 1.6s): import asyncio, os # cell8"
	job := func(n int, how string) string {
		return fmt.Sprintf("job %s: echo job%d >> /w/lines; sleep 1.5; exit 3", how, n)
	}
	const well = "finished (exit_code=3, ran 1.5s)"
	all := []string{job(2, well), job(6, "stopped with its python kernel"), job(10, well), in8}
	for name, c := range map[string]struct {
		woken         []string
		change        func(history []message.Message, count map[string]int)
		lost, doubled int
	}{
		"all well":               {woken: all},
		"no wake of a job":       {woken: all[1:], lost: 1},
		"no wake of the cell":    {woken: all[:3], lost: 1},
		"a job told twice":       {woken: append(all[:4:4], job(6, well)), doubled: 1},
		"the cell told twice":    {woken: append(all[:4:4], in8), doubled: 1},
		"of something else":      {woken: append(all[:4:4], job(7, well)), doubled: 1},
		"a job that never began": {woken: all, change: func(_ []message.Message, c map[string]int) { c["job2"] = 0 }, lost: 1},
		"a job that began twice": {woken: all, change: func(_ []message.Message, c map[string]int) { c["job6"] = 2 }, doubled: 1},
		"the cell ended in its turn": {woken: all[:3], change: func(h []message.Message, _ map[string]int) {
			h[2*background].Text = `{"status":"ok"}`
		}},
		"and was told again": {woken: all, change: func(h []message.Message, _ map[string]int) {
			h[2*background].Text = `{"status":"ok"}`
		}, doubled: 1},
		"another cell went on in the background": {woken: append(all[:4:4], "cell finished (status=ok, ran 1.4s): import asyncio, os # cell1"),
			change: func(h []message.Message, _ map[string]int) { h[2].Text = `{"status":"backgrounded"}` }},
		"nobody knows whether the job began": {woken: all[1:], change: func(h []message.Message, _ map[string]int) {
			h[2*starting[0]].Status = message.Unknown
		}},
	} {
		history, count := told(), map[string]int{"job2": 1, "job6": 1, "job10": 1}
		history[2*background].Text = `{"status":"backgrounded"}`
		if c.change != nil {
			c.change(history, count)
		}
		var found tally
		found.judgeWakes(name, history, c.woken, count)
		if v := found.verdict(); len(v.Lost) != c.lost || len(v.Doubled) != c.doubled {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A cut ends both sides in the middle of what is said, and what is not cut goes on.
func TestRelay(t *testing.T) {
	var servers []net.Conn
	r := newRelay(func(context.Context) (net.Conn, error) {
		far, server := net.Pipe()
		servers = append(servers, server)
		return far, nil
	})
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = conn.Write([]byte("hello")) }()
	b := make([]byte, 5)
	if _, err := io.ReadFull(servers[0], b); err != nil || string(b) != "hello" {
		t.Fatalf("%q, %v", b, err)
	}
	if n := r.cut(rand.New(rand.NewPCG(1, 1))); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := servers[0].Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("the daemon's side: %v", err)
	}
	if _, err := conn.Read(b); err == nil {
		t.Error("the client's side is open")
	}
	other, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = servers[1].Write([]byte("again")) }()
	if _, err := io.ReadFull(other, b); err != nil || string(b) != "again" {
		t.Errorf("%q, %v", b, err)
	}
	r.close()
	if n := r.cut(rand.New(rand.NewPCG(1, 1))); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for _, c := range append(servers, conn, other) {
		_ = c.Close()
	}
}

// Nothing that would lead a child to the person's own store, home, keys or collector gets through.
func TestCleaned(t *testing.T) {
	got := cleaned([]string{
		"PATH=/bin", "SOMA_HOME=/mine", "SOMA_STORE=postgres://mine", "OPENAI_API_KEY=k", "OTEL_EXPORTER_OTLP_ENDPOINT=x", "OLLAMA_HOST=h", "LANG=C",
	})
	if !slices.Equal(got, []string{"PATH=/bin", "LANG=C"}) {
		t.Errorf("%v", got)
	}
}

// What means that the daemon is away is asked again; what it has answered is not.
func TestAgain(t *testing.T) {
	for _, err := range []error{client.ErrLost, wire.Errorf(wire.Unavailable, "moving"), context.DeadlineExceeded} {
		n := 0
		if got := Again(t.Context(), stopTime, func(context.Context) error {
			if n++; n == 3 {
				return nil
			}
			return err
		}); got != nil || n != 3 {
			t.Errorf("%v: %d tries, %v", err, n, got)
		}
	}
	n := 0
	refused := wire.Errorf(wire.NotFound, "no such process")
	if got := Again(t.Context(), stopTime, func(context.Context) error { n++; return refused }); got != refused || n != 1 {
		t.Errorf("%d tries, %v", n, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Again(ctx, stopTime, func(context.Context) error { return client.ErrLost }); !errors.Is(got, context.Canceled) {
		t.Error(got)
	}
}

// Several daemons without a store that they share, or no end, are a mistake.
func TestOptions(t *testing.T) {
	for _, o := range []Options{{Daemons: 3, Agents: 1, Kills: 1}, {Daemons: 1, Agents: 1}, {Daemons: 1, Kills: 1}} {
		if _, err := Run(t.Context(), o); err == nil || strings.Contains(err.Error(), "start") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
