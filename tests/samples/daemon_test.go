package samples

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"soma/ident"
	"soma/internal/cli"
	"soma/internal/config"
	"soma/internal/daemon"
	"soma/internal/neuron"
)

// TestMain is the program itself where the test starts it with arguments of the program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "stop") {
		serve := func(ctx context.Context, home config.Home, cfg *config.Config, o cli.ServeOptions) error {
			return daemon.Run(ctx, home, cfg, daemon.Options{Build: o.Build, Log: o.Log, Env: os.LookupEnv, Environ: os.Environ})
		}
		os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Hooks{Serve: serve}))
	}
	os.Exit(m.Run())
}

// running is a daemon of a home made for the test.
type running struct {
	home      config.Home
	workspace string
	exited    chan error // takes how it ended, once
}

// start starts a daemon whose one model plays a script, and waits until it listens. What is left of it at the test's end is
// ended then.
func start(t *testing.T, script string) *running {
	t.Helper()
	dir := t.TempDir()
	home, err := config.HomeAt(filepath.Join(dir, "home"))
	if err == nil {
		err = home.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &running{home: home, workspace: filepath.Join(dir, "work"), exited: make(chan error, 1)}
	if err := os.Mkdir(r.workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	python, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("the samples need python3: %v", err)
	}
	played := filepath.Join(home.Dir(), "played.yaml")
	settings := "python: " + strings.TrimSpace(string(python)) + "\nmodels:\n- {name: played, type: script, model: " + played + "}\n"
	for path, text := range map[string]string{played: script, home.ConfigFile(): settings} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.serve(t)
	return r
}

func (r *running) serve(t *testing.T) {
	t.Helper()
	cmd := r.command("serve", "--background")
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		select {
		case <-ended:
			return
		default:
		}
		if out, err := r.command("stop", "--kernels").CombinedOutput(); err != nil {
			t.Errorf("cannot stop the daemon: %v: %s", err, out)
			_ = cmd.Process.Kill()
		}
		<-ended
	})
	serving := make(chan struct{})
	var text strings.Builder
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(log)
		for first := true; lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if first && strings.Contains(lines.Text(), "msg=serving ") {
				first = false
				close(serving)
			}
		}
		err := cmd.Wait()
		if strings.Contains(text.String(), "level=ERROR") || strings.Contains(text.String(), "DATA RACE") {
			err = fmt.Errorf("the daemon says (%v):\n%s", err, text.String())
		}
		r.exited <- err
	}()
	select {
	case <-serving:
	case err := <-r.exited:
		t.Fatalf("the daemon ended at its start: %v\n%s", err, text.String())
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// deadLetters puts two dead letters into the store, as a build without a handler leaves them, while the daemon is away.
func (r *running) deadLetters(t *testing.T) (ids []ident.ID) {
	t.Helper()
	if out, err := r.command("stop").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := <-r.exited; err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", r.home.Database())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 {
		now := time.Now()
		d := neuron.Delivery{ID: ident.New(now), Alias: "lost.v1", Payload: json.RawMessage(`{}`), Target: neuron.ID{Owner: "me", Kind: "lost", Key: "a"}, At: now.UTC()}
		d.Correlation = d.ID
		body, err := json.Marshal(d)
		if err == nil {
			_, err = db.ExecContext(t.Context(), `insert into dead_letter (id, delivery, code, error, attempts, ended_at) values (?, ?, 'no_handler', '', 1, ?)`,
				d.ID[:], body, now.UnixMicro())
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r.serve(t)
	return ids
}

// command is the program with the environment of the test, without what would lead elsewhere.
func (r *running) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "SOMA_") && !strings.HasPrefix(name, "OPENAI_") && name != "OLLAMA_HOST" && name != "VIRTUAL_ENV" {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "SOMA_HOME="+r.home.Dir())
	return cmd
}
