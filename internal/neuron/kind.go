package neuron

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Kind is a class of neurons: its name, its handlers by alias, and where its neurons are placed. It is built at start by
// the one wiring place and not changed afterwards.
type Kind struct {
	Name string
	// Place gives the place of a neuron of this kind; nil means PlaceOf the id's text.
	Place    func(ID) Place
	handlers map[string]func(*Turn) error
	rules    map[string]func(owner string, payload json.RawMessage) (key string, ok bool, err error)
	problems []error
}

// NewKind returns a kind without handlers.
func NewKind(name string) *Kind { return &Kind{Name: name, handlers: map[string]func(*Turn) error{}} }

// Handle registers the handler of one message type (N-05). The payload is decoded before fn runs; one that cannot be is
// settled with code Undecodable.
func Handle[T any](k *Kind, typ Type[T], fn func(*Turn, T) error) {
	k.HandleRaw(typ.alias, func(t *Turn) error {
		var msg T
		if err := read(t, &msg); err != nil {
			return SettleAs(Undecodable, err)
		}
		return fn(t, msg)
	})
}

// HandleRaw registers a handler that reads the delivery itself.
func (k *Kind) HandleRaw(alias string, fn func(*Turn) error) {
	if alias == "" {
		k.Mistake(fmt.Errorf("kind %s: a handler's type has no alias", k.Name))
		return
	}
	if _, ok := k.handlers[alias]; ok {
		k.Mistake(fmt.Errorf("kind %s: alias %s has two handlers", k.Name, alias))
	}
	k.handlers[alias] = fn
}

// Mistake adds one to those that Check returns.
func (k *Kind) Mistake(err error) { k.problems = append(k.problems, err) }

// Handler returns the handler of alias, nil if there is none.
func (k *Kind) Handler(alias string) func(*Turn) error { return k.handlers[alias] }

// Aliases returns the aliases that have a handler, sorted.
func (k *Kind) Aliases() []string { return slices.Sorted(maps.Keys(k.handlers)) }

// PlaceOf returns the place of a neuron of this kind.
func (k *Kind) PlaceOf(id ID) Place {
	if k.Place != nil {
		return k.Place(id)
	}
	return PlaceOf(id.String())
}

// Check returns the mistakes made while the kind was built.
func (k *Kind) Check() []error { return append(k.unheard(), k.problems...) }
