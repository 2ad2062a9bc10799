package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"soma/client"
	"soma/internal/config"
	"soma/message"
	"soma/wire"
)

// slack is how much longer than the lease a takeover may take.
const slack = 2 * time.Second

// N-36, M-12: the holder of a session is killed while the model speaks. The other daemon makes the attempt again within the lease
// and two seconds, and the transcript is that of an undisturbed run, with each cell once; who follows through the other sees it.
func TestHolderIsKilledWhileTheModelSpeaks(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	calm := c.sessionAt(b, b, "calm", wire.OpenSession{Workspace: c.work, Model: c.script("calm", fmt.Sprintf(task, "calm"))})
	c.touch("calm-go")
	calmPID := b.begin(calm)
	if err := b.follow(calm, ended(calmPID)); err != nil {
		t.Fatal(err)
	}
	session := c.sessionAt(b, a, "killed", wire.OpenSession{Workspace: c.work, Model: c.script("killed", strings.ReplaceAll(fmt.Sprintf(task, "killed"), "killed", "kill"))})
	c.touch("kill-go")
	pid := b.begin(session)
	var killed time.Time
	var took time.Duration
	var seen uint64
	err := b.follow(session, func(f client.Frame) bool {
		switch {
		case f.Delta != nil && killed.IsZero():
			killed = time.Now()
			a.kill()
		case f.Event != nil:
			if f.Event.Seq != seen+1 {
				t.Errorf("after event %d comes %d", seen, f.Event.Seq)
			}
			seen = f.Event.Seq
			if !killed.IsZero() && took == 0 {
				took = time.Since(killed)
			}
		}
		return ended(pid)(f)
	})
	if err != nil {
		t.Fatal(err)
	}
	if took > c.lease+slack {
		t.Errorf("the first commit after the kill came after %v", took)
	}
	t.Logf("first event of the other daemon %v after the kill, lease %v", took, c.lease)
	said := func(pid uint64) []message.Message {
		_, list := b.transcript(pid)
		return slices.DeleteFunc(list, func(m message.Message) bool { return m.Role == message.Note }) // that the attempt was lost
	}
	want, got := said(calmPID), said(pid)
	if len(got) != len(want) {
		t.Fatalf("%d messages, undisturbed %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Role != want[i].Role || got[i].Status != want[i].Status || got[i].Role == message.Assistant && got[i].Text != want[i].Text {
			t.Errorf("message %d is %+v, undisturbed %+v", i, got[i], want[i])
		}
	}
	for _, cell := range []string{"kill-a", "kill-b", "kill-c"} {
		if n := c.runs(cell); n != 1 {
			t.Errorf("cell %s ran %d times", cell, n)
		}
	}
	if p, err := b.Process(t.Context(), pid); err != nil || p.Node != b.id {
		t.Errorf("the process is shown at %q, %v", p.Node, err)
	}
	secrets(t, b)
}

// kernelOf waits for the python kernel of a session and returns its pid.
func (c *cluster) kernelOf(n *node, session string) (pid int) {
	c.t.Helper()
	c.until("a python kernel of "+session, func() (bool, error) {
		st, err := n.Status(c.t.Context())
		for _, k := range st.Kernels {
			if k.Session == session && k.PID > 0 {
				pid = k.PID
			}
		}
		return pid > 0, err
	})
	return pid
}

