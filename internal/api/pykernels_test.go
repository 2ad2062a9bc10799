package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/client"
	"soma/internal/api"
	"soma/wire"
)

// kernels stands in for the owners of python kernels: one kernel k1 on branch b1 with the jobs j1, which runs, and j2.
type kernels struct {
	mu       sync.Mutex
	jobs     map[string]*jobText
	told     map[int]func()
	looks    int
	next     int
	away     bool // it cannot be asked
	stubborn bool
	fixed    bool // it does not end
}

// jobText is what a job has written; of it the first and the last bytes are kept.
type jobText struct {
	text    string
	from    int64 // what lies between head and from is lost
	head    int64
	running bool
}

// cellText is the output of every cell.
var cellText = strings.Repeat("0123456789", 20_000)

func newKernels() *kernels {
	return &kernels{told: map[int]func(){}, jobs: map[string]*jobText{"j1": {text: "é1\n", running: true}, "j2": {text: "done\n"}}}
}

func (k *kernels) tell() {
	k.mu.Lock()
	var all []func()
	for _, f := range k.told {
		all = append(all, f)
	}
	k.mu.Unlock()
	for _, f := range all {
		f()
	}
}

func (k *kernels) Kernels(_ context.Context, ended bool) ([]wire.PyKernel, error) {
	v, _ := k.Kernel(context.Background(), "b1")
	list := []wire.PyKernel{*v.Kernel}
	if ended {
		list = append(list, wire.PyKernel{ID: "k0", Branch: "b1", Session: "s", State: "ended", Reason: "it was ended", EndedAt: &epoch})
	}
	return list, nil
}

func (k *kernels) running() []wire.RunningJob {
	list := []wire.RunningJob{}
	pid := 4711
	for _, id := range []string{"j1", "j2"} {
		if k.jobs[id].running {
			list = append(list, wire.RunningJob{ID: id, PID: &pid, Command: "make " + id, Started: 1000})
		}
	}
	return list
}

// looked returns how often somebody has looked at a kernel.
func (k *kernels) looked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks
}

func (k *kernels) Kernel(_ context.Context, branch string) (wire.KernelView, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	switch branch {
	case "b1":
	case "b2":
		return wire.KernelView{Branch: branch, LiveJobs: new(int), Running: &[]wire.RunningJob{}}, nil
	case "b3": // its owner has told nothing yet
		return wire.KernelView{Branch: branch, Kernel: &wire.PyKernel{ID: "k3", Branch: branch, State: "booting"}}, nil
	default:
		return wire.KernelView{}, wire.Errorf(wire.NotFound, "there is no branch %s", branch)
	}
	jobs := k.running()
	n, memory := len(jobs), int64(20<<20)+time.Now().UnixNano()%100
	return wire.KernelView{Branch: branch, LiveJobs: &n, Running: &jobs, Kernel: &wire.PyKernel{
		ID: "k1", Branch: "b1", Session: "s", PID: 1, State: "attached", OSPID: 99, Python: "/usr/bin/python3", Jobs: &n, Cells: new(int),
		Memory: &memory, StartedAt: epoch, UsedAt: time.Now(),
	}}, nil
}

func (k *kernels) WatchKernel(_ context.Context, _ string, changed func()) (func(), error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next++
	n := k.next
	k.told[n] = changed
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.told, n)
	}, nil
}

func (k *kernels) watchers() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.told)
}

func (k *kernels) Jobs(context.Context, string) ([]wire.RunningJob, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running(), nil
}

func (k *kernels) RecentJobs(_ context.Context, branch string) ([]wire.Job, error) {
	if branch != "b1" {
		return nil, nil
	}
	code := 3
	return []wire.Job{{ID: "j2", Command: "make j2", State: wire.JobExited, ExitCode: &code, Started: 1000, Ended: 2000, Bytes: 5}}, nil
}

