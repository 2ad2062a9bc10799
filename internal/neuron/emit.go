package neuron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"soma/ident"
)

// Codes of emissions and connections.
const (
	// TooManyReceivers: an emission would go to more than Limits.Receivers neurons.
	TooManyReceivers Code = "too_many_receivers"
	// EmptyIdentity: an identity, or a part of one, is empty.
	EmptyIdentity Code = "empty_identity"
	// CrossOwner: what stays inside one owner would have left it.
	CrossOwner Code = "cross_owner"
	// MissingConnection: there is no live connection of that id (any more); nothing was carried.
	MissingConnection Code = "missing_connection"
)

// ClientKind is the kind of the neurons that stand for clients: what a client fires without naming a receiver, its neuron
// emits. The engine runs them itself; no program has a kind of this name.
const ClientKind = "client"

// Client returns the neuron that emits what a client of owner fires; an empty name means "main". Connections from it carry
// what that client fires.
func Client(owner, name string) ID {
	if name == "" {
		name = "main"
	}
	return ID{Owner: owner, Kind: ClientKind, Key: name}
}

// Receiver is one neuron that an emission goes to.
type Receiver struct {
	Target ID
	// Via is the connection that carries it there, zero for a broadcast handler.
	Via ident.ID
}

// DeliveryID returns the id of the delivery by which an emission reaches the receiver.
func (r Receiver) DeliveryID(emission ident.ID) ident.ID {
	if r.Via.IsZero() {
		return ident.Derive(emission, r.Target.String())
	}
	return ident.Derive(emission, "via "+r.Via.String())
}

// Emission is what an entry of the outgoing feed says of a delivery without a target: it went to this many neurons.
type Emission struct {
	Receivers int `json:"receivers"`
}

// Broadcast makes the handler of typ in k one that hears what is emitted: rule says which neuron of the kind hears msg,
// inside the sender's owner, or that none does. It must depend on its parameters only; msg is a copy of its own. An alias
// needs a Handle too, before or after.
func Broadcast[T any](k *Kind, typ Type[T], rule func(owner string, msg T) (key string, ok bool)) {
	if _, ok := k.rules[typ.alias]; ok {
		k.problems = append(k.problems, fmt.Errorf("kind %s: alias %s is broadcast by two rules", k.Name, typ.alias))
	}
	if k.rules == nil {
		k.rules = map[string]func(string, json.RawMessage) (string, bool, error){}
	}
	k.rules[typ.alias] = func(owner string, payload json.RawMessage) (key string, ok bool, err error) {
		defer func() {
			if v := recover(); v != nil { // it depends on nothing else, so it would panic again
				err = Settle(fmt.Errorf("the rule of %s for %s panicked: %v", k.Name, typ.alias, v))
			}
		}()
		var msg T
		if err := json.Unmarshal(payload, &msg); err != nil {
			return "", false, SettleAs(Undecodable, err)
		}
		key, ok = rule(owner, msg)
		return key, ok, nil
	}
}

// Broadcasts returns the aliases that neurons of this kind hear when they are emitted, sorted.
func (k *Kind) Broadcasts() []string { return slices.Sorted(maps.Keys(k.rules)) }

// Receiver returns the neuron of this kind that hears the emission; ok is false when none does. An identity that cannot be
// is a settled error.
func (k *Kind) Receiver(owner, alias string, payload json.RawMessage) (id ID, ok bool, err error) {
	rule := k.rules[alias]
	if rule == nil {
		return ID{}, false, nil
	}
	key, ok, err := rule(owner, payload)
	if err != nil || !ok {
		return ID{}, false, err
	}
	id = ID{Owner: owner, Kind: k.Name, Key: key}
	return id, true, CheckID(id)
}

func (k *Kind) unheard() (problems []error) {
	for _, alias := range k.Broadcasts() {
		if k.handlers[alias] == nil {
			problems = append(problems, fmt.Errorf("kind %s: alias %s is broadcast but not handled", k.Name, alias))
		}
	}
	return problems
}

// CheckID is ID.Check with a settled error: EmptyIdentity where a part is empty, else Refused.
func CheckID(id ID) error {
	err := id.Check()
	switch {
	case err == nil:
		return nil
	case id.Owner == "" || id.Kind == "" || id.Key == "":
		return SettleAs(EmptyIdentity, err)
	}
	return Settle(err)
}

// Emit stages msg for every neuron that a Broadcast rule names and for the target of every live connection from this
// neuron with typ's alias, all inside its owner (N-21). The outgoing feed gets one entry, without a target, that counts the
// receivers; none is no error. Each receiver has a delivery of its own, whose id follows from the emission's id and the
// receiver, so WithID makes an emission that comes out equal when repeated.
//
// Errors: settled ones are a payload too large, a depth past the limit, more than Limits.Receivers receivers, an identity
// that cannot be; others come from reading the connections.
func Emit[T any](t *Turn, typ Type[T], msg T, opts ...SendOption) error {
	payload, err := typ.Encode(msg)
	if err != nil {
		return Settle(err)
	}
	return t.emit(typ.alias, payload, opts)
}

// Reemit emits what the turn handles, as it is: how a client's neuron passes on what was fired. What came from outside
// keeps its depth (N-19). Errors are those of Emit.
func Reemit(t *Turn) error {
	d := &t.base.Delivery
	opts := []SendOption{OnLane(d.Lane), WithKey(d.Key)}
	if d.Protected {
		opts = append(opts, Protected())
	}
	if d.Caller.IsZero() {
		opts = append(opts, AtDepth(d.Depth))
	}
	return t.emit(d.Alias, d.Payload, opts)
}

func (t *Turn) emit(alias string, payload json.RawMessage, opts []SendOption) error {
	d, err := t.compose(alias, payload, opts)
	if err != nil {
		return err
	}
	if t.base.Receivers == nil {
		return errors.New("cannot emit: nothing resolves receivers here")
	}
	receivers, err := t.base.Receivers(t.ctx, &d)
	if err != nil {
		return fmt.Errorf("cannot emit %s: %w", alias, err)
	}
	if n := t.base.Limits.Receivers; len(receivers) > n {
		return SettleAs(TooManyReceivers, fmt.Errorf("%s would go to more than %d neurons", alias, n))
	}
	if len(receivers)*len(payload) > referAbove*t.base.Limits.PayloadBytes {
		c := Content{ID: t.NewID(), Bytes: payload, Payload: true}
		t.record.Contents = append(t.record.Contents, c)
		d.Content, d.Payload = c.ID, nil
	}
	t.out = append(t.out, Entry{Delivery: d, Emitted: &Emission{Receivers: len(receivers)}})
	for _, r := range receivers {
		one := d
		one.Target, one.Via = r.Target, r.Via
		one.ID = r.DeliveryID(d.ID)
		t.record.Outbox = append(t.record.Outbox, OutboxRow{Delivery: one, Place: t.base.PlaceOf(r.Target), Due: t.base.Now})
	}
	return nil
}

// referAbove bounds the copies of one emission's payload, in payloads of the largest size: above, rows refer to one copy.
const referAbove = 4

// ReceiversFunc finds whom an emission goes to; d has no target yet. It may return more than Limits.Receivers, not all.
type ReceiversFunc func(ctx context.Context, d *Delivery) ([]Receiver, error)
