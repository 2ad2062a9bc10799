package soma_test

import (
	"go/ast"
	"slices"
	"testing"
)

// N-37: what is counted is diagnosis only. The daemon alone knows the room that counts; of its methods only Metrics gives
// anything back, and the API alone calls that. What runs is told nothing either: no method of an observer has a result.
func TestNothingReadsMetricsBack(t *testing.T) {
	const room = "internal/telemetry"
	all := sources(t)
	known, told, asked := 0, 0, 0
	for _, s := range all {
		if s.test {
			continue
		}
		for _, p := range s.imports() {
			if p == "soma/"+room {
				known++
				if s.room != "internal/daemon" {
					t.Errorf("%s imports %s", s.path, room)
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if s.room == room && n.Recv != nil && receiver(n) == "Telemetry" && n.Name.IsExported() {
					told++
					results := n.Type.Results.NumFields() > 0
					if results != slices.Contains([]string{"Start", "Stop", "Metrics"}, n.Name.Name) {
						t.Errorf("%s: the method %s has results: %v", s.path, n.Name.Name, results)
					}
				}
			case *ast.TypeSpec:
				observer, ok := n.Type.(*ast.InterfaceType)
				if !ok || n.Name.Name != "Observer" {
					return true
				}
				for _, m := range observer.Methods.List {
					if f, ok := m.Type.(*ast.FuncType); ok {
						told++
						if f.Results.NumFields() > 0 {
							t.Errorf("%s: the observer's method %s has results", s.path, m.Names[0].Name)
						}
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Metrics" && s.room != "client" && s.room != "internal/cli" {
					asked++
					if s.path != "internal/api/observe.go" {
						t.Errorf("%s asks for the metrics", s.path)
					}
				}
			}
			return true
		})
	}
	if known == 0 || told < 10 || asked != 1 {
		t.Errorf("%d files import %s, %d methods were looked at, %d ask for the metrics", known, room, told, asked)
	}
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
