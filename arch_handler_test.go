package soma_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// dispatching are the rooms between a delivery and its handler.
var dispatching = []string{"internal/neuron", "internal/neuron/engine"}

// N-05: no reflection between a delivery and its handler, and no registry that a program shares: the rooms have no init, and
// their package variables hold nothing that is filled later.
func TestHandlersAreWiredByValue(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.room != dispatching[0] && s.room != dispatching[1] {
			continue
		}
		for _, p := range s.imports() {
			if p == "reflect" {
				t.Errorf("%s imports reflect", s.path)
			}
		}
		for _, problem := range sharedState(s.file) {
			t.Errorf("%s: %s", s.at(problem.node), problem.what)
		}
	}
}

type problem struct {
	node ast.Node
	what string
}

// sharedState finds init functions and package variables whose type or value is a map, a slice, a channel or a pointer.
func sharedState(file *ast.File) (found []problem) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, problem{d, "an init function"})
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				for _, e := range append([]ast.Expr{v.Type}, v.Values...) {
					if growing(e) {
						found = append(found, problem{v, "the variable " + v.Names[0].Name + " can be filled by anyone"})
						break
					}
				}
			}
		}
	}
	return found
}

func growing(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.MapType, *ast.ChanType, *ast.StarExpr:
		return true
	case *ast.ArrayType:
		return x.Len == nil
	case *ast.CompositeLit:
		return growing(x.Type)
	case *ast.UnaryExpr:
		return x.Op == token.AND
	case *ast.CallExpr:
		name, ok := x.Fun.(*ast.Ident)
		return ok && (name.Name == "make" || name.Name == "new")
	}
	return false
}

// N-05: the check sees what it is to see.
func TestSharedStateIsSeen(t *testing.T) {
	for text, shared := range map[string]bool{
		"var kinds = map[string]int{}":                  true,
		"var kinds map[string]*int":                     true,
		"var kinds []string":                            true,
		"var kinds = make(map[string]int)":              true,
		"var kinds = &registry{}":                       true,
		"func init() {}":                                true,
		"var errGone = errors.New(\"gone\")":            false,
		"var moves = [...][2]int{{1, 2}}":               false,
		"var zero ident.ID":                             false,
		"func (r *registry) init() {}\nconst limit = 1": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := sharedState(file); (len(got) > 0) != shared {
			t.Errorf("%s: %v", text, got)
		}
	}
}
