package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const table = `# N: things

| id | requirement | status | test |
|---|---|---|---|
| N-01 | one with a \| in it | open |  |
| N-02 | two | open |  |
| N-03 | three | open |  |
| N-04b | four | open |  |

| row | what was broken |
|---|---|
| N-01 | all of it |
`

const goFile = "package x\n\nimport \"testing\"\n\n// N-01: above\nfunc TestA(t *testing.T) {}\n\n" +
	"func TestB(t *testing.T) {\n\t// N-02, N-01\n}\n\n// N-03\nfunc helper() {}\n\n// N-03\n\nfunc TestC(t *testing.T) {}\n\n" +
	"func BenchmarkA(b *testing.B) {\n\t// N-01\n}\n\nfunc Testify() {\n\t// N-03\n}\n"

const pyFile = `# N-03: of the file
import unittest

class First(unittest.TestCase):
    # N-03: of the class
    def setUp(self):
        pass  # N-03

    # N-01
    @decorated
    async def test_a(self):
        x = 1  # N-02
        def test_inner():
            pass  # N-04b

        # N-04b

    def test_b(self):
        pass

class Second(unittest.TestCase):
    def test_a(self):
        # N-01
        pass

def test_free():
    pass  # N-02
`

const script = "# N-02: a script\nexec soma\n-- file.txt --\n# N-03\n"

// tree writes a small project and returns its root.
func tree(t *testing.T, spec string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"docs/spec/neuron.md": spec, "x/x_test.go": goFile, "py/tests/test_x.py": pyFile, "test/testdata/run.txtar": script,
		"other/go.mod": "module other\n", "other/y_test.go": "package y\n\n// N-99\nfunc TestY() {}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func call(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(root, args, &out)
	return out.String(), err
}

func TestList(t *testing.T) {
	root := tree(t, table)
	out, err := call(t, root, "list", "N-01..N-04b")
	if err != nil {
		t.Fatal(err)
	}
	const want = `N-01   open  5  py/tests/test_x.py#First.test_a py/tests/test_x.py#Second.test_a x/x_test.go#TestA x/x_test.go#TestB x/x_test.go#BenchmarkA
N-02   open  4  py/tests/test_x.py#First.test_a py/tests/test_x.py#test_free test/testdata/run.txtar#run x/x_test.go#TestB
N-03   open  0  
N-04b  open  1  py/tests/test_x.py#First.test_a
`
	if out != want {
		t.Errorf("list:\n%s", out)
	}
	rows := filepath.Join(root, "some.rows")
	if err := os.WriteFile(rows, []byte("N-02…N-03\nN-01"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := call(t, root, "list", "@"+rows); err != nil || strings.Count(out, "\n") != 3 {
		t.Errorf("list of a file: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"list"}, {"list", "N-09"}, {"list", "N-01..N-09"}, {"list", "@nothing"}, {"frobnicate", "N-01"}, nil} {
		if _, err := call(t, root, args...); err == nil {
			t.Errorf("%q is no error", args)
		}
	}
}

func TestMarkAndVerify(t *testing.T) {
	root := tree(t, table)
	file := filepath.Join(root, "docs/spec/neuron.md")
	if out, err := call(t, root, "verify"); err != nil || out != "4 rows, 0 done\n" {
		t.Errorf("verify: %q, %v", out, err)
	}
	if _, err := call(t, root, "mark", "N-02", "N-03"); err == nil || !strings.Contains(err.Error(), "cannot mark N-03:") {
		t.Errorf("mark of a row without a test: %v", err)
	}
	if out, err := call(t, root, "verify"); err != nil || out != "4 rows, 1 done\n" {
		t.Errorf("verify: %q, %v", out, err)
	}
	text, _ := os.ReadFile(file)
	const want = "| N-02 | two | done | py/tests/test_x.py#First.test_a, py/tests/test_x.py#test_free, test/testdata/run.txtar#run, x/x_test.go#TestB |\n"
	if !strings.Contains(string(text), want) || !strings.Contains(string(text), "| N-03 | three | open |  |\n") {
		t.Errorf("marked:\n%s", text)
	}
	if _, err := call(t, root, "mark", "N-01"); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, root, "unmark", "N-01..N-02"); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(file); string(text) != table {
		t.Errorf("after unmark:\n%s", text)
	}
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"two | open |  |", "two | done |  |"}:                       "N-02 is done and names 0 tests",
		{"two | open |  |", "two | open | x/x_test.go#TestB |"}:      "N-02 is open and names 1 tests",
		{"two | open |  |", "two | done | x/x_test.go#TestZ |"}:      "x/x_test.go#TestZ, which does not exist",
		{"two | open |  |", "two | done | x/x_test.go#TestA |"}:      "x/x_test.go#TestA, which does not carry its id",
		{"three | open |  |", "three | done | x/x_test.go#helper |"}: "x/x_test.go#helper, which does not exist",
		{"three | open |  |", "three | done | x/x_test.go#TestC |"}:  "x/x_test.go#TestC, which does not carry its id",
		{"| N-04b | four | open |  |\n", ""}:                         "#First.test_a: a comment names row N-04b, which does not exist",
		{"two | open |  |", "two | perhaps |  |"}:                    "neuron.md:6: a row is",
		{"two | open |  |", "two | open |"}:                          "neuron.md:6: a row is",
		{"| N-03 |", "| N-02 |"}:                                     "neuron.md:7: row N-02 stands in",
	} {
		root := tree(t, strings.Replace(table, change[0], change[1], 1))
		if _, err := call(t, root, "verify"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", change[1], err, want)
		}
	}
}
