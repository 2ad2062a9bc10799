// Package soma_test is the law of the project's layout: what a room may import, how large things may grow, and what has no
// place where. A new room gets its line in the table of areas.
package soma_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "soma"

// The tiers, lowest first. A room may import any lower tier, and of its own tier only its own area.
const (
	leaf = iota
	core
	service
	wiring
	command
	program
)

// areas gives each area its tier. The longest prefix of a room's path decides; a room outside of them is an error.
var areas = map[string]int{
	"message": leaf, "hook": leaf, "ident": leaf, "wire": leaf,
	"internal/feed": leaf, "internal/lifecycle": leaf, "internal/config": leaf, "internal/crash": leaf,
	"internal/osproc": leaf, "internal/pypath": leaf, "internal/daemonlog": leaf, "internal/plaintext": leaf,

	"internal/neuron": core, "internal/agent": core, "session": core, "internal/pykernel": core, "client": core, "web": core,
	"internal/telemetry": core,

	"internal/api": service, "internal/store": service, "internal/binding": service, "internal/process": service,
	"internal/pykernel/supervise": service, "internal/pykernel/view": service, "internal/peer": service, "internal/cron": service, "internal/flowrun": service,
	"internal/chaos": service, "internal/shell": service,

	"internal/daemon": wiring, "internal/cli": command, "cmd": program,
}

// narrower lists rooms that may import less than their tier says: of the project, these areas only.
var narrower = map[string][]string{
	"client": {"wire"},
}

// besides lists imports between areas of one tier that are right all the same, each with its reason.
var besides = map[[2]string]string{
	{"wire", "message"}: "what the API shows of a conversation is the conversation's own messages",
}

// forbidden lists imports inside one area that would turn it upside down.
var forbidden = []struct{ from, to, why string }{
	{"session", "session/flow", "flow builds on sessions, sessions schedule nothing"},
	{"session", "session/exchange", "a session is given its exchange"},
	{"internal/neuron", "internal/neuron/engine", "handlers see the neuron, never what runs it"},
	{"internal/agent/turn", "internal/agent/schedule", "the turn machine is pure and alone"},
}

// tooling is outside of the tiers: programs for developers, and what only tests may use. Nothing of the product imports it.
func tooling(room string) bool {
	first, _, _ := strings.Cut(room, "/")
	return room == "." || first == "bench" || first == "tests" || room == "internal/specrows" || strings.HasSuffix(room, "test")
}

func areaOf(room string) (area string, tier int, ok bool) {
	for prefix, t := range areas {
		if (room == prefix || strings.HasPrefix(room, prefix+"/")) && len(prefix) > len(area) {
			area, tier, ok = prefix, t, true
		}
	}
	return area, tier, ok
}

// illegal says why the room from must not import the room to; it is empty where it may.
func illegal(from, to string) string {
	if tooling(from) {
		return ""
	}
	if tooling(to) {
		return "the product must not import what is for tests and developers"
	}
	fromArea, fromTier, ok := areaOf(from)
	if !ok {
		return "the importing room has no line in the table of areas"
	}
	toArea, toTier, ok := areaOf(to)
	if !ok {
		return "the imported room has no line in the table of areas"
	}
	for _, f := range forbidden {
		if f.from == from && (to == f.to || strings.HasPrefix(to, f.to+"/")) {
			return f.why
		}
	}
	if fromArea == toArea {
		return ""
	}
	if only, ok := narrower[fromArea]; ok && !slices.Contains(only, toArea) {
		return fromArea + " may import " + strings.Join(only, ", ") + " only"
	}
	if besides[[2]string{fromArea, toArea}] != "" {
		return ""
	}
	if toTier >= fromTier {
		return "imports point down only: declare a small interface and let the daemon fill it"
	}
	return ""
}

// source is one parsed Go file of this module. path and room are relative to the root, with slashes.
type source struct {
	path, room string
	test       bool // *_test.go
	generated  bool
	lines      int
	file       *ast.File
	fset       *token.FileSet
}

var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// skipped are directories that hold no source of this module.
func skipped(rel, name string) bool {
	if rel == "." {
		return false
	}
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "vendor" || name == "node_modules" || name == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(rel, "go.mod"))
	return err == nil
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped(file, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(file)
		all = append(all, source{
			path: slash, room: path.Dir(slash), test: strings.HasSuffix(slash, "_test.go"),
			generated: generatedMark.Match(text), lines: strings.Count(string(text), "\n"), file: parsed, fset: fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// imports returns the paths by the names under which the file uses them.
func (s source) imports() map[string]string {
	byName := map[string]string{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = p
	}
	return byName
}

// uses calls found for each use of a function of a package of the standard library.
func (s source) uses(pkg string, found func(name string, n ast.Node)) {
	imports := s.imports()
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && imports[id.Name] == pkg {
			found(sel.Sel.Name, n)
		}
		return true
	})
}

func within(room string, areas ...string) bool {
	return slices.ContainsFunc(areas, func(a string) bool { return room == a || strings.HasPrefix(room, a+"/") })
}

func TestEveryRoomSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test && s.room != "." && !strings.HasPrefix(s.room, "tests/") {
			continue
		}
		documented[s.room] = documented[s.room] || s.file.Doc != nil && len(s.file.Doc.Text()) > 40
	}
	for room, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment: doc.go says what it owns, must not know, and may import", room)
		}
	}
}

