package script

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"soma/internal/agent/tool"
	"soma/message"
)

// interpreter runs cells one after another in one namespace, as a python kernel does.
const interpreter = `
import contextlib, io, json, sys, traceback
names = {}
for line in sys.stdin:
    out, status, kind = io.StringIO(), 'ok', ''
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(json.loads(line), '<cell>', 'exec'), names)
        except Exception as e:
            status, kind = 'error', type(e).__name__
            out.write(traceback.format_exc())
    print(json.dumps({'status': status, 'type': kind, 'output': out.getvalue()}), flush=True)
`

// python starts a real interpreter in dir and returns what runs a call in it.
func python(t *testing.T, dir string) func(message.Call) message.Message {
	t.Helper()
	cmd := exec.Command("python3", "-I", "-c", interpreter)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	lines := bufio.NewReader(out)
	return func(c message.Call) message.Message {
		code, _, err := tool.PythonCall(c.Arguments)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(code)
		if _, err := in.Write(append(b, '\n')); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Status, Type, Output string }
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		r := tool.Result{Status: got.Status, Output: tool.Output{Head: got.Output, Size: int64(len(got.Output))}}
		if got.Status != "ok" {
			r.Error = &tool.ResultError{Type: got.Type, Message: got.Output}
		}
		return cellResult(c, r, message.CallStatus(got.Status))
	}
}

func tour(t *testing.T) func() *Script {
	return func() *Script {
		s, err := Load("tour")
		if err != nil {
			t.Fatal(err)
		}
		return s.WithSpeed(0)
	}
}

