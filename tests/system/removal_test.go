//go:build crash

package system_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"soma/internal/crash"
	"soma/wire"
)

// talk is a script whose session has rows in most tables.
const talk = `
name: talk
steps:
  - calls: [{python: 'print("x" * 2000)'}, {tool: none, arguments: {}}]
    usage: {input: 100, output: 7}
  - say: done
    usage: {input: 130, output: 3}
`

// S-62: the daemon dies by SIGKILL once a session is marked for removal, and after each commit that follows: the next one goes on
// with it to its end. What everything has cost is the same, the other session is as it was, and what was removed stays gone.
func TestRemovalCrashPoints(t *testing.T) {
	bin := build(t)
	for _, point := range crash.OfRemoval() {
		for at := 1; at <= map[crash.Name]int{crash.RemoveMarked: 1, crash.RemoveMid: 4}[point]; at++ {
			t.Run(fmt.Sprint(point, ":", at), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				if err := removal(ctx, newWorld(t, bin), point, at); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func removal(ctx context.Context, w *world, point crash.Name, at int) error {
	script := filepath.Join(w.dir, "talk.yaml")
	if err := os.WriteFile(script, []byte(talk), 0o600); err != nil {
		return err
	}
	if err := w.start(ctx, fmt.Sprintf("SOMA_CRASH=%s:%d", point, at)); err != nil {
		return err
	}
	pids := map[string]uint64{}
	for _, session := range []string{"a", "b"} {
		if _, err := w.client.OpenSession(ctx, session, wire.OpenSession{Workspace: w.dir, Model: "script:" + script}); err != nil {
			return err
		}
		st, err := w.client.Admit(ctx, session, "in", wire.Input{Text: "go"})
		if err != nil {
			return err
		}
		pids[session] = st.PID
		for ended := false; !ended; {
			p, err := w.client.Wait(ctx, st.PID, 10*time.Second)
			if err != nil {
				return err
			}
			ended = p.EndedAt != nil
		}
	}
	type seen struct {
		spent    []wire.Spent
		messages []wire.Message
	}
	look := func() (s seen, err error) {
		if s.spent, err = w.client.Spent(ctx); err != nil {
			return s, err
		}
		for i := range s.spent {
			s.spent[i].Removed = 0
		}
		page, err := w.client.Messages(ctx, pids["b"], 0, wire.MaxLimit)
		s.messages = page.Items
		return s, err
	}
	before, err := look()
	if err != nil {
		return err
	}
	for done := false; !done; {
		err := w.keep(ctx, func() error {
			r, err := w.client.RemoveSession(ctx, "a", wire.Remove{Force: true}) // its python kernel may still be ending
			done = err == nil && r.State == wire.Removed
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.deaths != 1 {
		return fmt.Errorf("the daemon died %d times", w.deaths)
	}
	after, err := look()
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		return fmt.Errorf("before %+v, afterwards %+v", before, after)
	}
	_, err = w.client.Admit(ctx, "a", "in", wire.Input{Text: "go"})
	var gone *wire.Error
	if !errors.As(err, &gone) || gone.Code != wire.Gone {
		return fmt.Errorf("an old input: %w", err)
	}
	if err := w.stop(ctx); err != nil {
		return err
	}
	m, err := takeImage(w.home, w.dir)
	if err != nil {
		return err
	}
	defer m.close()
	return m.consistent(ctx)
}
