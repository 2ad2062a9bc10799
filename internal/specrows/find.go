package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Test is one test with the row ids that its comments carry.
type Test struct {
	Path string // relative to the root, with slashes
	Name string // TestX, Class.test_x, or the base name of a script
	Rows []string
}

func (t Test) key() string { return t.Path + "#" + t.Name }

// findTests finds all tests below root: Go functions, methods of Python test files, testscript files.
func findTests(root string) ([]Test, error) {
	var tests []Test
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path == root {
				return nil
			}
			if strings.HasPrefix(name, ".") || name == "node_modules" || name == "bin" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return fs.SkipDir // another module
			}
			return nil
		}
		var find func(string) []Test
		switch {
		case strings.HasSuffix(name, "_test.go"):
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			find = func(string) []Test { return goTests(file) }
		case strings.HasPrefix(name, "test_") && strings.HasSuffix(name, ".py"):
			find = pythonTests
		case strings.HasSuffix(name, ".txtar"):
			find = func(text string) []Test { return []Test{scriptTest(strings.TrimSuffix(name, ".txtar"), text)} }
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, test := range find(string(text)) {
			test.Path = filepath.ToSlash(rel)
			slices.Sort(test.Rows)
			test.Rows = slices.Compact(test.Rows)
			tests = append(tests, test)
		}
		return nil
	})
	return tests, err
}

var goTestName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)([^a-z]|$)`)

func goTests(file *ast.File) []Test {
	var tests []Test
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !goTestName.MatchString(fn.Name.Name) || fn.Name.Name == "TestMain" {
			continue
		}
		test := Test{Name: fn.Name.Name}
		for _, comment := range file.Comments {
			if comment == fn.Doc || fn.Pos() <= comment.Pos() && comment.End() <= fn.End() {
				test.Rows = append(test.Rows, rowID.FindAllString(comment.Text(), -1)...)
			}
		}
		tests = append(tests, test)
	}
	return tests
}

var (
	pyClass = regexp.MustCompile(`^(\s*)class\s+(\w+)`)
	pyTest  = regexp.MustCompile(`^(\s*)(?:async\s+)?def\s+(test\w*)\s*\(`)
)

// pythonTests reads by indentation: a test is its def, the comments and decorators right above, and all deeper lines below.
func pythonTests(text string) []Test {
	var tests []Test
	class, classDepth := "", -1
	current, depth := -1, 0
	var above []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if trimmed == "" {
			above = nil
			continue
		}
		comment := strings.HasPrefix(trimmed, "#")
		if current >= 0 && indent <= depth {
			current = -1
		}
		if class != "" && indent <= classDepth && !comment {
			class, classDepth = "", -1
		}
		if m := pyClass.FindStringSubmatch(line); m != nil {
			class, classDepth = m[2], indent
			above = nil
			continue
		}
		if m := pyTest.FindStringSubmatch(line); m != nil && current < 0 {
			name := m[2]
			if class != "" {
				name = class + "." + name
			}
			tests = append(tests, Test{Name: name, Rows: rowID.FindAllString(strings.Join(above, "\n"), -1)})
			current, depth = len(tests)-1, indent
		}
		if current < 0 {
			if comment || strings.HasPrefix(trimmed, "@") {
				above = append(above, line)
			} else {
				above = nil
			}
			continue
		}
		above = nil
		if _, text, ok := strings.Cut(line, "#"); ok {
			tests[current].Rows = append(tests[current].Rows, rowID.FindAllString(text, -1)...)
		}
	}
	return tests
}

// scriptTest reads the comments of a script, before its first file.
func scriptTest(name, text string) Test {
	test := Test{Name: name}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-- ") {
			break
		}
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			test.Rows = append(test.Rows, rowID.FindAllString(line, -1)...)
		}
	}
	return test
}