func (k *kernels) JobOutput(_ context.Context, _, job string, offset *int64, limit int64) (wire.JobPage, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.jobs[job]
	switch {
	case k.away:
		return wire.JobPage{}, wire.Errorf(wire.Unreachable, "the python kernel does not answer")
	case j == nil:
		return wire.JobPage{}, wire.Errorf(wire.JobNotFound, "there is no job %s", job)
	}
	size := int64(len(j.text))
	at := max(size-limit, j.from, 0)
	if offset != nil {
		at = min(*offset, size)
	}
	end := min(at+limit, size)
	if at < j.from && end > j.head {
		return wire.JobPage{}, wire.Errorf(wire.OutputLost, "that part was not kept")
	}
	return wire.JobPage{Job: job, Offset: at, Next: end, Size: size, Running: j.running, Text: j.text[at:end]}, nil
}

// write adds to the output of a job, or ends it.
func (k *kernels) write(job, text string, running bool) {
	k.mu.Lock()
	k.jobs[job].text += text
	k.jobs[job].running = running
	k.mu.Unlock()
	k.tell()
}

func (k *kernels) StopJob(_ context.Context, _, job string) (wire.StoppedJob, error) {
	k.mu.Lock()
	j, stubborn := k.jobs[job], k.stubborn
	k.next++
	k.mu.Unlock()
	switch {
	case j == nil:
		return wire.StoppedJob{}, wire.Errorf(wire.JobNotFound, "there is no job %s", job)
	case stubborn:
		return wire.StoppedJob{}, wire.Errorf(wire.Unconfirmed, "cannot tell whether job %s has ended", job)
	}
	k.write(job, "", false)
	return wire.StoppedJob{Job: job}, nil
}

func (k *kernels) Restart(_ context.Context, branch string) (wire.RestartedKernel, error) {
	switch {
	case k.fixed:
		return wire.RestartedKernel{}, wire.Errorf(wire.NotRestarted, "cannot end the python kernel")
	case branch == "b1":
		return wire.RestartedKernel{Old: "k1", Jobs: []string{"j1"}, Cells: []string{"c1"}}, nil
	}
	return wire.RestartedKernel{}, nil
}

func (k *kernels) Complete(_ context.Context, _ string, c wire.Complete) (wire.Completion, error) {
	return wire.Completion{Start: c.Cursor, Names: []string{"alpha"}}, nil
}

func (k *kernels) CellOutput(_ context.Context, cell string, offset, limit int64) (wire.OutputPage, error) {
	size := int64(len(cellText))
	from := min(offset, size)
	next := min(from+limit, size)
	return wire.OutputPage{Cell: cell, Offset: from, Next: next, Size: size, Kept: true, EOF: next == size, Text: cellText[from:next]}, nil
}

func (k *kernels) CellImage(_ context.Context, cell string, n int) (wire.CellImage, []byte, error) {
	switch n {
	case 1:
		return wire.CellImage{N: 1, Media: "image/png", Size: 4}, []byte("\x89PNG"), nil
	case 2:
		return wire.CellImage{N: 2, Media: "text/html", Size: 8}, []byte("<script>"), nil
	}
	return wire.CellImage{}, nil, wire.Errorf(wire.NotFound, "cell %s has no image %d", cell, n)
}

func (k *kernels) CellTrace(_ context.Context, cell string) (wire.CellTrace, error) {
	return wire.CellTrace{Cell: cell, Changes: []wire.TraceChange{{Path: "a.txt", Kind: "created", Diff: "+a\n"}}}, nil
}

// P-048, I-23: a stream of a kernel tells what is known, and again at each change; what is no news is not told, and nobody is
// left behind who listens.
func TestFollowKernel(t *testing.T) {
	r := start(t)
	in := r.read(t, "/v1/branches/b1/kernel/events")
	first := in.event()
	if first.kind != wire.KernelObserved || first.id != "" || !strings.Contains(first.data, `"live_job_count":1`) || !strings.Contains(first.data, `"id":"j1"`) {
		t.Fatalf("first comes %+v", first)
	}
	looked := r.kernels.looked()
	r.kernels.tell() // nothing but the memory and the last use is another one
	r.await(t, func() bool { return r.kernels.looked() > looked })
	r.kernels.write("j1", "", false)
	if second := in.event(); !strings.Contains(second.data, `"live_job_count":0`) || !strings.Contains(second.data, `"running_jobs":[]`) {
		t.Errorf("after the end of the job comes %+v", second)
	}
	in.conn.Close()
	r.await(t, func() bool { r.kernels.tell(); return r.kernels.watchers() == 0 })
	if a := r.ask(t, "GET /v1/branches/b9/kernel/events", []string{"Host: soma", good}, ""); a.code(t) != wire.NotFound {
		t.Errorf("a branch that there is not: %s", a.body)
	}
}

