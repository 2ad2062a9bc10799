package script

import (
	"errors"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// errUnknown is what a reader of a mapping returns for a key that it does not know.
var errUnknown = errors.New("unknown key")

// mapping gives each key with its value to f, aliases followed.
func (p parser) mapping(n *yaml.Node, f func(k string, v *yaml.Node) error) error {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		return p.fail(n, "want keys with values here")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if seen[k.Value] {
			return p.fail(k, "%s stands twice", k.Value)
		}
		seen[k.Value] = true
		switch err := f(k.Value, follow(n.Content[i+1])); {
		case errors.Is(err, errUnknown):
			return p.fail(k, "unknown key %q", k.Value)
		case err != nil:
			return err
		}
	}
	return nil
}

func (p parser) list(n *yaml.Node, f func(v *yaml.Node) error) error {
	if n.Kind != yaml.SequenceNode {
		return p.fail(n, "want a list here")
	}
	for _, v := range n.Content {
		if err := f(follow(v)); err != nil {
			return err
		}
	}
	return nil
}

func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (p parser) text(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", p.fail(n, "want a text here")
	}
	return n.Value, nil
}

func (p parser) count(n *yaml.Node) (int64, error) {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 {
		return 0, p.fail(n, "%q is no whole number of 0 or more", n.Value)
	}
	return v, nil
}

func (p parser) number(n *yaml.Node) (float64, error) {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || !(v >= 0 && v <= 1e6) {
		return 0, p.fail(n, "%q is no number from 0 to 1000000", n.Value)
	}
	return v, nil
}