// N-38
func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if _, _, ok := areaOf(s.room); !ok && !tooling(s.room) {
			t.Errorf("%s: the room %s has no line in the table of areas", s.path, s.room)
		}
		for _, spec := range s.file.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			to, ok := strings.CutPrefix(p, module+"/")
			if !ok {
				continue
			}
			if why := illegal(s.room, to); why != "" {
				t.Errorf("%s imports %s: %s", s.at(spec), to, why)
			}
		}
	}
}

// The matrix itself, on pairs that must and must not pass.
// N-38
func TestImportMatrix(t *testing.T) {
	for pair, legal := range map[[2]string]bool{
		{"cmd/soma", "internal/cli"}:                            true,
		{"internal/cli", "client"}:                              true,
		{"internal/cli", "internal/daemon"}:                     true,
		{"internal/daemon", "internal/store/sqlite"}:            true,
		{"internal/daemon", "internal/pykernel/supervise"}:      true,
		{"internal/process", "internal/agent/turn"}:             true,
		{"internal/process", "internal/neuron"}:                 true,
		{"internal/neuron/engine", "internal/neuron"}:           true,
		{"internal/pykernel/link", "internal/pykernel/frame"}:   true,
		{"internal/pykernel/supervise", "internal/pykernel"}:    true,
		{"internal/agent/model/script", "internal/agent/model"}: true,
		{"internal/binding/files", "internal/pykernel"}:         true,
		{"internal/store/sqlite", "internal/store"}:             true,
		{"internal/store/storetest", "internal/process"}:        true,
		{"session/flow", "session"}:                             true,
		{"internal/neuron", "ident"}:                            true,
		{"client", "wire"}:                                      true,
		{"tests/system", "internal/daemon"}:                     true,
		{"internal/neuron", "internal/agent"}:                   false,
		{"internal/neuron", "session"}:                          false,
		{"internal/neuron", "internal/neuron/engine"}:           false,
		{"internal/agent", "internal/pykernel/supervise"}:       false,
		{"internal/pykernel", "internal/pykernel/supervise"}:    false,
		{"internal/process", "internal/pykernel/supervise"}:     false,
		{"internal/process", "internal/store/sqlite"}:           false,
		{"internal/api", "internal/process"}:                    false,
		{"internal/api", "internal/daemon"}:                     false,
		{"internal/daemon", "internal/cli"}:                     false,
		{"client", "ident"}:                                     false,
		{"client", "internal/config"}:                           false,
		{"session", "session/flow"}:                             false,
		{"wire", "message"}:                                     true, {"message", "wire"}: false,
		{"ident", "internal/neuron"}:                       false,
		{"internal/process", "internal/neuron/neurontest"}: false,
		{"internal/new", "ident"}:                          false,
		{"internal/daemon", "internal/new"}:                false,
		{"internal/feed", "internal/feedback"}:             false,
		{"internal/daemon", "internal/specrows"}:           false,
	} {
		if why := illegal(pair[0], pair[1]); (why == "") != legal {
			t.Errorf("%s imports %s: legal %v, want %v (%s)", pair[0], pair[1], why == "", legal, why)
		}
	}
}

func TestSizes(t *testing.T) {
	rooms := map[string]int{}
	for _, s := range sources(t) {
		if s.test || s.generated {
			continue
		}
		rooms[s.room] += s.lines
		switch {
		case s.lines > 1000:
			t.Errorf("%s has %d lines, over 1000", s.path, s.lines)
		case s.lines > 600:
			t.Logf("warning: %s has %d lines, over 600: would two files be clearer?", s.path, s.lines)
		}
	}
	for room, lines := range rooms {
		if lines > 4000 {
			t.Errorf("%s has %d lines, over 4000: it wants to become two rooms", room, lines)
		}
	}
}

// methods counts the methods of an interface, those of interfaces embedded from the same room included.
func methods(i *ast.InterfaceType, local map[string]*ast.InterfaceType) int {
	n := 0
	for _, m := range i.Methods.List {
		if _, ok := m.Type.(*ast.FuncType); ok {
			n += len(m.Names)
			continue
		}
		if id, ok := m.Type.(*ast.Ident); ok && local[id.Name] != nil {
			n += methods(local[id.Name], local)
			continue
		}
		n++
	}
	return n
}