// await asks until the answer is yes; the test's deadline ends it.
func (r *running) await(t *testing.T, ask func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !ask() {
		select {
		case <-again.C:
		case <-t.Context().Done():
			t.Fatal("waited in vain")
		}
	}
}

// P-050, I-23: a job's output is followed by bytes to the end of the job, from wherever the reader was.
func TestFollowJob(t *testing.T) {
	r := start(t)
	path := "/v1/branches/b1/jobs/j1/output/events"
	in := r.read(t, path)
	if e := in.event(); e.kind != wire.JobOutput || e.id != "4" || !strings.Contains(e.data, `"text":"é1\n"`) || !strings.Contains(e.data, `"running":true`) {
		t.Fatalf("first comes %+v", e)
	}
	r.kernels.write("j1", "2\n", true)
	if e := in.event(); e.id != "6" || !strings.Contains(e.data, `"text":"2\n"`) {
		t.Errorf("then comes %+v", e)
	}
	again := r.read(t, path, "Last-Event-ID: 4")
	if e := again.event(); !strings.Contains(e.data, `"offset":4`) {
		t.Errorf("who comes back at 4 gets %+v", e)
	}
	r.kernels.write("j1", "end\n", false)
	for _, one := range []*reader{in, again} {
		if e := one.event(); e.id != "10" || !strings.Contains(e.data, `"running":false`) {
			t.Errorf("at the end comes %+v", e)
		}
		if one.lines.Scan() {
			t.Errorf("behind the end comes %q", one.lines.Text())
		}
	}
	for want, path := range map[wire.Code]string{
		wire.JobNotFound: "/v1/branches/b1/jobs/j9/output/events", wire.BadRequest: "/v1/branches/b1/jobs/j1/output/events?offset=x",
	} {
		if a := r.ask(t, "GET "+path, []string{"Host: soma", good}, ""); a.code(t) != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// I-22: the reader of a job that prints nothing hears that the stream lives, though the job is looked at more often than that.
func TestQuietJobHasHeartbeats(t *testing.T) {
	r := start(t, func(s *api.Server) { s.SetHeartbeat(1500 * time.Millisecond) })
	in := r.read(t, "/v1/branches/b1/jobs/j1/output/events")
	in.event()
	if e := in.next(); e.comment == "" {
		t.Errorf("a quiet job says %+v", e)
	}
}

// P-050, P-131: where output was not kept the stream says so and goes on behind it; a page there is refused, the end never.
func TestFollowJobPastAGap(t *testing.T) {
	r := start(t)
	r.kernels.mu.Lock()
	r.kernels.jobs["j1"] = &jobText{text: strings.Repeat("x", 200_000), head: 70_000, from: 190_000, running: true}
	r.kernels.mu.Unlock()
	var pages []wire.JobPage
	var gaps []wire.JobGap
	at, err := r.client.FollowJob(t.Context(), "b1", "j1", 0, func(p wire.JobPage, gap *wire.JobGap) error {
		if gap != nil {
			gaps = append(gaps, *gap)
			return nil
		}
		if pages = append(pages, p); p.Next == 200_000 && p.Running {
			r.kernels.write("j1", "", false)
		}
		return nil
	})
	if err != nil || at != 200_000 {
		t.Fatalf("ended at %d with %v", at, err)
	}
	if len(gaps) != 1 || gaps[0] != (wire.JobGap{Job: "j1", Offset: 65536, Next: 190_000}) {
		t.Errorf("gaps %+v", gaps)
	}
	if last := pages[len(pages)-1]; last.Running || last.Next != 200_000 {
		t.Errorf("the last page is %+v", last)
	}
	var refusal *wire.Error
	if _, err := r.client.JobOutput(t.Context(), "b1", "j1", 100_000, 1000); !errors.As(err, &refusal) || refusal.Code != wire.OutputLost || refusal.Status != 409 {
		t.Errorf("a page that was not kept: %v", err)
	}
	if p, err := r.client.JobOutput(t.Context(), "b1", "j1", client.End, 1000); err != nil || p.Offset != 199_000 {
		t.Errorf("the end: %+v, %v", p, err)
	}
}

// P-050: a stream that cannot go on says why, and the reader hears it.
func TestFollowJobOfALostKernel(t *testing.T) {
	r := start(t)
	var refusal *wire.Error
	at, err := r.client.FollowJob(t.Context(), "b1", "j1", 0, func(wire.JobPage, *wire.JobGap) error {
		r.kernels.mu.Lock()
		r.kernels.away = true
		r.kernels.mu.Unlock()
		return nil
	})
	if at != 4 || !errors.As(err, &refusal) || refusal.Code != wire.Unreachable {
		t.Errorf("at %d: %v", at, err)
	}
	if _, err := r.client.JobOutput(t.Context(), "b1", "j1", 0, 0); !errors.As(err, &refusal) || refusal.Status != 503 {
		t.Errorf("a page: %v", err)
	}
}

// P-052: a stop that is not confirmed fails, and no client makes it again by itself.
func TestStopJob(t *testing.T) {
	r := start(t)
	r.kernels.mu.Lock()
	r.kernels.stubborn = true
	before := r.kernels.next
	r.kernels.mu.Unlock()
	var refusal *wire.Error
	if err := r.client.StopJob(t.Context(), "b1", "j1"); !errors.As(err, &refusal) || refusal.Code != wire.Unconfirmed || refusal.Status != 503 {
		t.Errorf("a stop that is not confirmed: %v", err)
	}
	r.kernels.mu.Lock()
	asked := r.kernels.next - before
	r.kernels.stubborn = false
	r.kernels.mu.Unlock()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if err := r.client.StopJob(t.Context(), "b1", "j1"); err != nil {
		t.Error(err)
	}
	if err := r.client.StopJob(t.Context(), "b1", "j9"); !errors.As(err, &refusal) || refusal.Code != wire.JobNotFound || refusal.Status != 404 {
		t.Errorf("a job that there is not: %v", err)
	}
}

// I-51, P-064: an image is handed out as nothing but an image, whatever its cell says that it is.
func TestCellImage(t *testing.T) {
	r := start(t)
	header := []string{"Host: soma", good}
	for n, want := range map[string]string{"1": "image/png", "2": "application/octet-stream"} {
		a := r.ask(t, "GET /v1/cells/c/images/"+n, header, "")
		if a.status != 200 || a.header.Get("Content-Type") != want {
			t.Errorf("image %s: %d as %s", n, a.status, a.header.Get("Content-Type"))
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff", "Content-Disposition": "inline; filename=c-" + n,
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("image %s: %s is %q", n, name, got)
			}
		}
	}
	bytes, media, err := r.client.CellImage(t.Context(), "c", 1)
	if err != nil || media != "image/png" || string(bytes) != "\x89PNG" {
		t.Errorf("%q as %s, %v", bytes, media, err)
	}
	for n, want := range map[string]wire.Code{"0": wire.BadRequest, "x": wire.BadRequest, "70000": wire.BadRequest, "3": wire.NotFound} {
		if a := r.ask(t, "GET /v1/cells/c/images/"+n, header, ""); a.code(t) != want {
			t.Errorf("image %s: %s", n, a.body)
		}
	}
}

// I-25: who asks whether the daemon takes work hears why it does not, without a token.
func TestReady(t *testing.T) {
	r := start(t)
	if err := r.client.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	away := wire.Errorf(wire.Unavailable, "cannot reach the database")
	r.before(func(_ context.Context, method string) error {
		if method == "Ready" {
			return away
		}
		return nil
	})
	var refusal *wire.Error
	if err := r.client.Ready(t.Context()); !errors.As(err, &refusal) || refusal.Title != away.Title {
		t.Errorf("without its database: %v", err)
	}
	a := r.ask(t, "GET /readyz", []string{"Host: soma"}, "")
	if a.status != 503 || a.code(t) != wire.Unavailable {
		t.Errorf("%d: %s", a.status, a.body)
	}
}

// P-121, P-050: the jobs that run, the book of all, and pages of an output: 4 to 65,536 bytes, without a limit 16,384, without an offset
// the last.
func TestJobRoutes(t *testing.T) {
	r := start(t)
	if list, err := r.client.Jobs(t.Context(), "b1"); err != nil || len(list) != 1 || list[0].ID != "j1" || list[0].PID == nil {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := r.client.RecentJobs(t.Context(), "b1"); err != nil || len(list) != 1 || list[0].ID != "j2" || list[0].State != wire.JobExited || *list[0].ExitCode != 3 || list[0].Bytes != 5 {
		t.Errorf("%+v, %v", list, err)
	}
	r.kernels.write("j1", strings.Repeat("x", 100_000), true)
	size := int64(100_004)
	for query, want := range map[string]wire.JobPage{
		"": {Offset: size - 16384, Next: size}, "?limit=4": {Offset: size - 4, Next: size}, "?limit=65536": {Offset: size - 65536, Next: size},
		"?offset=7": {Offset: 7, Next: 7 + 16384}, "?offset=0&limit=4": {Next: 4},
	} {
		var p wire.JobPage
		a := r.ask(t, "GET /v1/branches/b1/jobs/j1/output"+query, []string{"Host: soma", good}, "")
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Job != "j1" || p.Offset != want.Offset || p.Next != want.Next || len(p.Text) != int(want.Next-want.Offset) || p.Size != size {
			t.Errorf("%s: %.200s, %v", query, a.body, err)
		}
	}
	for _, query := range []string{"limit=3", "limit=65537", "limit=x", "offset=-1", "offset=x"} {
		if a := r.ask(t, "GET /v1/branches/b1/jobs/j1/output?"+query, []string{"Host: soma", good}, ""); a.code(t) != wire.BadRequest {
			t.Errorf("%s: %.200s", query, a.body)
		}
	}
}

// P-046, P-121: what is not known is null, and what there is not is empty.
func TestKernelViews(t *testing.T) {
	r := start(t)
	for branch, want := range map[string]string{
		"b2": `{"branch":"b2","live_job_count":0,"running_jobs":[]}`, "b3": `"live_job_count":null,"running_jobs":null}`,
	} {
		if a := r.ask(t, "GET /v1/branches/"+branch+"/kernel", []string{"Host: soma", good}, ""); !strings.HasSuffix(strings.TrimSpace(a.body), want) {
			t.Errorf("%s: %s", branch, a.body)
		}
	}
	all, err := r.client.Kernels(t.Context(), true)
	if err != nil || !slices.ContainsFunc(all, func(k wire.PyKernel) bool { return k.State == "ended" && k.Memory == nil }) {
		t.Errorf("%+v, %v", all, err)
	}
	var refusal *wire.Error
	if _, err := r.client.Complete(t.Context(), "b1", "é", 2); !errors.As(err, &refusal) || refusal.Code != wire.BadRequest {
		t.Errorf("a cursor outside: %v", err)
	}
	if c, err := r.client.Complete(t.Context(), "b1", "é", 1); err != nil || c.Start != 1 || len(c.Names) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if done, err := r.client.RestartKernel(t.Context(), "b2"); err != nil || done.Old != "" || done.Jobs == nil || done.Cells == nil {
		t.Errorf("%+v, %v", done, err)
	}
	r.kernels.fixed = true
	if _, err := r.client.RestartKernel(t.Context(), "b1"); !errors.As(err, &refusal) || refusal.Code != wire.NotRestarted || refusal.Status != 503 {
		t.Errorf("%v", err)
	}
}
