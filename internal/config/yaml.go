package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds config.yaml, in bytes.
const maxFile = 1 << 20

// FileError says what is wrong in a settings file. Line counts from 1, and is 0 where the parser names none; Key is empty
// where no key is at fault. No value from the file is in it, as that could be a secret.
type FileError struct {
	File    string
	Line    int
	Key     string
	Problem string
}

func (e *FileError) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
	}
	if e.Key != "" {
		return fmt.Sprintf("cannot use the config: %s: %s: %s", where, e.Key, e.Problem)
	}
	return fmt.Sprintf("cannot use the config: %s: %s", where, e.Problem)
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(body) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	return body, err
}

// The node tree is walked by hand: that gives each mistake its line and key, finds keys given twice, and keeps values out of
// error texts.
func (c *Config) readYAML(body []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(body))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return c.syntaxError(err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return c.fail(&more, "", "a second document: one is read")
	case !errors.Is(err, io.EOF):
		return c.syntaxError(err)
	}
	root := doc.Content[0]
	if isNull(root) {
		return nil
	}
	fields := map[string]func(*yaml.Node) error{"models": c.readModels, "telemetry": c.readTelemetry}
	for _, s := range Settings() {
		fields[s.Key] = func(n *yaml.Node) error {
			value := ""
			switch {
			case s.Key == "kernel_env" && n.Kind == yaml.SequenceNode:
				names, err := c.scalars(n, s.Key)
				if err != nil {
					return err
				}
				value = strings.Join(names, ",")
			case isNull(n):
				return nil
			case n.Kind == yaml.ScalarNode:
				value = n.Value
			default:
				return c.fail(n, s.Key, "one value is expected")
			}
			if err := s.parse(c, value); err != nil {
				return c.fail(n, s.Key, err.Error())
			}
			c.sources[s.Key] = FromFile
			return nil
		}
	}
	return c.mapping(root, "", fields)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (c *Config) syntaxError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = strings.TrimPrefix(text, m[0])
		line, _ = strconv.Atoi(m[1]) // 0 where the parser names no line
	}
	return &FileError{File: c.file, Line: line, Problem: text}
}

func (c *Config) fail(n *yaml.Node, key, problem string) error {
	return &FileError{File: c.file, Line: n.Line, Key: key, Problem: problem}
}

// mapping reads a mapping strictly: each key must have a field, and stand once. prefix is put before the key in errors.
func (c *Config) mapping(n *yaml.Node, prefix string, fields map[string]func(*yaml.Node) error) error {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return c.fail(n, strings.TrimSuffix(prefix, "."), "keys with values are expected")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		read, ok := fields[key.Value]
		switch {
		case !ok:
			known := make([]string, 0, len(fields))
			for name := range fields {
				known = append(known, name)
			}
			slices.Sort(known)
			return c.fail(key, prefix+key.Value, "unknown key; known are "+strings.Join(known, ", "))
		case seen[key.Value]:
			return c.fail(key, prefix+key.Value, "the key stands twice")
		}
		seen[key.Value] = true
		if err := read(value); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) scalars(n *yaml.Node, key string) ([]string, error) {
	var values []string
	for _, item := range n.Content {
		if item = resolve(item); item.Kind != yaml.ScalarNode || isNull(item) {
			return nil, c.fail(item, key, "a list of texts is expected")
		}
		values = append(values, item.Value)
	}
	return values, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func (c *Config) readModels(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return c.fail(n, "models", "a list is expected")
	}
	for i, item := range n.Content {
		key := fmt.Sprintf("models[%d]", i)
		var m Model
		text := func(name string, field *string) func(*yaml.Node) error {
			return func(v *yaml.Node) error {
				if v.Kind != yaml.ScalarNode || isNull(v) {
					return c.fail(v, key+"."+name, "one value is expected")
				}
				*field = v.Value
				return nil
			}
		}
		err := c.mapping(item, key+".", map[string]func(*yaml.Node) error{
			"name": text("name", &m.Name), "type": text("type", (*string)(&m.Type)), "base_url": text("base_url", &m.BaseURL),
			"model": text("model", &m.Model), "key_env": text("key_env", &m.KeyEnv), "key_file": text("key_file", &m.KeyFile),
			"prices": func(v *yaml.Node) error { return c.readPrices(v, key+".prices", &m) },
		})
		if err != nil {
			return err
		}
		if err := m.check(filepath.Dir(c.file)); err != nil {
			return c.fail(resolve(item), key, err.Error())
		}
		if slices.ContainsFunc(c.Models, func(o Model) bool { return o.Name == m.Name }) {
			return c.fail(resolve(item), key+".name", "two models have this name")
		}
		c.Models = append(c.Models, m)
	}
	return nil
}

func (c *Config) readPrices(n *yaml.Node, key string, m *Model) error {
	given := map[string]int64{}
	fields := map[string]func(*yaml.Node) error{}
	for _, class := range []string{"input", "cache_read", "cache_write", "output"} {
		fields[class] = func(v *yaml.Node) error {
			price, err := parsePrice(v.Value)
			if err != nil || v.Kind != yaml.ScalarNode {
				return c.fail(v, key+"."+class, "a price in dollars per million tokens is expected, such as 2.50")
			}
			given[class] = price
			return nil
		}
	}
	if err := c.mapping(n, key+".", fields); err != nil {
		return err
	}
	p := Prices{Input: given["input"], Output: given["output"], CacheRead: given["input"], CacheWrite: given["input"]}
	for class, field := range map[string]*int64{"cache_read": &p.CacheRead, "cache_write": &p.CacheWrite} {
		if price, ok := given[class]; ok {
			*field = price
		}
	}
	for _, class := range []string{"input", "output"} {
		if _, ok := given[class]; !ok {
			return c.fail(n, key, class+" is missing")
		}
	}
	m.Prices = &p
	return nil
}
