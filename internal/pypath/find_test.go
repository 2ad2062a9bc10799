package pypath

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// realPython is the interpreter of this machine, with no shim before it.
func realPython(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("the tests need python3: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// shim stands before python and counts its runs in a file.
func shim(t *testing.T, path, python string) (count func() int) {
	t.Helper()
	runs := filepath.Join(t.TempDir(), "runs")
	script(t, path, fmt.Sprintf("#!/bin/sh\necho run >> %s\nexec %s \"$@\"\n", runs, python))
	return func() int {
		text, _ := os.ReadFile(runs)
		return strings.Count(string(text), "run")
	}
}

// I-16 (python is resolved once): flag before config before VIRTUAL_ENV before PATH, and never a folder that PATH names relatively.
func TestFindOrder(t *testing.T) {
	python := realPython(t)
	dir := t.TempDir()
	venv := filepath.Join(dir, "venv")
	if out, err := exec.CommandContext(t.Context(), python, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("venv: %v\n%s", err, out)
	}
	bin := filepath.Join(dir, "bin")
	shim(t, filepath.Join(bin, "python3"), python)
	shim(t, filepath.Join(dir, "work", "near", "python3"), "/bin/false")
	t.Chdir(filepath.Join(dir, "work"))
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for _, c := range []struct {
		name   string
		choice Choice
		want   string
	}{
		{"path", Choice{SearchPath: ":near:" + bin}, python},
		{"virtual environment", Choice{VirtualEnv: venv, SearchPath: bin}, filepath.Join(venv, "bin", "python")},
		{"config", Choice{Config: "python3", VirtualEnv: venv, SearchPath: bin}, python},
		{"flag", Choice{Flag: "../venv/bin/python3", Config: "no-such-python", Dir: filepath.Join(dir, "work")}, filepath.Join(venv, "bin", "python3")},
	} {
		c.choice.Env = env
		got, err := Find(t.Context(), c.choice)
		if err != nil || got.Path != c.want || got.Major != 3 || got.Minor < MinMinor {
			t.Errorf("%s: %+v, %v, want %s", c.name, got, err, c.want)
		}
	}
}

// What lies in the folder one stands in steers no shim.
func TestFindAsksInTheRootFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	script(t, filepath.Join(dir, "python"), "")
	path := script(t, filepath.Join(t.TempDir(), "shim"), fmt.Sprintf("#!/bin/sh\n[ -e python ] && exit 1\nexec %s \"$@\"\n", realPython(t)))
	if _, err := Find(t.Context(), Choice{Flag: path}); err != nil {
		t.Error(err)
	}
}

func TestFindRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	script(t, filepath.Join(dir, "python"), "")
	old := script(t, filepath.Join(dir, "old"), `#!/bin/sh
echo "[\"$0\", 3, 9, 2]"
`)
	for _, c := range []struct {
		name, why, do string
		choice        Choice
	}{
		{"too old", "3.9.2 (from --python) and 3.11 or newer", "--python", Choice{Flag: old}},
		{"none on PATH", "not on PATH", "install Python 3.11", Choice{SearchPath: dir}},
		{"named and missing", "no such program", "--python", Choice{Flag: "./none", Dir: dir}},
		{"a folder", "no such program", "--python", Choice{Config: dir}},
		{"stale environment", "VIRTUAL_ENV", "unset VIRTUAL_ENV", Choice{VirtualEnv: dir, SearchPath: os.Getenv("PATH")}},
		{"no python", "does not answer like Python", "--python", Choice{Flag: script(t, filepath.Join(dir, "echo"), "#!/bin/sh\necho hello\n")}},
		{"a relative answer", "does not answer like Python", "--python", Choice{Flag: script(t, filepath.Join(dir, "rel"), "#!/bin/sh\necho '[\"python\", 3, 12, 0]'\n")}},
		{"it fails", "no version set", "--python", Choice{Flag: script(t, filepath.Join(dir, "fails"), "#!/bin/sh\necho more >&2; echo no version set >&2; exit 3\n")}},
	} {
		_, err := Find(t.Context(), c.choice)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.why) || !strings.Contains(e.Do, c.do) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v (%+v)", c.name, err, e)
		}
	}
}

func TestFindAsksAShimOnce(t *testing.T) {
	python := realPython(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "python3")
	count := shim(t, path, python)
	c := Choice{Flag: path, CacheFile: filepath.Join(dir, "python.json")}
	find := func(runs int) {
		t.Helper()
		py, err := Find(t.Context(), c)
		if err != nil || py.Path != python {
			t.Fatalf("%+v, %v", py, err)
		}
		if got := count(); got != runs {
			t.Errorf("the shim ran %d times, want %d", got, runs)
		}
	}
	find(1)
	find(1)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	find(2)
	find(2)
	if err := os.WriteFile(c.CacheFile, []byte("{broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	find(3)
	find(3)

	e := readCache(c.CacheFile)[path]
	for _, asked := range []time.Time{e.Asked.Add(-cacheAge), e.Asked.Add(time.Hour)} { // too old, and from the future
		e.Asked = asked
		text, err := json.Marshal(map[string]entry{path: e})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.CacheFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := cached(c.CacheFile, path); ok {
			t.Errorf("an answer of %s holds", asked)
		}
	}
	for i := range 3 * maxEntries {
		extra := script(t, filepath.Join(dir, fmt.Sprint("p", i)), "")
		remember(c.CacheFile, extra, e.Interpreter)
	}
	if n := len(readCache(c.CacheFile)); n > maxEntries {
		t.Errorf("%d entries", n)
	}
}

func TestFindSeesANewInterpreterBehindAShim(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	answer := func(minor int) {
		script(t, real, fmt.Sprintf("#!/bin/sh\necho '[\"%s\", 3, %d, 0]'\n", real, minor))
	}
	path := script(t, filepath.Join(dir, "python3"), fmt.Sprintf("#!/bin/sh\nexec %s\n", real))
	c := Choice{Flag: path, CacheFile: filepath.Join(dir, "python.json")}
	for i, minor := range []int{12, 113} {
		answer(minor)
		py, err := Find(t.Context(), c)
		if err != nil || py.Minor != minor {
			t.Errorf("step %d: %+v, %v", i, py, err)
		}
	}
}
