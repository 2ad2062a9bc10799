package supervise

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/lifecycle"
	"soma/internal/osproc"
)

// A panic of the task that commits does not hold up the burial.
func TestDrainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWork()
		tasks := lifecycle.Tasks{Report: func(string, error) {}}
		if err := tasks.Go(t.Context(), "work", w.run); err != nil {
			t.Fatal(err)
		}
		w.add(func(context.Context) { panic("broken") })
		w.drain(t.Context())
		_ = tasks.Stop(t.Context())
	})
}

// P-082: a living process that owes its hello is waited for, for two minutes where it has no cell.
func TestDeafProcess(t *testing.T) {
	p, err := osproc.Open(os.Getpid(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{proc: p, cells: []*cell{{id: "c"}}}
		look := func(after time.Duration) error {
			<-time.After(after)
			return k.Waiting()
		}
		for range 10 {
			if err := look(time.Minute); err != nil {
				t.Fatalf("with a cell: %v", err)
			}
		}
		k.cells = nil
		if err := errors.Join(look(2*time.Second), look(time.Minute), look(59*time.Second)); err != nil {
			t.Errorf("within two minutes: %v", err)
		}
		if err := look(time.Second); !errors.Is(err, errDeaf) {
			t.Errorf("after two minutes: %v", err)
		}
	})
}
