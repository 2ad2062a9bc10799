package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/client"
	"soma/internal/agent/tool"
	"soma/message"
	"soma/wire"
)

// task is what the scripted model does: three cells, each of which leaves a line in a file of the session's for each time that it
// runs. The second says that it works and waits for a file, so that something can happen meanwhile.
const task = `
name: task
pace: 5ms
steps:
  - say: first I look at what there is
    calls:
      - python: |
          open('%[1]s-a', 'a').write('ran\n')
          total = 1
          total
  - say: now comes the long one which may take a while
    calls:
      - python: |
          import os, time
          open('%[1]s-b', 'a').write('ran\n')
          print('working', flush=True)
          while not os.path.exists('%[1]s-go'): time.sleep(0.005)
          total += 10
          total
  - calls:
      - python: |
          open('%[1]s-c', 'a').write('ran\n')
          print('total' in globals())
  - say: the work is done and this is the end of it
`

// begin gives a session of the task its input, through a node.
func (n *node) begin(session string) (pid uint64) {
	n.c.t.Helper()
	in, err := n.Admit(n.c.t.Context(), session, "task", wire.Input{Text: "do it"})
	if err != nil {
		n.c.t.Fatal(err)
	}
	return in.PID
}

func (c *cluster) touch(name string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.work, name), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// runs counts how often a cell ran.
func (c *cluster) runs(name string) int {
	text, _ := os.ReadFile(filepath.Join(c.work, name))
	return strings.Count(string(text), "ran\n")
}

// ended is the end of a process.
func ended(pid uint64) func(client.Frame) bool {
	return func(f client.Frame) bool {
		return f.Event != nil && f.Event.Kind == wire.ProcessExited && f.Event.PID == pid
	}
}

// transcript is what a process's branch says, without what differs from run to run.
func (n *node) transcript(pid uint64) (hash string, list []message.Message) {
	n.c.t.Helper()
	rows, err := n.Messages(n.c.t.Context(), pid, 0, 1000)
	if err != nil {
		n.c.t.Fatal(err)
	}
	h := sha256.New()
	for _, row := range rows.Items {
		m := row.Message
		list = append(list, m)
		text := m.Text
		if len(m.Result) > 0 {
			var r tool.Result
			if err := json.Unmarshal(m.Result, &r); err != nil {
				n.c.t.Fatal(err)
			}
			r.DurationMS, r.CellID = 0, ""
			text = tool.Render(r)
		}
		fmt.Fprintf(h, "%s %s %q\n", m.Role, m.Status, text)
		for _, call := range m.Calls {
			fmt.Fprintf(h, "%s %q\n", call.Tool, call.Arguments)
		}
	}
	if err := message.CheckPaired(list); err != nil {
		n.c.t.Errorf("the transcript of process %d: %v", pid, err)
	}
	return hex.EncodeToString(h.Sum(nil)), list
}

// N-36, M-12: two daemons on one database need nothing else: each takes any request, every list shows the work of both.
func TestTwoDaemons(t *testing.T) {
	c := newCluster(t, 5*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	req := wire.OpenSession{Workspace: c.work, Model: c.script("task", fmt.Sprintf(task, "x"))}
	c.touch("x-go")
	hashes, pids := map[string]int{}, map[uint64]bool{}
	for i, way := range []struct{ through, holder *node }{{a, a}, {a, b}, {b, a}, {b, b}} {
		session := c.sessionAt(way.through, way.holder, fmt.Sprintf("s%d", i), req)
		pid := way.through.begin(session)
		if err := way.through.follow(session, ended(pid)); err != nil {
			t.Fatal(err)
		}
		hash, list := a.transcript(pid)
		if again, _ := b.transcript(pid); again != hash {
			t.Errorf("the two show different transcripts of process %d", pid)
		}
		if last := list[len(list)-1].Text; !strings.HasPrefix(last, "the work is done") {
			t.Errorf("process %d ends with %q", pid, last)
		}
		hashes[hash]++
		pids[pid] = true
		p, err := way.through.Wait(t.Context(), pid, 30*time.Second)
		if err != nil || p.ExitCode == nil || *p.ExitCode != 0 || p.Node != way.holder.id {
			t.Errorf("process %d: %+v, %v", pid, p, err)
		}
	}
	if len(hashes) != 1 || len(pids) != 4 {
		t.Errorf("hashes %v, pids %v", hashes, pids)
	}
	if got := c.runs("x-a"); got != 4 {
		t.Errorf("the first cell ran %d times in 4 sessions", got)
	}
	for _, n := range []*node{a, b} {
		var ps wire.List[wire.Process]
		if err := json.Unmarshal([]byte(n.mustSoma("ps", "-a", "-o", "json")), &ps); err != nil {
			t.Fatal(err)
		}
		nodes := map[string]int{}
		for _, p := range ps.Items {
			nodes[p.Node]++
			delete(pids, p.PID)
		}
		if nodes[a.id] == 0 || nodes[b.id] == 0 || nodes[""] > 0 {
			t.Errorf("processes by node: %v", nodes)
		}
		if out := n.mustSoma("ps", "-a"); !strings.Contains(out, "NODE") || !strings.Contains(out, a.id) || !strings.Contains(out, b.id) {
			t.Errorf("soma ps: %s", out)
		}
		if out := n.mustSoma("status"); !strings.Contains(out, "this one") || !strings.Contains(out, a.id) || !strings.Contains(out, b.id) {
			t.Errorf("soma status: %s", out)
		}
	}
	if len(pids) != 0 {
		t.Errorf("processes %v are in no list", pids)
	}
	// What one commits the other's followers of everything hear.
	heard := make(chan error, 1)
	other := c.sessionAt(a, a, "hint", req)
	ready := make(chan struct{}, 1024)
	go func() {
		heard <- b.Hints(t.Context(), func(h wire.Hint) error {
			ready <- struct{}{}
			if h.Session == other && h.Seq > 5 {
				return client.ErrEnough
			}
			return nil
		})
	}()
	<-ready // after it has connected it tells where every session stands
	a.begin(other)
	if err := <-heard; err != nil {
		t.Error(err)
	}
	secrets(t, a, b)
}
