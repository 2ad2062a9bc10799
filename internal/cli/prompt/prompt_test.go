package prompt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMeaning(t *testing.T) {
	for _, c := range []struct {
		text string
		kind kind
		arg  string
	}{
		{"", nothing, ""},
		{" \n\t", nothing, ""},
		{"x = 1", code, ""},
		{"!ls -la | head", shell, "ls -la | head"},
		{"  ! a\nb", shell, "a\nb"},
		{"!", refused, "write it as !command"},
		{"?", help, ""},
		{"?a.b", explain, "a.b"},
		{"a.b?", explain, "a.b"},
		{"a.b??", explain, "a.b"},
		{"größe ?", explain, "größe"},
		{"?a(", refused, `"a(" is no name`},
		{"f(x)?", refused, `"f(x)" is no name`},
		{"%time x", refused, `line 1, "%time x"`},
		{"x = 1\n!ls", refused, `line 2, "!ls"`},
		{"x = 1\ny?", refused, `line 2, "y?"`},
		{"'''\n!x'''", code, ""},
		{"exit", leave, ""},
		{"quit()", leave, ""},
		{"exit(1)", code, ""},
	} {
		k, arg := meaning(c.text)
		if k != c.kind || k != refused && arg != c.arg || k == refused && !strings.HasPrefix(arg, c.arg) {
			t.Errorf("%q: %d %q", c.text, k, arg)
		}
	}
	for text, want := range map[string]bool{"!f(": true, "?x": true, "%a(": true, "f(": false, "!a\nf(": false, "x": true} {
		if whole(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// What a cell says that explains a name; it leaves no other names behind.
func TestExplaining(t *testing.T) {
	for name, want := range map[string]string{
		"f":        "f(a, *, b=2)\nit adds.\nTwo lines.\n",
		"C":        "C(x)\n(it says nothing of itself)\n",
		"x":        "x: int = 41\n",
		"text":     `text: str = 'it\'s "a" \\n text'` + "\n",
		"len":      "len(obj, /)\nReturn the number of items in a container.\n",
		"os.path":  "os.path: module\n",
		"nowhere":  "nothing has the name nowhere\n",
		"os.none":  "nothing has the name os.none\n",
		"class":    "nothing has the name class\n",
		"dict.get": "dict.get(self, key, default=None, /)\n",
	} {
		program := "import os\ndef f(a, *, b=2):\n  '''it adds.\n  Two lines.'''\nclass C:\n  def __init__(self, x): pass\n" +
			"x = 41\ntext = 'it\\'s \"a\" \\\\n text'\nbefore = set(globals()) | {'before'}\n" + explaining(name) + "\nassert set(globals()) == before"
		out, err := exec.CommandContext(t.Context(), "python3", "-c", program).CombinedOutput()
		if !strings.Contains(string(out), want) || err != nil {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

func TestBanner(t *testing.T) {
	for want, g := range map[string]Greeting{
		"python 3.11.7 in /x: the first cell begins in a fresh kernel\n": {Python: "3.11.7", Folder: "/x"},
		"python 3.11.7 in /x: no names, 1 job\n":                         {Python: "3.11.7", Folder: "/x", Live: true, Jobs: 1},
		"python 3.11.7 in /x: 200 names and more, no jobs\n":             {Python: "3.11.7", Folder: "/x", Live: true, Names: 200, More: true},
	} {
		if got := banner(g); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The history is the person's alone, keeps texts of several lines, and is bounded in texts and bytes.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "home", "py_history")
	h := HistoryAt(path)
	if texts, err := h.Load(); len(texts) != 0 || err != nil {
		t.Errorf("%q, %v", texts, err)
	}
	for _, text := range []string{"one", "if x:\n  y\n", "", strings.Repeat("x", maxHistory+1), "é\"\x00"} {
		if err := h.Add(text); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		texts, err := h.Load()
		if err != nil || fmt.Sprintf("%q", texts) != fmt.Sprintf("%q", want) {
			t.Errorf("%q, %v", texts, err)
		}
	}
	check("one", "if x:\n  y", "é\"\x00")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("no JSON\n{}\n\"two\"\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check("one", "if x:\n  y", "é\"\x00", "two")

	big := strings.Repeat("y", maxHistory)
	for i := range 40 {
		if err := h.Add(fmt.Sprintf("%d %s", i, big[8:])); err != nil {
			t.Fatal(err)
		}
		if info, err = os.Stat(path); err != nil || info.Size() > maxFile {
			t.Fatalf("%d bytes, %v", info.Size(), err)
		}
	}
	texts, err := h.Load()
	if err != nil || len(texts) < 16 || !strings.HasPrefix(texts[len(texts)-1], "39 ") || !strings.HasPrefix(texts[0], fmt.Sprintf("%d ", 40-len(texts))) {
		t.Errorf("%d texts, %v", len(texts), err)
	}
}

// Several programs add to one history, at once: every text is there, whole.
func TestHistoryOfSeveral(t *testing.T) {
	path := filepath.Join(t.TempDir(), "py_history")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				if err := HistoryAt(path).Add(fmt.Sprintf("%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	texts, err := HistoryAt(path).Load()
	if err != nil || len(texts) != 160 {
		t.Errorf("%d texts, %v", len(texts), err)
	}
}

// What lies in the history's place and is not the person's own file is not written to.
func TestHistoryElsewhere(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "py_history")
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	if err := HistoryAt(path).Add("x"); err == nil || !strings.HasPrefix(err.Error(), "cannot keep the history: ") {
		t.Error(err)
	}
	if content, err := os.ReadFile(other); string(content) != "kept" {
		t.Errorf("%q, %v", content, err)
	}
}
