package cli

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"soma/internal/cli/exit"
	"soma/internal/cli/manual"
)

var update = flag.Bool("update", false, "write the generated parts of docs/cli.md")

const guide = "../../docs/cli.md"

// I-12, I-15: the guide holds every command with its flags and every exit code, as the program has them.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, content := range map[string]string{"commands": commandsText(), "exit codes": exitText()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		before, rest, ok1 := strings.Cut(want, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			t.Fatalf("%s has no part for %s", guide, name)
		}
		want = before + begin + content + end + after
	}
	if *update {
		if err := os.WriteFile(guide, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is not what the program says: run go test ./internal/cli -run TestGuide -update", guide)
	}
}

func commandsText() string {
	var b strings.Builder
	for _, c := range manual.Commands(new(app).commands()) {
		fmt.Fprintf(&b, "\n### %s\n\n```\n%s\n```\n\n%s\n", c.CommandPath(), strings.Join(manual.Synopses(c), "\n"), manual.Text(c))
		var flags strings.Builder
		manual.EachFlag(c, func(names, usage string) { fmt.Fprintf(&flags, "| `%s` | %s |\n", names, usage) })
		if flags.Len() > 0 {
			fmt.Fprintf(&b, "\n| flag | |\n|---|---|\n%s", flags.String())
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
		}
	}
	return b.String() + "\n"
}

func exitText() string {
	var b strings.Builder
	b.WriteString("\n| code | means |\n|---|---|\n")
	for _, e := range exit.Codes {
		fmt.Fprintf(&b, "| %d | %s |\n", e.Code, e.Means)
	}
	return b.String() + "\n"
}

// I-11: exactly the commands that are there, and no promise of others.
func TestCommands(t *testing.T) {
	var names []string
	for _, c := range manual.Commands(new(app).commands())[1:] {
		names = append(names, strings.TrimPrefix(c.CommandPath(), "soma "))
	}
	const want = "attach backup chaos completion config deadletters deadletters discard deadletters redrive doctor interrupt job job output job stop jobs journal kernel kernel restart kernel show kernels kill logs man mcp pause prune ps py restore resume rm run send serve status stop store store copy trace version wait"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("commands %s", got)
	}
}

// I-12: man pages and completions are made by the program itself.
func TestManPagesAndCompletion(t *testing.T) {
	s := newSoma(t)
	dir := filepath.Join(t.TempDir(), "man1")
	if code, out, errs := s.run(t, "man", dir); code != exit.OK || out+errs != "" {
		t.Fatalf("code %d, %q, %q", code, out, errs)
	}
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) != len(manual.Commands(new(app).commands())) {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "soma-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".TH \"SOMA-RUN\" \"1\"", "\n.B soma run \\-\n", ".B \\-f, \\-\\-file FILE\n", "\n.SH EXAMPLES\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	code, script, _ := s.run(t, "completion", "bash")
	if code != exit.OK {
		t.Fatalf("completion: code %d", code)
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(script)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash does not read the completion: %v\n%s", err, out)
	}
	if code, out, _ := s.run(t, "__complete", "att"); code != exit.OK || !strings.Contains(out, "attach\t") {
		t.Errorf("completion of att: code %d, %q", code, out)
	}
}
