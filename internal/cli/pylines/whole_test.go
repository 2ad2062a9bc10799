package pylines

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// cases are pieces of code as a person has typed them so far; whole is what this room says of them. Where python's own rule
// for its prompt says something else, differs says why.
var cases = []struct {
	code    string
	whole   bool
	differs string
}{
	{"", true, ""},
	{"   ", true, ""},
	{"x = 1", true, ""},
	{"x + ", true, ""},
	{"# only a word", true, ""},
	{"x = 1 # (", true, ""},
	{"x = (1,", false, ""},
	{"x = (1,\n", false, ""},
	{"x = (1,\n2)", true, ""},
	{"f(a[{", false, ""},
	{"f(a[{}])", true, ""},
	{"f(')'", false, ""},
	{"f(\n# )\n", false, ""},
	{"x = )", true, ""},
	{"x = (1]", true, ""},
	{"'abc", true, ""},
	{"'abc\n", true, ""},
	{"'abc\\", false, ""},
	{"'abc\\\n", true, ""},
	{"'abc\\\ndef'", true, ""},
	{"'a\\'b'", true, ""},
	{`"it's"`, true, ""},
	{`'''a`, false, ""},
	{"'''a\n", false, ""},
	{"'''a\n\n", false, ""},
	{"'''a\nb'''", true, ""},
	{`"""a''' `, false, ""},
	{`"""a""" + '''b`, false, ""},
	{`r"\"`, true, ""},
	{`rb'''x`, false, ""},
	{`f"{x}" 'y'`, true, ""},
	{`f"""{x`, false, ""},
	{"x = \\", false, ""},
	{"x = \\\n", true, ""},
	{"x = \\\n1", true, ""},
	{"if x:", false, ""},
	{"if x: # why", false, ""},
	{"if x:\n", true, "an empty line ends what is typed"},
	{"if x:\n    y", false, ""},
	{"if x:\n    y\n", true, ""},
	{"if x:\n    y\n    ", true, "so does one that was only indented"},
	{"if x:\n    (y\n\n", false, ""},
	{"if x: y", false, ""},
	{"if x: y\n", true, ""},
	{"if x:\n  y\nelse:", false, ""},
	{"if x:\n  y\nelse:\n  z", false, ""},
	{"if x:\n  y\nelse:\n  z\n", true, ""},
	{"if x:\n  y\n\n  z", false, ""},
	{"for i in a:", false, ""},
	{"for i in (1,\n 2):", false, ""},
	{"while 1: pass", false, ""},
	{"with a as b:", false, ""},
	{"try:", false, ""},
	{"try:\n  x\nexcept E:\n  y", false, ""},
	{"try:\n  x\nexcept E:\n  y\n", true, ""},
	{"def f(a: int = 3) -> int:", false, ""},
	{"def f():\n  return 1", false, ""},
	{"def f():\n  return 1\n", true, ""},
	{"def f(\n", false, ""},
	{"class A: pass", false, ""},
	{"class A: pass\n", true, ""},
	{"async def f():", false, ""},
	{"async def f():\n  await g()\n", true, ""},
	{"@d", false, ""},
	{"@d\ndef f(): pass", false, ""},
	{"@d\ndef f(): pass\n", true, ""},
	{"match x:", false, ""},
	{"match x:\n  case 1:\n    y", false, ""},
	{"match x:\n  case 1:\n    y\n", true, ""},
	{"match = 1", true, ""},
	{"match[a:b]", true, ""},
	{"iffy = 1", true, ""},
	{"x: int", true, ""},
	{"x: int = 3", true, ""},
	{"lambda: 3", true, ""},
	{"x = lambda a:", true, ""},
	{"d[1:2]", true, ""},
	{"{'a': 1}", true, ""},
	{"{'a':", false, ""},
	{"else:", false, "python says at once that it is wrong; here after the empty line"},
	{"  x = 1", false, "the same"},
	{"if x:\n  y\nz = 1", true, ""},
	{"x = 1\nif y:\n  z", false, "python's prompt takes one statement, a cell many"},
	{"x = 1\nif y:\n  z\n", true, ""},
}

// Whole says what python's own rule says, but where it is meant not to.
func TestWhole(t *testing.T) {
	var codes []string
	for _, c := range cases {
		codes = append(codes, c.code)
	}
	given, err := json.Marshal(codes)
	if err != nil {
		t.Fatal(err)
	}
	const ask = `
import codeop, json, sys, warnings
warnings.simplefilter("ignore")
def whole(code):
    try:
        return codeop.compile_command(code, symbol="single") is not None
    except (SyntaxError, ValueError, OverflowError):
        return True
print(json.dumps([whole(code) for code in json.load(sys.stdin)]))
`
	cmd := exec.CommandContext(t.Context(), "python3", "-c", ask)
	cmd.Stdin = strings.NewReader(string(given))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var python []bool
	if err := json.Unmarshal(out, &python); err != nil || len(python) != len(cases) {
		t.Fatalf("%s: %v", out, err)
	}
	for i, c := range cases {
		got := Whole(c.code)
		if got != c.whole {
			t.Errorf("%q: %v", c.code, got)
		}
		if same := got == python[i]; same != (c.differs == "") {
			t.Errorf("%q: %v here, %v in python, differs %q", c.code, got, python[i], c.differs)
		}
	}
}

func TestIndent(t *testing.T) {
	for code, want := range map[string]int{
		"": 0, "x = 1": 0, "def f():": 4, "def f():  # why": 4, "if x:\n    y": 4, "if x:\n    if y:": 8,
		"def f():\n    return 1": 0, "for i in a:\n    if i:\n        break": 4, "passed = 1": 0, "f(a,": 0,
		"f(\n    a,": 4, "x = {'a':": 0, "'''\n  a": 2, "if x: y": 0, "if x:\n\ty": 8, "match x:": 4, "x = ')": 0,
	} {
		if got := Indent(code); got != want {
			t.Errorf("%q: %d, want %d", code, got, want)
		}
	}
}

func TestMagic(t *testing.T) {
	for code, want := range map[string]int{
		"x = 1": 0, "%time": 1, "x = 1\n  %matplotlib inline": 2, "!ls": 1, "x = a \\\n% b": 0, "'''\n%a\n!b\n'''": 0, "f(\n%a)": 0,
		"# %a\n\n%%bash\nls": 3, "x?": 1, "?x": 1, "'x?'": 0, "x # why?": 0, "print('a')  # !ls": 0,
	} {
		line, found := Magic(code)
		if line.Number != want || found != (want > 0) {
			t.Errorf("%q: line %d, %v", code, line.Number, found)
		}
	}
}
