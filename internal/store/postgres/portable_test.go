package postgres

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"soma/internal/store/postgres/postgrestest"
)

// rooms returns the folders of those whose statements both engines run: all but the engines themselves.
func rooms(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "store" || name == "testdata" || name == "python" || strings.HasSuffix(name, "test") {
			return fs.SkipDir
		}
		if source, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(source) > 0 {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var statement = regexp.MustCompile(`(?is)^\s*(select\s|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s|with\s+(recursive\s+)?\w+\s)`)

// choices are the variables of which texts are put together, with what they may be.
var choices = map[string][]string{"../../process.live": {"", " and p.ended_at is null"}}

// textsOf collects the SQL of a room's source by its place: constant texts, whole or put together from constants and choices.
func textsOf(t *testing.T, constants map[string]constant, dir string) map[string]string {
	t.Helper()
	whole := map[string]string{}
	for _, file := range filesOf(t, dir) {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			switch e.(type) {
			case *ast.BasicLit, *ast.BinaryExpr:
			default:
				return true
			}
			at := fmt.Sprintf("%s:%d", filepath.Base(file), fset.Position(e.Pos()).Line)
			first, _ := value(constants, dir, leftmost(e), 0)
			if !statement.MatchString(first) {
				_, ok := value(constants, dir, e, 0)
				return !ok
			}
			for i := range 2 {
				text, ok := value(constants, dir, e, i)
				if !ok {
					t.Errorf("%s: %q goes on in a way that this test does not see: make it constant, or list it in choices", at, first)
				}
				whole[fmt.Sprintf("%s (%d)", at, i)] = strings.ReplaceAll(text, "%s", "?") // a list of as many as there are
			}
			return false
		})
	}
	return whole
}

func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: no source, %v", dir, err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// constant is where a name stands for a text.
type constant struct {
	dir string
	is  ast.Expr
}

// constantsOf collects the constants of all rooms as folder.name, and as package.name for those who import them.
func constantsOf(t *testing.T, rooms []string) map[string]constant {
	t.Helper()
	out := map[string]constant{}
	for _, room := range rooms {
		for _, file := range filesOf(t, room) {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				d, ok := n.(*ast.GenDecl)
				if !ok || d.Tok != token.CONST {
					return true
				}
				for _, spec := range d.Specs {
					v := spec.(*ast.ValueSpec)
					for i := range v.Values {
						c := constant{room, v.Values[i]}
						out[room+"."+v.Names[i].Name] = c
						if v.Names[i].IsExported() {
							out[filepath.Base(room)+"."+v.Names[i].Name] = c
						}
					}
				}
				return true
			})
		}
	}
	return out
}

// value returns the text of an expression, with the given choice of variables.
func value(constants map[string]constant, dir string, e ast.Expr, choice int) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, aok := value(constants, dir, e.X, choice)
		b, bok := value(constants, dir, e.Y, choice)
		return a + b, aok && bok && e.Op == token.ADD
	case *ast.ParenExpr:
		return value(constants, dir, e.X, choice)
	case *ast.Ident:
		if c, ok := constants[dir+"."+e.Name]; ok {
			return value(constants, dir, c.is, choice)
		}
		if all, ok := choices[dir+"."+e.Name]; ok {
			return all[min(choice, len(all)-1)], true
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			if c, ok := constants[x.Name+"."+e.Sel.Name]; ok {
				return value(constants, c.dir, c.is, choice)
			}
		}
	}
	return "", false
}

func leftmost(e ast.Expr) ast.Expr {
	for {
		b, ok := e.(*ast.BinaryExpr)
		if !ok {
			return e
		}
		e = b.X
	}
}

// N-35: every statement of the program is one that PostgreSQL takes as well, guarded ones also within their guard.
func TestStatementsArePortable(t *testing.T) {
	s := openAt(t, postgrestest.Database(t), Options{Migrations: Migrations()})
	defer func() { _ = s.Close() }()
	all := rooms(t)
	constants := constantsOf(t, all)
	n := 0
	for _, room := range all {
		for at, text := range textsOf(t, constants, room) {
			n++
			try(t, s, room+"/"+at, numbered(text))
			if first := strings.ToLower(strings.Fields(text)[0]); first != "select" && first != "with" {
				try(t, s, room+"/"+at+" guarded", exactlyOne(text))
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d statements were found", n)
	}
	t.Logf("%d statements", n)
}

func try(t *testing.T, s *Store, at, text string) {
	t.Helper()
	err := s.control.use(t.Context(), func(c *session) error {
		_, err := c.prepare(t.Context(), text)
		return err
	})
	if err != nil {
		t.Errorf("%s: %v\n%s", at, err, text)
	}
}
