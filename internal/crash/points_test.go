package crash

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// Each constant must stand in its list, or the suite would leave it out.
func TestListsHoldEveryConstant(t *testing.T) {
	listed := map[string]bool{}
	for _, n := range Names() {
		listed[string(n)] = true
	}
	for _, f := range Faults() {
		listed[string(f)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	consts := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			consts++
			if !listed[text] {
				t.Errorf("%s stands in no list", text)
			}
		}
		return true
	})
	if consts != len(listed) {
		t.Errorf("%d constants, but %d different names in the lists", consts, len(listed))
	}
}
