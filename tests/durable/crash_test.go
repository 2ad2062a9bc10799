//go:build crash

package durable_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/store/postgres/postgrestest"
	"soma/tests/durable/counter"
)

// rounds is how often each source goes; burned how many deliveries are made beside it where a point needs many.
const (
	rounds  = 12
	burned  = 400
	sources = 2
)

// trial is one run of the whole work: the node dies once at a point, is started again, and must come to the same sums.
type trial struct {
	point crash.Name
	at    int
	many  int
	// takeover: a node works and is killed half-way, and the one that dies at the point is the one that takes its places.
	takeover bool
}

// deaths are counted over all trials, by point and engine.
type deaths struct {
	mu   sync.Mutex
	died map[string]int
	hits map[string]int
	took map[string]time.Duration
}

func (d *deaths) add(engine string, tr trial, died bool, hits map[string]int, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if died {
		d.died[string(tr.point)+" "+engine]++
	}
	d.took[string(tr.point)+" "+engine] += took
	for name, n := range hits {
		d.hits[name+" "+engine] += n
	}
}

// N-33, N-24, N-27, N-17, N-14, N-36: SIGKILL at the points of relay, call, drain, checkpoint, trim and takeover; the next life
// comes to the sums that an undisturbed one comes to.
func TestCrashPoints(t *testing.T) {
	table := &deaths{died: map[string]int{}, hits: map[string]int{}, took: map[string]time.Duration{}}
	engines := map[string][]crash.Name{"sqlite": nil, "postgres": nil}
	for _, point := range crash.OfRuntime() {
		switch point {
		case crash.LeaseTaken, crash.LeaseCounted, crash.GroupSent:
		default:
			engines["sqlite"] = append(engines["sqlite"], point)
		}
		if point != crash.WALCopied {
			engines["postgres"] = append(engines["postgres"], point)
		}
	}
	t.Run("points", func(t *testing.T) {
		for engine, points := range engines {
			for _, point := range points {
				for _, at := range []int{1, 7} {
					tr := trial{point: point, at: at}
					switch {
					case point == crash.LeaseTaken || point == crash.LeaseCounted:
						tr.takeover = true
						if at > 1 {
							continue // once a life
						}
					case (point == crash.TrimMid || point == crash.WALCopied) && engine == "sqlite":
						tr.many = 18_000 // rows are deleted, and pages copied, in batches
						if at > 1 {
							tr.at = 2
						}
					case point == crash.TrimMid || point == crash.CheckpointMid:
						tr.many = burned
					}
					t.Run(fmt.Sprintf("%s/%s:%d", engine, point, tr.at), func(t *testing.T) {
						t.Parallel()
						began := time.Now()
						died, hits := tr.run(t, engine)
						if !died {
							t.Errorf("the node did not die at %s", point)
						}
						table.add(engine, tr, died, hits, time.Since(began))
					})
				}
			}
		}
	})
	var b strings.Builder
	for _, point := range crash.OfRuntime() {
		for _, engine := range []string{"sqlite", "postgres"} {
			key := string(point) + " " + engine
			if table.died[key] > 0 {
				fmt.Fprintf(&b, "%-16s %-9s deaths %2d hits %6d seconds %5.1f\n", point, engine, table.died[key], table.hits[key], table.took[key].Seconds())
			}
		}
	}
	t.Logf("hits per point:\n%s", b.String())
}

func (tr trial) run(t *testing.T, engine string) (died bool, hits map[string]int) {
	s := setup{name: "a"}
	if engine == "sqlite" {
		s.dsn = "sqlite:" + filepath.Join(t.TempDir(), "soma.db")
	} else {
		s.dsn, s.lease = postgrestest.Database(t), 1500*time.Millisecond
	}
	trace := filepath.Join(t.TempDir(), "hits")
	dies := []string{fmt.Sprintf("SOMA_CRASH=%s:%d", tr.point, tr.at), "SOMA_CRASH_HITS=" + trace}
	var p *process
	if tr.takeover {
		p = start(t, s, "SOMA_CRASH_HITS="+trace)
	} else {
		p = start(t, s, dies...)
	}
	next := func() {
		died = p.wait()
		s.name += "'"
		if s.lease == 0 {
			s.name = "a"
		}
		p = start(t, s, "SOMA_CRASH_HITS="+trace)
	}
	again := func(do func(*process) error) {
		t.Helper()
		for tries := 0; ; tries++ {
			err := do(p)
			if err == nil {
				return
			}
			if err == errDied && !died {
				next()
				continue
			}
			if tries > 1000 || t.Context().Err() != nil {
				t.Fatal(err)
			}
			pause(t, 20*time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	want := map[neuron.ID]int64{}
	space := ident.New(time.Now())
	for i := range sources {
		key := fmt.Sprint("s", i)
		id := ident.Derive(space, key)
		again(func(p *process) error { _, err := p.ask(ctx, request{Op: "connect", ID: id, Key: key}); return err })
		want[counter.Source(key)] = rounds
		for _, c := range counter.Counters(key) {
			want[c] = rounds
		}
	}
	for n := range rounds {
		if tr.takeover && n == rounds/2 {
			p.kill()
			s.name = "b"
			p = start(t, s, dies...)
		}
		// Both at once, each under an id of its own until it is answered.
		answers := map[int]<-chan line{}
		for i := range sources {
			answers[i] = p.begin(request{Op: "go", ID: ident.Derive(space, fmt.Sprint(i, n)), Key: fmt.Sprint("s", i)})
		}
		for i, c := range answers {
			if l, ok := <-c; ok && l.Error == "" {
				continue
			}
			again(func(p *process) error {
				_, err := p.ask(ctx, request{Op: "go", ID: ident.Derive(space, fmt.Sprint(i, n)), Key: fmt.Sprint("s", i)})
				return err
			})
		}
	}
	if tr.many > 0 {
		id := ident.Derive(space, "burn")
		again(func(p *process) error {
			_, err := p.ask(ctx, request{Op: "burn", ID: id, Key: "b", Many: tr.many})
			return err
		})
		for c := range 8 {
			want[counter.Counter(fmt.Sprint("b-", c))] = int64(tr.many / 8)
		}
	}
	if !died && p.isOver() {
		next()
	}
	rest(t, s.dsn)
	if !died && p.isOver() {
		next()
		rest(t, s.dsn)
	}
	p.stop()
	check(t, s.dsn, want)
	text, err := os.ReadFile(trace)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	hits = map[string]int{}
	for name := range strings.FieldsSeq(string(text)) {
		hits[name]++
	}
	return died, hits
}

func (p *process) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