// count is the independent count of a folder: what the tour's last line must say.
func count(t *testing.T, dir string) string {
	t.Helper()
	files, lines, bytes := 0, 0, 0
	largest, most := "none", -1
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == ".git" && d.IsDir():
			return filepath.SkipDir
		case d.Name() == ".git" || !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		bytes += len(b)
		lines += strings.Count(string(b), "\n")
		rel, _ := filepath.Rel(dir, path)
		if len(b) > most || len(b) == most && rel < largest {
			largest, most = rel, len(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("files %d, lines %d, bytes %d, largest %s", files, lines, bytes, largest)
}

func write(t *testing.T, dir, name string, data string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func lastLineOf(history []message.Message) string {
	return lastLine(history[len(history)-1].Text)
}

// The tour's numbers are those of an independent count, in a random tree with odd names, binary files, links, a fifo and a
// .git; it names the process to kill; and its cells keep their names.
func TestTourCounts(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	parts := []string{"a", "b.txt", "with space", "quo'te\"", "new\nline", "ünï", "\xff\xfe", ".hidden", "-rf", "{{x}}", "c.py", "back\\slash.TXT"}
	for i := range 60 {
		var path []string
		for range 1 + r.IntN(4) {
			path = append(path, fmt.Sprintf("%s%d", parts[r.IntN(len(parts))], r.IntN(3)))
		}
		path = append(path, fmt.Sprintf("%d%s", i, parts[r.IntN(len(parts))]))
		data := make([]byte, r.IntN(3000))
		for i := range data {
			data[i] = byte(r.IntN(20)) // many newlines, no text
		}
		write(t, dir, filepath.Join(path...), string(data))
	}
	write(t, dir, "largest.bin", strings.Repeat("\x00\n", 2_000_000))
	write(t, dir, ".git/objects/x", "no\n")
	write(t, dir, "sub/.git", "gitdir: elsewhere\n")
	for link, to := range map[string]string{"link": "largest.bin", "loop": ".", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	history := converse(t, tour(t), []message.Message{user("study this folder")}, python(t, dir))
	if got, want := lastLineOf(history), count(t, dir); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if !strings.Contains(history[1].Text, "kill -9 4711") {
		t.Errorf("first answer: %s", history[1].Text)
	}
	answers, bars := 0, false
	for _, m := range history {
		if m.Role == message.Assistant {
			answers++
		}
		bars = bars || m.Role == message.Tool && strings.Contains(m.Text, "####")
		if m.Role == message.Tool && m.Status != message.OK {
			t.Errorf("a cell failed: %s", m.Text)
		}
	}
	if answers != 8 || !bars {
		t.Errorf("%d answers, bars %v", answers, bars)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the tour changed the folder:\n%s\n%s", before, after)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		fmt.Fprintf(&b, "%q %v %d %v\n", path, info.Mode(), info.Size(), info.ModTime())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTourEmptyFolder(t *testing.T) {
	history := converse(t, tour(t), []message.Message{user("study")}, python(t, t.TempDir()))
	if got := lastLineOf(history); got != "files 0, lines 0, bytes 0, largest none" {
		t.Error(got)
	}
}

// An odd name of the largest file comes on one line and in valid UTF-8.
func TestTourOddLargest(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d\n/\xff'\"\u202e.bin", "x\n")
	history := converse(t, tour(t), []message.Message{user("study")}, python(t, dir))
	if got := lastLineOf(history); got != `files 1, lines 1, bytes 2, largest d\n/\xff'"\u202e.bin` {
		t.Error(got)
	}
}

// What may not be read is left out and said; the limits stop the tour and it says so.
func TestTourLimits(t *testing.T) {
	for name, c := range map[string]struct{ from, to, said, line string }{
		"files": {"LIMIT = 200_000", "LIMIT = 3", "I stopped at 3 files", "files 3, lines 3, bytes 6, largest f0"},
		"bytes": {"READ_LIMIT = 4 << 30", "READ_LIMIT = 5", "I stopped after 2 files", "files 2, lines 2, bytes 4, largest f0"},
		// stands for files that root can read and others cannot
		"closed": {"found.append(e.path[2:])", "found.append(e.path[2:] + (b'x' if b'1' in e.path else b''))", "1 files or folders I could not read", "files 4, lines 4, bytes 8, largest f0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := range 5 {
				write(t, dir, fmt.Sprint("f", i), "x\n")
			}
			run := python(t, dir)
			history := converse(t, tour(t), []message.Message{user("study")}, func(call message.Call) message.Message {
				var a map[string]any
				if err := json.Unmarshal(call.Arguments, &a); err != nil {
					t.Fatal(err)
				}
				a["code"] = strings.Replace(a["code"].(string), c.from, c.to, 1)
				call.Arguments, _ = json.Marshal(a)
				return run(call)
			})
			last := history[len(history)-1].Text
			if !strings.Contains(last, c.said) || lastLine(last) != c.line {
				t.Error(last)
			}
		})
	}
}

// The tour goes on when its python kernel and all names are lost in the middle, and ends honestly when all is lost.
func TestTourLosesKernel(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.txt", "x\n")
	run, calls := python(t, dir), 0
	unknown := tool.Result{Status: "unknown", Error: &tool.ResultError{Message: "the kernel ended"}}
	history := converse(t, tour(t), []message.Message{user("study")}, func(c message.Call) message.Message {
		if calls++; calls == 4 {
			run = python(t, dir)
			return cellResult(c, unknown, message.Unknown)
		}
		return run(c)
	})
	if got, want := lastLineOf(history), count(t, dir); got != want || calls != 10 {
		t.Errorf("%d calls, %s, want %s", calls, got, want)
	}
	history = converse(t, tour(t), []message.Message{user("study")}, func(c message.Call) message.Message {
		return cellResult(c, unknown, message.Unknown)
	})
	if got := lastLineOf(history); got != "I could not finish: the last cell ended with status unknown: the kernel ended." {
		t.Error(got)
	}
	if err := message.CheckPaired(history); err != nil {
		t.Error(err)
	}
}

// The tour takes 15 to 25 seconds as written, apart from the cells, and comes token by token.
func TestTourTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script, err := Load("tour")
		if err != nil {
			t.Fatal(err)
		}
		sums := tool.Result{Status: "ok", Output: tool.Output{Head: `{"files":1,"lines":1,"bytes":1,"largest":"x","kinds":1,"folders":1,"unread":0,"stopped":""}`}}
		start, tokens := time.Now(), 0
		history := []message.Message{user("study")}
		for {
			a, toks, _, err := collect(t.Context(), script, ask(history...))
			if err != nil {
				t.Fatal(err)
			}
			tokens += len(toks)
			history = append(history, a.Message)
			if len(a.Message.Calls) == 0 {
				break
			}
			history = append(history, cellResult(a.Message.Calls[0], sums, message.OK))
		}
		if d := time.Since(start); d < 15*time.Second || d > 25*time.Second || tokens < 100 {
			t.Errorf("%v, %d tokens", d, tokens)
		}
	})
}