// N-36, M-12: the holder is killed while a cell runs. Its python kernel is lost to the session: the cell's result is unknown, the
// next one runs in a fresh kernel and says that the names are gone, and each cell has run once. When the old daemon is there
// again it ends the kernel that is no longer its own.
func TestHolderIsKilledInACell(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	session := c.sessionAt(b, a, "s", wire.OpenSession{Workspace: c.work, Model: c.script("task", fmt.Sprintf(task, "x"))})
	pid := b.begin(session)
	killed := false
	err := b.follow(session, func(f client.Frame) bool {
		if f.Output != nil && strings.Contains(f.Output.Text, "working") && !killed {
			killed = true
			if other := c.kernelOf(b, session); other != c.kernelOf(a, session) {
				t.Errorf("the two show different python kernels")
			}
			a.kill()
		}
		return ended(pid)(f)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !killed {
		t.Fatal("nothing was killed")
	}
	_, list := b.transcript(pid)
	var results []message.Message
	for _, m := range list {
		if m.Role == message.Tool {
			results = append(results, m)
		}
	}
	if len(results) != 3 || results[0].Status != message.OK || results[1].Status != message.Unknown || results[2].Status != message.OK {
		t.Fatalf("results %+v", results)
	}
	if !strings.Contains(results[1].Text, "result unknown") || !strings.Contains(results[1].Text, a.id) {
		t.Errorf("the cell that ran says %q", results[1].Text)
	}
	if !strings.Contains(results[2].Text, "names of the earlier kernel are gone") || !strings.Contains(results[2].Text, "False") {
		t.Errorf("the cell after it says %q", results[2].Text)
	}
	for _, cell := range []string{"x-a", "x-b", "x-c"} {
		if n := c.runs(cell); n != 1 {
			t.Errorf("cell %s ran %d times", cell, n)
		}
	}
	// The kernel still waits for its file; nobody has ended it.
	if left := processesOf(t, a.home.Run()); len(left) == 0 {
		t.Error("the python kernel of the killed daemon is gone already")
	}
	a.run()
	c.until("the lost python kernel is ended by its own node", func() (bool, error) {
		dirs, err := os.ReadDir(a.home.Run())
		return len(dirs) == 0 && len(kernelsOf(t, a)) == 0, err
	})
	c.shared(a, b)
	if n := c.runs("x-b"); n != 1 {
		t.Errorf("in the end cell b ran %d times", n)
	}
}

// kernelsOf finds the python kernels of a home.
func kernelsOf(t *testing.T, n *node) (pids []int) {
	for _, pid := range processesOf(t, n.home.Dir()) {
		args, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if strings.Contains(string(args), n.home.Run()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// plainly makes a request on a daemon's socket without trying again, and returns the status, 0 for none.
func (n *node) plainly(ctx context.Context, method, path, body string) int {
	token, err := n.home.ReadToken()
	if err != nil {
		n.c.t.Error(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return config.DialSocket(ctx, n.home.Socket())
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://soma"+path, strings.NewReader(body))
	if err != nil {
		n.c.t.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// N-36, N-07: the holder sleeps past its lease while requests are on their way to it. The other goes on with its sessions. When
// it wakes it commits nothing and answers none of them with success, begins anew in the same OS process, and serves.
func TestHolderSleeps(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	model := c.script("echo", "name: echo\nsteps:\n  - say: first\n  - say: second\n  - say: third\n  - say: fourth\n")
	session := c.sessionAt(b, a, "s", wire.OpenSession{Workspace: c.work, Model: model, Keep: true})
	path := "/v1/sessions/" + session + "/inputs/"
	if status := a.plainly(t.Context(), "PUT", path+"before", `{"text":"before"}`); status != 200 {
		t.Fatalf("before: %d", status)
	}
	a.signal(syscall.SIGSTOP)
	late := make(chan int, 8)
	for i := range cap(late) {
		go func() { late <- a.plainly(t.Context(), "PUT", fmt.Sprint(path, "late-", i), `{"text":"late"}`) }()
	}
	// This one goes to the sleeper first, and to its heir when the lease is over.
	began := time.Now()
	in, err := b.Admit(t.Context(), session, "heir", wire.Input{Text: "heir"})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > c.lease+slack {
		t.Errorf("the other daemon took the input after %v", took)
	}
	before, err := b.Session(t.Context(), session)
	if err != nil || before.Node != b.id {
		t.Fatalf("the session is at %q, %v", before.Node, err)
	}
	a.signal(syscall.SIGCONT)
	for range cap(late) {
		if status := <-late; status == 200 {
			t.Error("a request to the sleeper was answered with success")
		}
	}
	a.says("begins anew")
	a.says("msg=serving ")
	for i := range cap(late) {
		if _, err := b.Input(t.Context(), session, fmt.Sprint("late-", i)); !isCode(err, wire.NotFound) {
			t.Errorf("late input %d was committed: %v", i, err)
		}
	}
	c.shared(a, b)
	// It is asked again under the same ids, which happens once each, and both tell the same.
	for i := range cap(late) {
		if _, err := a.Admit(t.Context(), session, fmt.Sprint("late-", i), wire.Input{Text: "late"}); err != nil {
			t.Error(err)
		}
	}
	x, errA := a.Process(t.Context(), in.PID)
	y, errB := b.Process(t.Context(), in.PID)
	if errA != nil || errB != nil || x.Session != session || y.Session != session {
		t.Errorf("%+v %v, %+v %v", x, errA, y, errB)
	}
	if a.cmd.ProcessState != nil {
		t.Error("the sleeper's OS process has ended")
	}
}

func isCode(err error, code wire.Code) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == code
}

// N-36: a third daemon gets its share when it comes; one that is stopped gives its places back, and the others take them at once,
// not when its lease is over. soma stop stops no other.
func TestThirdJoinsAndLeaves(t *testing.T) {
	c := newCluster(t, 10*time.Second)
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	model := c.script("task", fmt.Sprintf(task, "x"))
	d := c.start("d")
	c.shared(a, b, d)
	session := c.sessionAt(a, d, "s", wire.OpenSession{Workspace: c.work, Model: model})
	began := time.Now()
	if out := d.mustSoma("stop"); !strings.Contains(out, "stopped the daemon") {
		t.Error(out)
	}
	pid := a.begin(session)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the session could be asked for again after %v", took)
	}
	c.touch("x-go")
	if err := b.follow(session, ended(pid)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b} {
		st, err := n.Status(t.Context())
		if err != nil || len(st.Nodes) != 2 {
			t.Errorf("%+v, %v", st.Nodes, err)
		}
	}
}

// N-36: the database is killed and comes again: both daemons, which could not beat meanwhile, begin anew and go on.
func TestDatabaseIsKilled(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	server, dsn := ownServer(t)
	c.dsn = dsn
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	session := c.sessionAt(b, a, "s", wire.OpenSession{Workspace: c.work, Model: c.script("task", fmt.Sprintf(task, "x"))})
	pid := b.begin(session)
	c.until("the long cell runs", func() (bool, error) { return c.runs("x-b") == 1, nil })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	a.says("begins anew")
	b.says("begins anew")
	if status := a.plainly(t.Context(), "GET", "/v1/status", ""); status != 503 {
		t.Errorf("without a database a status is answered with %d", status)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.says("msg=serving ")
	b.says("msg=serving ")
	c.touch("x-go")
	if err := b.follow(session, ended(pid)); err != nil {
		t.Fatal(err)
	}
	for _, cell := range []string{"x-a", "x-b", "x-c"} {
		if n := c.runs(cell); n != 1 {
			t.Errorf("cell %s ran %d times", cell, n)
		}
	}
	c.shared(a, b)
}

// M-12: of two homes with one node's id, as a copy makes them, one ends and says what to do; the other goes on.
func TestCopiedHome(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	a := c.start("a")
	c.shared(a)
	home, err := config.HomeAt(c.dir + "/b")
	if err == nil {
		err = home.Create()
	}
	if err == nil {
		err = os.WriteFile(home.NodeFile(), []byte(a.id+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := c.start("b")
	ends := make(chan *node, 2)
	for _, n := range []*node{a, b} {
		go func() {
			for range n.log.lines { // to its last word
			}
			_ = n.cmd.Wait()
			ends <- n
		}()
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var gone, stays *node
	select {
	case gone = <-ends:
	case <-limit.C:
		t.Fatal("both go on")
	}
	if stays = a; gone == a {
		stays = b
	}
	if gone.cmd.ProcessState.Success() || !strings.Contains(gone.log.String(), gone.home.NodeFile()) {
		t.Errorf("it ended with %v and says %s", gone.cmd.ProcessState, gone.log)
	}
	c.until("the other one holds everything", func() (bool, error) {
		st, err := stays.Status(t.Context())
		return err == nil && len(st.Nodes) == 1 && st.Nodes[0].Places == 256, err
	})
	stays.signal(syscall.SIGKILL)
	<-ends
}

// N-36, K-16: processes that waited for a slot at a daemon which was killed get one at the other.
func TestReadyProcessesMove(t *testing.T) {
	c := newCluster(t, 3*time.Second)
	c.slots = 1
	a, b := c.start("a"), c.start("b")
	c.shared(a, b)
	req := wire.OpenSession{Workspace: c.work, Model: c.script("slow", "name: slow\nsteps:\n  - delay: 1500ms\n    say: done\n")}
	var sessions []string
	for i := range 3 {
		sessions = append(sessions, c.sessionAt(b, a, fmt.Sprint("s", i), req))
	}
	pids := map[string]uint64{}
	for _, session := range sessions {
		pids[session] = b.begin(session)
	}
	st, err := b.Status(t.Context())
	if err != nil || st.Processes[wire.Ready] < 2 {
		t.Fatalf("processes %v, %v", st.Processes, err)
	}
	a.kill()
	for session, pid := range pids {
		if err := b.follow(session, ended(pid)); err != nil {
			t.Errorf("%s: %v", session, err)
		}
	}
}
