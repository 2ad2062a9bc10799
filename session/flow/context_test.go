package flow_test

import (
	"context"
	"fmt"
	"testing"

	"soma/session"
	"soma/session/flow"
)

type values = map[string]any

func adds(id string, v any) flow.Node { return does(id, values{"context": v, "result": id}) }

// S-60, S-61: the context begins with what is given; results add to it, map by map; each node sees what its predecessors left.
func TestContext(t *testing.T) {
	given := values{"plain": 1, "deep": values{"a": 1, "list": []any{1}, "deeper": values{"x": 1}}}
	var b flow.Builder
	b.Add(adds("one", values{"plain": 2, "deep": values{"b": 2, "list": []any{2}, "deeper": values{"y": 2}}, "new": values{"n": 1}}))
	b.Add(flow.Node{ID: "sees", Do: func(_ context.Context, in flow.In) (any, error) {
		c := in.Context()
		text := fmt.Sprint(c)
		c["plain"] = "changed"
		c["deep"].(values)["deeper"].(values)["x"] = "changed"
		return text, nil
	}}, "one")
	b.Add(adds("two", values{"deep": 7, "new": values{"m": 2}}), "sees")
	r := run(t, &b, flow.Options{Context: given})
	is(t, "seen", r.Results["sees"], "map[deep:map[a:1 b:2 deeper:map[x:1 y:2] list:[2]] new:map[n:1] plain:2]")
	is(t, "at the end", r.Context, "map[deep:7 new:map[m:2 n:1] plain:2]")
	is(t, "what was given", given, "map[deep:map[a:1 deeper:map[x:1] list:[1]] plain:1]")
	is(t, "none", len(run(t, (&flow.Builder{}).Add(does("a", values{"other": 1})), flow.Options{}).Context), 0)
}

// S-60: what is given is the program's, and may change.
func TestContextIsCopied(t *testing.T) {
	given := values{"deep": values{"a": 1}}
	var b flow.Builder
	b.Add(flow.Node{ID: "changes", Do: func(context.Context, flow.In) (any, error) {
		given["deep"].(values)["a"] = 2
		given["b"] = 2
		return nil, nil
	}})
	is(t, "context", run(t, &b, flow.Options{Context: given}).Context, "map[deep:map[a:1]]")
}

// S-61: what is no map under "context" fails the node.
func TestContextThatIsNoMap(t *testing.T) {
	endless := values{}
	endless["in"] = endless
	for name, v := range map[string]any{"text": "x", "nil": nil, "nil map": values(nil), "other map": map[string]string{}, "endless": endless} {
		t.Run(name, func(t *testing.T) {
			var b flow.Builder
			b.Add(adds("a", v)).Add(does("b", 1), "a")
			r := run(t, &b, flow.Options{})
			is(t, "failed", r.Failed, "[a]")
			wants(t, r.Errors["a"], session.ErrInvalid)
			is(t, "context", len(r.Context), 0)
			is(t, "goes on", r.Completed, "[b]")
		})
	}
}

// S-61: nodes that add at once lose nothing.
func TestContextFromMany(t *testing.T) {
	var b flow.Builder
	for i := range 200 {
		b.Add(adds(fmt.Sprint(i), values{"all": values{fmt.Sprint(i): i}}))
	}
	r := run(t, &b, flow.Options{Concurrency: 20})
	is(t, "values", len(r.Context["all"].(values)), 200)
}
