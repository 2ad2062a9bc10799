package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"soma/client"
	"soma/internal/config"
	"soma/message"
	"soma/wire"
)

// P-053: what woke an agent is one line for a person, not the notice that the model reads.
func TestWakeIsOneLine(t *testing.T) {
	var out bytes.Buffer
	tr := newTranscript(newScreen(&out, false))
	notice := wire.Message{Message: message.Message{Role: message.User, Text: "job finished … read its output with output.read"},
		Line: "job finished (exit_code=0, ran 1.2s): make all\ncell finished (status=ok, ran 90.0s): train()"}
	p := new(play).event(wire.StepStarted, wire.StepStartedEvent{Step: 1, Attempt: 1, Turn: true, Model: "m", Messages: []wire.Message{notice}})
	for _, f := range p.frames {
		if err := tr.frame(f); err != nil {
			t.Fatal(err)
		}
	}
	want := "* job finished (exit_code=0, ran 1.2s): make all\n  cell finished (status=ok, ran 90.0s): train()\n"
	if err := tr.finish(); err != nil || out.String() != want {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// P-039, P-035, P-064: a cell that goes on is no failure; images, what kept others away and the word on repair are shown.
func TestCellsAreShownWithWhatTheyLeave(t *testing.T) {
	var out bytes.Buffer
	tr := newTranscript(newScreen(&out, false))
	tr.picture = func(cell string, image wire.CellImage) (inline, line string) {
		if image.N == 2 {
			return "<inline " + cell + ">", ""
		}
		return "", "image 1: /tmp/plot.png"
	}
	p := new(play).started(1, 1, "go").answered(1, 1, "look", "slow()", "plot()").
		result(1, 0, "begun\n", func(b *wire.ToolResultEvent) { b.Status = "backgrounded"; b.DurationMS = 60_000 }).
		result(1, 1, "", func(b *wire.ToolResultEvent) {
			b.Images = []wire.CellImage{{N: 1, Media: "image/png", Size: 4}, {N: 2, Media: "image/png", Size: 4}}
			b.ImageErrors, b.Repair = []string{"a fifth image is in /o/5.png"}, "change it with cells.run"
		})
	for _, f := range p.frames {
		if err := tr.frame(f); err != nil {
			t.Fatal(err)
		}
	}
	_ = tr.finish()
	for _, want := range []string{
		"    begun\n  [runs on in the background, 60.00 s]\n", "    image 1: /tmp/plot.png\n    <inline c1.1>\n    a fifth image is in /o/5.png\n",
		"    change it with cells.run\n  [ok, 0.31 s]\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// An image is shown as a path where the output is no terminal, whatever the environment says; nothing goes to the output then.
func TestImagesAsFiles(t *testing.T) {
	s := newSoma(t)
	asked := 0
	stand(t, s.home, func(_ config.Home, w http.ResponseWriter, r *http.Request) any {
		if r.URL.Path != "/v1/cells/c1/images/1" {
			return wire.Errorf(wire.NotFound, "no image")
		}
		asked++
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte("\x89PNG"))
		return nil
	})
	var out, errs bytes.Buffer
	env := map[string]string{"SOMA_HOME": s.home, "HOME": s.home, "KITTY_WINDOW_ID": "1", "TERM": "xterm-kitty"}
	a := &app{Stdio: Stdio{Out: &out, Err: &errs}, env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	if err := a.open(); err != nil {
		t.Fatal(err)
	}
	defer a.client.Close()
	own := filepath.Join(t.TempDir(), "own.png")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &cellPrinter{app: a, id: "c1", picture: a.pictures(t.Context())}
	value := "1"
	shown := wire.Shown{Images: []wire.CellImage{{N: 1, Media: "image/png", Size: 4}, {N: 2, Media: "image/png", Name: own}, {N: 3, Media: "image/png"}}}
	body, _ := json.Marshal(wire.CellEvent{Cell: wire.Cell{ID: "c1", Status: "ok", Value: &value, Shown: shown}})
	if err := p.frame(client.Frame{Event: &wire.Event{Kind: wire.CellEnded, Body: body}}); err != client.ErrEnough {
		t.Fatal(err)
	}
	file := filepath.Join(s.home, "cache", "images", "c1-1.png")
	want := "soma: image 1: " + file + "\nsoma: image 2: " + own + "\nsoma: image 3 (0 bytes) cannot be shown: no image\n"
	if out.String() != "1\n" || errs.String() != want || asked != 1 {
		t.Errorf("out %q, errors %q, asked %d", out.String(), errs.String(), asked)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "\x89PNG" {
		t.Errorf("%q, %v", text, err)
	}
}
