package notebook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"soma/internal/cli/pylines"
)

// MaxFile bounds a notebook in bytes.
const MaxFile = 64 << 20

// Notebook is a notebook of format 4. It is not safe for concurrent use.
type Notebook struct {
	root  *node
	end   string // what stands behind the last bracket
	cells []*node
	codes []string
}

// Parse reads a notebook. Its errors say in one line why it is none that can be run: broken JSON, another format or language, a
// code cell that is no python.
func Parse(content []byte) (*Notebook, error) {
	if len(content) > MaxFile {
		return nil, fmt.Errorf("it is longer than %d MiB", MaxFile>>20)
	}
	if !utf8.Valid(content) {
		return nil, errors.New("it is not UTF-8")
	}
	if !json.Valid(content) {
		return nil, broken(content)
	}
	trimmed := bytes.TrimRight(content, " \t\r\n")
	n := &Notebook{root: parse(trimmed)}
	if len(trimmed) < len(content) {
		n.end = "\n"
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	for _, cell := range n.root.get("cells").list {
		if kind, _ := cell.get("cell_type").text(); kind != "code" {
			continue
		}
		code, err := source(cell.get("source"))
		if err != nil {
			return nil, fmt.Errorf("code cell %d: %w", len(n.cells)+1, err)
		}
		n.cells, n.codes = append(n.cells, cell), append(n.codes, code)
	}
	return n, n.checkCode()
}

// broken says where JSON is wrong.
func broken(content []byte) error {
	var ignored any
	err := json.Unmarshal(content, &ignored)
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		return fmt.Errorf("it is no JSON: line %d: %w", 1+bytes.Count(content[:max(0, syntax.Offset-1)], []byte("\n")), err)
	}
	return fmt.Errorf("it is no JSON: %w", err)
}

func (n *Notebook) check() error {
	format := n.root.get("nbformat")
	switch cells := n.root.get("cells"); {
	case format == nil:
		return errors.New("it is no notebook: it has no nbformat")
	case format.raw != "4":
		return fmt.Errorf("its format is %s, not 4; jupyter nbconvert --to notebook converts it", short(format.raw))
	case cells == nil || !cells.array:
		return errors.New("it is no notebook: it has no list of cells")
	}
	meta := n.root.get("metadata")
	for _, language := range []*node{meta.get("kernelspec").get("language"), meta.get("language_info").get("name")} {
		if name, ok := language.text(); ok && name != "python" && name != "ipython" {
			return fmt.Errorf("its language is %s, not python", short(name))
		}
	}
	return nil
}

func short(s string) string {
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "…"
	}
	if s == "" {
		return "not a number"
	}
	return s
}

func (n *Notebook) checkCode() error {
	for i, code := range n.codes {
		if line, found := pylines.Magic(code); found {
			return fmt.Errorf("code cell %d, line %d: %q is no python but a command of IPython", i+1, line.Number, strings.TrimSpace(line.Text))
		}
	}
	return nil
}

// source joins the source of a cell: a string, or a list of them.
func source(n *node) (string, error) {
	if s, ok := n.text(); ok {
		return s, nil
	}
	if n == nil || !n.array {
		return "", errors.New("its source is neither a text nor a list of texts")
	}
	var b strings.Builder
	for _, item := range n.list {
		s, ok := item.text()
		if !ok {
			return "", errors.New("its source is neither a text nor a list of texts")
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// Codes are the sources of the code cells in their order.
func (n *Notebook) Codes() []string { return n.codes }

// Put gives code cell i, from 0, its execution count and outputs.
func (n *Notebook) Put(i, count int, r Result) {
	n.cells[i].set("execution_count", number(count))
	n.cells[i].set("outputs", outputs(count, r))
}

func number(n int) *node { return &node{raw: strconv.Itoa(n)} }

// Bytes is the notebook as a file: what was not put into it is as it was, in its order and spelling.
func (n *Notebook) Bytes() []byte {
	var b bytes.Buffer
	n.root.write(&b, 0)
	b.WriteString(n.end)
	return b.Bytes()
}
