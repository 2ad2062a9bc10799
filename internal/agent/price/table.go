package price

import (
	_ "embed"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Table is a list of prices. It never changes and is safe for concurrent use.
type Table struct{ rows []row }

// row holds prices in nano-dollars per million tokens; nil is no price.
type row struct {
	provider, model, prefix string
	exact                   bool
	from                    time.Time
	above                   int64
	input, cacheRead        *int64
	cacheWrite, output      *int64
	user                    bool
}

//go:embed prices.yaml
var builtin []byte

// Builtin returns the prices that come with the program.
func Builtin() *Table {
	t, err := Parse("prices.yaml", builtin)
	if err != nil {
		panic(err) // a test reads the embedded file
	}
	return t
}

// Over returns a table in which the rows of user go before all others.
func (t *Table) Over(user *Table) *Table {
	out := &Table{}
	for _, r := range user.rows {
		r.user = true
		out.rows = append(out.rows, r)
	}
	out.rows = append(out.rows, t.rows...)
	return out
}

// Parse reads a price file. Errors name the file, the line and the field.
func Parse(name string, data []byte) (*Table, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("cannot read prices: %s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	t := &Table{}
	fail := func(n *yaml.Node, format string, args ...any) (*Table, error) {
		return nil, fmt.Errorf("cannot read prices: %s:%d: %s", name, n.Line, fmt.Sprintf(format, args...))
	}
	if len(doc.Content) == 0 {
		return t, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "prices" || root.Content[1].Kind != yaml.SequenceNode {
		return fail(root, "want one key, prices, with a list")
	}
	for _, n := range root.Content[1].Content {
		if n.Kind != yaml.MappingNode {
			return fail(n, "want a row with provider, model or prefix, valid_from and prices")
		}
		var r row
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if seen[k.Value] {
				return fail(k, "%s stands twice", k.Value)
			}
			seen[k.Value] = true
			if err := r.set(k.Value, v); err != nil {
				return fail(k, "%s: %v", k.Value, err)
			}
		}
		for _, k := range []string{"provider", "valid_from"} {
			if !seen[k] {
				return fail(n, "%s is missing", k)
			}
		}
		if seen["model"] == seen["prefix"] {
			return fail(n, "want either model or prefix")
		}
		r.exact = seen["model"]
		t.rows = append(t.rows, r)
	}
	return t, nil
}

func (r *row) set(key string, v *yaml.Node) (err error) {
	if v.Kind != yaml.ScalarNode {
		return fmt.Errorf("want a single value")
	}
	switch key {
	case "provider":
		r.provider = v.Value
	case "model":
		r.model = v.Value
	case "prefix":
		r.prefix = v.Value
	case "valid_from":
		r.from, err = time.Parse(time.DateOnly, v.Value)
	case "above":
		r.above, err = strconv.ParseInt(v.Value, 10, 64)
	case "input":
		r.input, err = nanoPerMillion(v.Value)
	case "cache_read":
		r.cacheRead, err = nanoPerMillion(v.Value)
	case "cache_write":
		r.cacheWrite, err = nanoPerMillion(v.Value)
	case "output":
		r.output, err = nanoPerMillion(v.Value)
	default:
		err = fmt.Errorf("unknown field")
	}
	return err
}

var decimal = regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,9})?$`)

// nanoPerMillion reads dollars exactly: binary fractions would not add up.
func nanoPerMillion(s string) (*int64, error) {
	if !decimal.MatchString(s) {
		return nil, fmt.Errorf("%q is no amount of dollars, such as 2.50", s)
	}
	r, _ := new(big.Rat).SetString(s)
	n := r.Mul(r, big.NewRat(1_000_000_000, 1)).Num().Int64()
	return &n, nil
}

func (t *Table) find(provider, model string, at time.Time, prompt int64) *row {
	var best *row
	for i := range t.rows {
		r := &t.rows[i]
		fits := r.exact && r.model == model || !r.exact && strings.HasPrefix(model, r.prefix)
		if r.provider == provider && fits && !r.from.After(at) && (r.above == 0 || prompt > r.above) && (best == nil || r.before(best)) {
			best = r
		}
	}
	return best
}

// before orders rows that fit the same request; of equal ones the first in the table stays.
func (r *row) before(o *row) bool {
	switch {
	case r.user != o.user:
		return r.user
	case r.exact != o.exact:
		return r.exact
	case len(r.prefix) != len(o.prefix):
		return len(r.prefix) > len(o.prefix)
	case !r.from.Equal(o.from):
		return r.from.After(o.from)
	}
	return r.above > o.above
}