func TestInterfacesAreSmall(t *testing.T) {
	type named struct {
		at   string
		body *ast.InterfaceType
	}
	rooms := map[string]map[string]*ast.InterfaceType{}
	var all []named
	var roomOf []string
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if rooms[s.room] == nil {
			rooms[s.room] = map[string]*ast.InterfaceType{}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if body, ok := spec.Type.(*ast.InterfaceType); ok {
					rooms[s.room][spec.Name.Name] = body
				}
			}
			if body, ok := n.(*ast.InterfaceType); ok {
				all = append(all, named{s.at(n), body})
				roomOf = append(roomOf, s.room)
			}
			return true
		})
	}
	for i, a := range all {
		if n := methods(a.body, rooms[roomOf[i]]); n > 12 {
			t.Errorf("%s: an interface of %d methods, over 12: split it per consumer", a.at, n)
		}
	}
}

func TestNamesSaySomething(t *testing.T) {
	banned := []string{"util", "utils", "common", "helper", "helpers", "manager", "managers", "types", "models", "core", "kernel", "misc", "base"}
	for _, s := range sources(t) {
		for _, name := range []string{s.file.Name.Name, path.Base(s.room)} {
			if slices.Contains(banned, strings.TrimSuffix(name, "_test")) {
				t.Errorf("%s: %s says nothing about what is in the room", s.path, name)
			}
		}
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test || within(s.room, "tests/soak") {
			continue
		}
		s.uses("time", func(name string, n ast.Node) {
			if name == "Sleep" {
				t.Errorf("%s: a test sleeps: wait for the event, or use synctest", s.at(n))
			}
		})
	}
}

// testingParams returns the names of the parameters of a function that are *testing.T, *testing.B or *testing.F, and all others.
func testingParams(fn *ast.FuncType) (testing, other []string) {
	for _, p := range fn.Params.List {
		is := false
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if sel, ok := star.X.(*ast.SelectorExpr); ok {
				pkg, ok := sel.X.(*ast.Ident)
				is = ok && pkg.Name == "testing"
			}
		}
		for _, name := range p.Names {
			if is {
				testing = append(testing, name.Name)
			} else {
				other = append(other, name.Name)
			}
		}
	}
	return testing, other
}

// skips calls found for each Skip of a test, not of a property's draw: scope holds the names that mean a test here.
func skips(n ast.Node, scope []string, found func(ast.Node)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			is, other := testingParams(n.Type)
			inner := slices.DeleteFunc(append(slices.Clone(scope), is...), func(name string) bool { return slices.Contains(other, name) })
			skips(n.Body, inner, found)
			return false
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				return true
			}
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(scope, id.Name) {
				found(n)
			}
		}
		return true
	})
}

func TestNothingIsSkipped(t *testing.T) {
	for _, s := range sources(t) {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil && s.test {
				scope, _ := testingParams(fn.Type)
				skips(fn.Body, scope, func(n ast.Node) {
					t.Errorf("%s: a test is skipped: what it needs is installed by ./test", s.at(n))
				})
			}
		}
	}
}

// storedContexts lists the structs that may hold a context, each with its reason.
var storedContexts = map[string]string{
	"internal/neuron.Turn":         "a turn is a handler's parameter and ends with it, like a request",
	"internal/neuron/call.outside": "stands in for the turn of a caller from outside, for one call",
	"internal/process.rows":        "binds a reader to one call",
	"internal/process.slots":       "dispatches start from commits, which have no caller to give one",
	"internal/daemon.daemon":       "parts stop in order, so they cannot hang on the context that the first signal ends",
}

func TestContextsComeFromAbove(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if !within(s.room, "cmd", "internal/lifecycle", "tests", "bench", "internal/specrows") {
			s.uses("context", func(name string, n ast.Node) {
				if name == "Background" || name == "TODO" {
					t.Errorf("%s: context.%s stands outside of cmd and lifecycle", s.at(n), name)
				}
			})
		}
		imports := s.imports()
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || storedContexts[s.room+"."+spec.Name.Name] != "" {
				return true
			}
			body, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range body.Fields.List {
				if sel, ok := f.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
					if id, ok := sel.X.(*ast.Ident); ok && imports[id.Name] == "context" {
						t.Errorf("%s: a context is stored: pass it", s.at(f))
					}
				}
			}
			return true
		})
	}
}

// K-06: no clock, no chance and no goroutine can come into the turn machine, nor into the scheduler's decision.
func TestPureRoomsArePure(t *testing.T) {
	banned := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	}
	for _, s := range sources(t) {
		if s.test || !within(s.room, "internal/agent/turn", "internal/agent/schedule") {
			continue
		}
		for _, spec := range s.file.Imports {
			switch p, _ := strconv.Unquote(spec.Path.Value); p {
			case "math/rand", "math/rand/v2", "crypto/rand", "os", "os/exec", "net", "net/http", "io/fs", "database/sql", "log/slog", "context":
				t.Errorf("%s imports %s: this room is pure", s.at(spec), p)
			}
		}
		for pkg, names := range banned {
			s.uses(pkg, func(name string, n ast.Node) {
				if slices.Contains(names, name) {
					t.Errorf("%s: %s.%s: this room is pure", s.at(n), pkg, name)
				}
			})
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: a goroutine: this room is pure", s.at(n))
			}
			return true
		})
	}
}
