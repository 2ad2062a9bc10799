package postgres

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"soma/internal/store/postgres/postgrestest"
)

// rooms are those whose statements both engines run.
var rooms = []string{"process", "pykernel", "pykernel/supervise", "daemon", "api", "neuron", "neuron/engine", "neuron/graph", "neuron/call"}

var statement = regexp.MustCompile(`(?is)^\s*(select|insert|update|delete|with)\s`)

// choices are the variables of which texts are put together, with what they may be.
var choices = map[string][]string{"process.live": {"", " and p.ended_at is null"}}

// textsOf collects the SQL of a room's source by its place: constant texts, whole or put together from constants and choices.
func textsOf(t *testing.T, constants map[string]ast.Expr, dir string) map[string]string {
	t.Helper()
	whole := map[string]string{}
	pkg := filepath.Base(dir)
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
			first, _ := value(constants, pkg, leftmost(e), 0)
			if !statement.MatchString(first) {
				_, ok := value(constants, pkg, e, 0)
				return !ok
			}
			for i := range 2 {
				text, ok := value(constants, pkg, e, i)
				if !ok {
					t.Errorf("%s: %q goes on in a way that this test does not see: make it constant, or list it in choices", at, first)
				}
				whole[fmt.Sprintf("%s (%d)", at, i)] = text
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

// constantsOf collects the constants of all rooms as package.name.
func constantsOf(t *testing.T) map[string]ast.Expr {
	t.Helper()
	out := map[string]ast.Expr{}
	for _, room := range rooms {
		for _, file := range filesOf(t, filepath.Join("..", "..", room)) {
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
						out[filepath.Base(room)+"."+v.Names[i].Name] = v.Values[i]
					}
				}
				return true
			})
		}
	}
	return out
}

// value returns the text of an expression, with the given choice of variables.
func value(constants map[string]ast.Expr, pkg string, e ast.Expr, choice int) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, aok := value(constants, pkg, e.X, choice)
		b, bok := value(constants, pkg, e.Y, choice)
		return a + b, aok && bok && e.Op == token.ADD
	case *ast.ParenExpr:
		return value(constants, pkg, e.X, choice)
	case *ast.Ident:
		if c, ok := constants[pkg+"."+e.Name]; ok {
			return value(constants, pkg, c, choice)
		}
		if all, ok := choices[pkg+"."+e.Name]; ok {
			return all[min(choice, len(all)-1)], true
		}
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			if c, ok := constants[x.Name+"."+e.Sel.Name]; ok {
				return value(constants, x.Name, c, choice)
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
	constants := constantsOf(t)
	n := 0
	for _, room := range rooms {
		for at, text := range textsOf(t, constants, filepath.Join("..", "..", room)) {
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
