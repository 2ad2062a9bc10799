//go:build crash

package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/internal/crash"
	"soma/wire"
)

// leaving is a script whose cell goes on in the background beside a job: both ends wake it, together or one after the other.
const leaving = `
name: leaving
steps:
  - calls: [{python: "j = run('sleep 0.4; exit 3')\nimport asyncio\nawait asyncio.sleep(2.5)\n'late'"}]
    usage: {input: 100, output: 7}
  - say: I wait
    usage: {input: 130, output: 3}
  - say: I know
    usage: {input: 150, output: 3}
  - say: I know more
    usage: {input: 170, output: 3}
`

// P-044, P-123: the daemon dies by SIGKILL around each commit of a job and of a cell in the background: the job and the cell end once,
// each with its status, and each end wakes the process once.
func TestBackgroundCrashPoints(t *testing.T) {
	bin := build(t)
	for _, point := range append(crash.OfBackground(), "") {
		t.Run(fmt.Sprintf("at %q", point), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if err := background(ctx, newWorld(t, bin), point); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func background(ctx context.Context, w *world, point crash.Name) error {
	script := filepath.Join(w.dir, "leaving.yaml")
	if err := os.WriteFile(script, []byte(leaving), 0o600); err != nil {
		return err
	}
	w.env = append(w.env, "SOMA_CELL_BACKGROUND_SECONDS=1")
	var deadly []string
	if point != "" {
		deadly = append(deadly, fmt.Sprintf("SOMA_CRASH=%s:1", point))
	}
	if err := w.start(ctx, deadly...); err != nil {
		return err
	}
	if _, err := w.client.OpenSession(ctx, "a", wire.OpenSession{Workspace: w.dir, Model: "script:" + script}); err != nil {
		return err
	}
	st, err := w.client.Admit(ctx, "a", "in", wire.Input{Text: "go"})
	if err != nil {
		return err
	}
	for ended := false; !ended; {
		err := w.keep(ctx, func() error {
			p, err := w.client.Wait(ctx, st.PID, 10*time.Second)
			ended = err == nil && p.EndedAt != nil
			return err
		})
		if err != nil {
			return err
		}
	}
	if died := w.deaths == 1; died != (point != "") {
		return fmt.Errorf("the daemon died %d times", w.deaths)
	}
	page, err := w.client.Messages(ctx, st.PID, 0, wire.MaxLimit)
	if err != nil {
		return err
	}
	said, err := json.Marshal(page.Items)
	if err != nil {
		return err
	}
	all := string(said)
	for text, n := range map[string]int{`"line":"job finished (exit_code=3`: 1, `"line":"cell finished (status=ok`: 1} {
		if got := strings.Count(all, text); got != n {
			return fmt.Errorf("%q is there %d times, not %d:\n%s", text, got, n, all)
		}
	}
	if err := w.stop(ctx); err != nil {
		return err
	}
	m, err := takeImage(w.home, w.dir)
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.consistent(ctx); err != nil {
		return err
	}
	for what, query := range map[string]string{
		"a job that has not ended with its status":  `select id || ' ' || state from job where state <> 'exited' or exit_code <> 3`,
		"a cell that has not ended with its status": `select id || ' ' || status from cell where status <> 'ok'`,
	} {
		if err := m.none(ctx, what, query); err != nil {
			return err
		}
	}
	return nil
}
