package prompt

import (
	"fmt"
	"regexp"
	"strings"

	"soma/internal/cli/pylines"
)

// kind is what a text that was typed is.
type kind int

const (
	nothing kind = iota
	code
	shell   // arg is the command
	explain // arg is a name
	help
	leave
	refused // arg says why
)

var name = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// meaning tells what a text is.
func meaning(text string) (k kind, arg string) {
	text = strings.TrimSpace(text)
	switch text {
	case "":
		return nothing, ""
	case "?":
		return help, ""
	case "exit", "quit", "exit()", "quit()":
		return leave, ""
	}
	if command, ok := strings.CutPrefix(text, "!"); ok {
		if command = strings.TrimSpace(command); command == "" {
			return refused, "write it as !command"
		}
		return shell, command
	}
	line, found := pylines.Magic(text)
	if !found {
		return code, ""
	}
	first := strings.TrimSpace(line.Text)
	if asked := strings.Trim(first, "? "); first == text && !strings.ContainsAny(first[:1], "%!") {
		if name.MatchString(asked) {
			return explain, asked
		}
		return refused, fmt.Sprintf("%q is no name; ?name explains one", asked)
	}
	return refused, fmt.Sprintf("line %d, %q, is no python but a command of IPython; !command alone runs a shell command, ?name explains a name, ? tells what there is",
		line.Number, first)
}

// whole reports whether a text can be taken as it is.
func whole(text string) bool {
	if first := strings.TrimSpace(text); first != "" && strings.ContainsAny(first[:1], "!?%") && !strings.Contains(first, "\n") {
		return true
	}
	return pylines.Whole(text)
}

// explaining is the code of a cell that explains a name. It leaves none behind.
func explaining(name string) string {
	const tell = `
import inspect, reprlib
try:
    value = eval(name, names)
except (AttributeError, NameError, SyntaxError):
    print("nothing has the name " + name)
else:
    try:
        print(name + str(inspect.signature(value)))
    except (TypeError, ValueError):
        print(name + ": " + type(value).__qualname__ + ("" if inspect.ismodule(value) or callable(value) else " = " + reprlib.repr(value)))
    if inspect.ismodule(value) or callable(value) or type(value).__module__ != "builtins":
        print(inspect.getdoc(value) or "(it says nothing of itself)")
`
	return fmt.Sprintf("exec(%s, {\"name\": %q, \"names\": globals()})", `"""`+strings.ReplaceAll(tell, `"`, `\"`)+`"""`, name)
}
