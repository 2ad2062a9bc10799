package lifecycle

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// TestMain is the program of TestSecondSignalKills as well.
func TestMain(m *testing.M) {
	if os.Getenv("LIFECYCLE_TEST_CHILD") == "" {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := SignalContext(syscall.SIGTERM)
	defer stop()
	for raised := time.Now(); time.Since(raised) < 10*time.Second; {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
	}
}

var errBroken = errors.New("broken")

func untilDone(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestGroupStopsAllWithTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		g := Group{Grace: time.Minute}
		g.Add("slow", func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(time.Second)
			order = append(order, "slow")
			return ctx.Err()
		})
		g.Add("first", func(context.Context) error {
			<-time.After(time.Hour)
			order = append(order, "first")
			return errBroken
		})
		began := time.Now()
		err := g.Run(t.Context())
		if !errors.Is(err, errBroken) || err.Error() != "first: broken" {
			t.Errorf("error %v", err)
		}
		if got := strings.Join(order, " "); got != "first slow" {
			t.Errorf("order %q", got)
		}
		if d := time.Since(began); d != time.Hour+time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestGroupEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var g Group
		g.Add("a", untilDone)
		g.Add("b", func(ctx context.Context) error { <-ctx.Done(); return errBroken })
		if err := g.Run(ctx); err == nil || err.Error() != "b: broken" {
			t.Errorf("error %v", err)
		}
	})
}

func TestGroupEndsWithoutErrorWhenAnActorIsDone(t *testing.T) {
	var g Group
	g.Add("a", untilDone)
	g.Add("b", func(context.Context) error { return nil })
	if err := g.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if err := new(Group).Run(t.Context()); err != nil {
		t.Errorf("empty group: %v", err)
	}
}

func TestGroupNamesWhatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := Group{Grace: 3 * time.Second}
		g.Add("stuck", func(context.Context) error { <-release; return nil })
		g.Add("broken", func(context.Context) error { return errBroken })
		began := time.Now()
		err := g.Run(t.Context())
		var late *StopError
		if !errors.As(err, &late) || len(late.Names) != 1 || late.Names[0] != "stuck" || !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("took %v", d)
		}
		close(release)
	})
}

func TestPanicsBecomeErrors(t *testing.T) {
	for name, fn := range map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic("boo") },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		var g Group
		g.Add("bad", fn)
		g.Add("good", untilDone)
		var caught *PanicError
		if err := g.Run(t.Context()); !errors.As(err, &caught) || !strings.HasPrefix(err.Error(), "bad: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: group error %v", name, err)
		} else if name == "panic" && !strings.Contains(string(caught.Stack), "lifecycle_test.go") {
			t.Errorf("the stack does not show the place: %s", caught.Stack)
		}
		var tasks Tasks
		if err := tasks.Go(t.Context(), "bad", fn); err != nil {
			t.Fatal(err)
		}
		if err := tasks.Stop(t.Context()); !errors.As(err, &caught) || !strings.HasPrefix(err.Error(), "bad: ") {
			t.Errorf("%s: tasks error %v", name, err)
		}
	}
}

func TestTasksStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks Tasks
		var ended atomic.Int32
		for range 2 {
			_ = tasks.Go(t.Context(), "worker", func(ctx context.Context) error {
				<-ctx.Done()
				if context.Cause(ctx) != ErrStopped {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				ended.Add(1)
				return context.Cause(ctx)
			})
			synctest.Wait()
		}
		if n := tasks.Len(); n != 2 {
			t.Errorf("%d tasks run", n)
		}
		for range 2 {
			if err := tasks.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if ended.Load() != 2 || tasks.Len() != 0 {
			t.Errorf("%d tasks ended, %d run", ended.Load(), tasks.Len())
		}
		if err := tasks.Go(t.Context(), "late", func(context.Context) error { t.Error("ran"); return nil }); err != ErrStopped {
			t.Errorf("Go after Stop: %v", err)
		}
	})
}

func TestTasksStopHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks Tasks
		release := make(chan struct{})
		_ = tasks.Go(t.Context(), "stuck", func(context.Context) error { <-release; return nil })
		_ = tasks.Go(t.Context(), "good", untilDone)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := tasks.Stop(ctx); err == nil || err.Error() != "cannot stop within 5s: stuck" {
			t.Errorf("error %v", err)
		}
		close(release)
		if err := tasks.Stop(t.Context()); err != nil {
			t.Errorf("second wait: %v", err)
		}
	})
}

func TestTasksErrorsAreBounded(t *testing.T) {
	var tasks Tasks
	for range maxKept + 4 {
		_ = tasks.Go(t.Context(), "w", func(context.Context) error { return errBroken })
	}
	lines := strings.Split(tasks.Stop(t.Context()).Error(), "\n")
	if len(lines) != maxKept+1 || lines[0] != "w: broken" || lines[maxKept] != "4 more tasks failed" {
		t.Errorf("errors %q", lines)
	}
}

func TestTasksReport(t *testing.T) {
	got := make(chan string, 1)
	tasks := Tasks{Report: func(name string, err error) { got <- name + " " + err.Error() }}
	_ = tasks.Go(t.Context(), "w", func(context.Context) error { return errBroken })
	if s := <-got; s != "w broken" {
		t.Errorf("reported %q", s)
	}
	if err := tasks.Stop(t.Context()); err != nil {
		t.Errorf("reported errors come twice: %v", err)
	}
}

func TestTaskEndsWithItsOwnContext(t *testing.T) {
	var tasks Tasks
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	_ = tasks.Go(ctx, "w", func(ctx context.Context) error { defer close(ended); return untilDone(ctx) })
	cancel()
	<-ended
	if err := tasks.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSignalContext(t *testing.T) {
	ctx, stop := SignalContext(syscall.SIGUSR1)
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()

	ctx, stop = SignalContext()
	stop()
	if ctx.Err() == nil {
		t.Error("the context outlives its stop function")
	}
}

func TestSecondSignalKills(t *testing.T) {
	var last *exec.ExitError
	// Under the race detector a program that a signal ends dies now and then of a fault in the detector instead.
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LIFECYCLE_TEST_CHILD=1")
		if err := cmd.Run(); !errors.As(err, &last) {
			t.Fatalf("the program survived: %v", err)
		}
		switch status := last.Sys().(syscall.WaitStatus); {
		case !status.Signaled():
			t.Fatalf("the program ended by itself: %v", last)
		case status.Signal() == syscall.SIGTERM:
			return
		}
	}
	t.Errorf("the program ended with %v", last)
}

// What Headroom holds makes collections rare.
func TestHeadroom(t *testing.T) {
	garbage := func() uint32 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 24 << 10 {
			sink = make([]byte, 1<<10)
		}
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	release := Headroom()
	n := garbage()
	release()
	if free := garbage(); n > 1 || free <= n {
		t.Errorf("24 MiB of garbage were collected %d times with headroom, %d times without", n, free)
	}
}

var sink []byte
