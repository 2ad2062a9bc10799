package graph_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"soma/internal/neuron"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/graph"
)

func described() []graph.Schema {
	return []graph.Schema{graph.Describe(orderType), graph.Describe(billType)}
}

// N-25: field to field, constant, omit; what is not listed keeps its name.
func TestDeclaredTransform(t *testing.T) {
	w := newWorld(t, graph.Options{Schemas: described()})
	c := wire()
	c.Transform = &graph.Transform{To: billType.Alias(), Fields: map[string]graph.Field{
		"title": {From: "name"}, "paid": {Constant: []byte("true")}, "total": {From: "price"},
	}}
	w.must(w.connect(c))
	other := wire()
	other.Target = "me/test/other"
	other.Transform = &graph.Transform{To: orderType.Alias(), Fields: map[string]graph.Field{"secret": {Omit: true}, "price": {From: "count"}}}
	w.must(w.connect(other))
	w.emit(order{Name: "n", Count: 3, Price: 2.5, Secret: "s", Tags: []string{"a"}})
	got := w.said()
	slices.Sort(got)
	if want := []string{"other order {Name:n Count:3 Price:3 Secret: Tags:[a]}", "sink bill {Title:n Total:2.5 Paid:true Count:3}"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// N-25: a registered transform; its error and its panic are settled, and nothing is carried.
func TestRegisteredTransform(t *testing.T) {
	w := newWorld(t, graph.Options{Transforms: []graph.Registered{
		graph.Register("to bill", orderType, billType, func(o order) (bill, error) {
			switch o.Name {
			case "bad":
				return bill{}, errors.New("bad")
			case "panic":
				panic("transform")
			}
			return bill{Title: "bill of " + o.Name}, nil
		}),
	}})
	c := wire()
	c.Transform = &graph.Transform{Name: "to bill"}
	w.must(w.connect(c))
	for _, name := range []string{"good", "bad", "panic"} {
		w.emit(order{Name: name})
	}
	if got := w.said(); !slices.Equal(got, []string{"sink bill {Title:bill of good Total:0 Paid:false Count:0}"}) {
		t.Errorf("%q", got)
	}
	if got := w.settled(id("sink")); !slices.Equal(got, []neuron.Code{"", graph.TransformFailed, graph.TransformFailed}) {
		t.Errorf("%q", got)
	}
	if n := w.rows()[c.ID]; n != 1 {
		t.Errorf("carried %d", n)
	}
}

// N-25, N-26: a transform is checked again when it is used: a program that does not know it any more, or knows other fields,
// refuses; so does a payload that does not fit.
func TestTransformIsCheckedWhenUsed(t *testing.T) {
	registered := []graph.Registered{graph.Register("same", orderType, orderType, func(o order) (order, error) { return o, nil })}
	w := newWorld(t, graph.Options{Schemas: described(), Transforms: registered})
	byName, byFields := wire(), wire()
	byName.Target, byName.Transform = "me/test/named", &graph.Transform{Name: "same"}
	byFields.Target, byFields.Transform = "me/test/declared", &graph.Transform{To: billType.Alias(), Fields: map[string]graph.Field{
		"title": {From: "name"}, "paid": {Constant: []byte("false")},
	}}
	w.must(w.connect(byName))
	w.must(w.connect(byFields))
	w.emit(order{Name: "known"})

	// A payload that the schema does not allow, as a program of another version may have queued it.
	raw := neuron.NewType[map[string]any](orderType.Alias())
	emitRaw := func(payload map[string]any) {
		t.Helper()
		client := neuron.Client("me", "")
		for _, c := range []graph.Connect{byName, byFields} {
			c.Source = client.String()
			w.must(w.connect(c))
		}
		w.must(engine.Fire(t.Context(), w.Engine, client, raw, payload))
		w.quiet()
	}
	emitRaw(map[string]any{"name": 7, "count": 1})
	emitRaw(map[string]any{"count": 1})
	emitRaw(map[string]any{"name": "n", "count": 1, "new": true})
	if got := w.settled(id("declared")); !slices.Equal(got, []neuron.Code{"", graph.InvalidField, graph.InvalidField, graph.InvalidField}) {
		t.Errorf("declared: %q", got)
	}
	// What is absent is a zero value to Go, so the second one passes.
	if got := w.settled(id("named")); !slices.Equal(got, []neuron.Code{"", graph.InvalidField, "", graph.InvalidField}) {
		t.Errorf("named: %q", got)
	}

	w.close()
	type narrow struct {
		Title string `json:"title"`
		Other string `json:"other"`
	}
	w.graph = graph.Options{Schemas: []graph.Schema{graph.Describe(orderType), graph.Describe(neuron.NewType[narrow](billType.Alias()))}}
	w.open()
	w.must(engine.Fire(t.Context(), w.Engine, neuron.Client("me", ""), orderType, order{Name: "later"}))
	w.quiet()
	for key, want := range map[string]neuron.Code{"named": graph.UnknownTransform, "declared": graph.InvalidField} {
		if got := w.settled(id(key)); len(got) != 5 || got[4] != want {
			t.Errorf("%s: %q", key, got)
		}
	}
}

// N-25: which field is wrong is said.
func TestRefusalsNameTheField(t *testing.T) {
	w := newWorld(t, graph.Options{Schemas: described()})
	c := wire()
	for want, fields := range map[string]map[string]graph.Field{
		`"paid" of test.bill.v1 comes from nowhere`:                                    {"title": {From: "name"}},
		`has no field "colour"`:                                                        {"colour": {From: "name"}},
		`field "count" of test.order.v1 is integer, "title" of test.bill.v1 is string`: {"title": {From: "count"}, "paid": {Constant: []byte("true")}},
		`field "paid" of test.bill.v1`:                                                 {"title": {From: "name"}, "paid": {Constant: []byte("1")}},
	} {
		c.Transform = &graph.Transform{To: billType.Alias(), Fields: fields}
		if err := w.connect(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// The wiring of a graph is checked.
func TestWiring(t *testing.T) {
	type ring struct{ Next *ring }
	same := graph.Register("same", orderType, orderType, func(o order) (order, error) { return o, nil })
	_, err := graph.New(graph.Options{
		Transforms: []graph.Registered{same, same},
		Schemas: []graph.Schema{
			graph.Describe(orderType), graph.Describe(orderType), graph.Describe(neuron.NewType[int]("test.int.v1")),
			graph.Describe(neuron.NewType[ring]("test.ring.v1")),
		},
	})
	for _, want := range []string{"no reader", `"same" is registered twice`, "described twice", "test.int.v1: it is no struct", "test.ring.v1: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
