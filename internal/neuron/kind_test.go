package neuron_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"soma/internal/neuron"
)

type order struct {
	N int `json:"n"`
}

var (
	orderType  = neuron.NewType[order]("test.order.v1")
	numberType = neuron.NewType[int]("test.number.v1")
)

// N-05: a handler gets the payload as its own type; a kind knows its own handlers only, whatever its name.
func TestHandlersAreOfTheirKind(t *testing.T) {
	var got []int
	one, other := neuron.NewKind("same"), neuron.NewKind("same")
	neuron.Handle(one, orderType, func(_ *neuron.Turn, o order) error { got = append(got, o.N); return nil })
	neuron.Handle(one, numberType, func(_ *neuron.Turn, n int) error { got = append(got, -n); return nil })
	handle := func(alias, payload string) error {
		h := one.Handler(alias)
		if h == nil {
			t.Fatalf("no handler of %s", alias)
		}
		return h(neuron.NewTurn(t.Context(), neuron.Base{Delivery: neuron.Delivery{Alias: alias, Payload: json.RawMessage(payload)}}))
	}
	for alias, payload := range map[string]string{"test.order.v1": `{"n":3}`, "test.number.v1": `4`} {
		if err := handle(alias, payload); err != nil {
			t.Errorf("%s: %v", alias, err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{-4, 3}) {
		t.Errorf("handled %v", got)
	}
	var refusal *neuron.Refusal
	if err := handle("test.number.v1", `{"n":3}`); !errors.As(err, &refusal) || refusal.Code != neuron.Undecodable {
		t.Errorf("a payload of another type: %v", err)
	}
	// What the payload encodes may be at hand; what is of another type is not taken for it.
	for _, c := range []struct {
		message any
		want    int
	}{{order{N: 5}, 5}, {7, 3}} {
		got = nil
		turn := neuron.NewTurn(t.Context(), neuron.Base{Message: c.message,
			Delivery: neuron.Delivery{Alias: "test.order.v1", Payload: json.RawMessage(`{"n":3}`)}})
		if err := one.Handler("test.order.v1")(turn); err != nil || !slices.Equal(got, []int{c.want}) {
			t.Errorf("with %v at hand: %v, %v", c.message, got, err)
		}
	}
	if h := other.Handler("test.order.v1"); h != nil || len(other.Aliases()) != 0 {
		t.Errorf("the other kind of that name handles %v", other.Aliases())
	}
}
