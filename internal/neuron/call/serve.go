package call

import (
	"encoding/json"
	"errors"
	"fmt"

	"soma/internal/neuron"
)

// Serve registers what a kind does when its method is called. fn runs in a turn of the target, as a handler does: what it
// sends and writes is committed with its answer. An error that is settled rejects the call with its code; any other error,
// and a panic, fails it, and nothing of the turn is kept.
func Serve[Req, Resp any](k *neuron.Kind, c Contract[Req, Resp], fn func(*neuron.Turn, Req) (Resp, error)) {
	serve(k, c.about, func(t *neuron.Turn, r *Row) error {
		var req Req
		if err := json.Unmarshal(r.Request, &req); err != nil {
			return neuron.SettleAs(neuron.Undecodable, err)
		}
		resp, err := fn(t, req)
		if err != nil {
			return err
		}
		b, err := encode(t, c.Alias(), resp, maxPayload)
		if err != nil {
			return err
		}
		t.Write(r.reply(t.Delivery().ID, Completed, b, nil))
		return nil
	}, nil)
}

// ServeStream registers a method that answers part by part. Each part is a turn: fn gets the request and the state that the
// part before left, the zero State at first, and returns items, the state for the next part, and whether there is one. dispose
// is called, in a turn too, when the caller leaves a stream that has more; nil: there is nothing to be disposed of.
func ServeStream[Req, Item, State any](k *neuron.Kind, c Stream[Req, Item],
	fn func(t *neuron.Turn, req Req, after State) (items []Item, next State, more bool, err error),
	dispose func(t *neuron.Turn, req Req, after State) error) {
	decode := func(r *Row) (req Req, after State, err error) {
		if err = json.Unmarshal(r.Request, &req); err == nil && r.After != nil {
			err = json.Unmarshal(r.After, &after)
		}
		if err != nil {
			err = neuron.SettleAs(neuron.Undecodable, err)
		}
		return req, after, err
	}
	serve(k, c.about, func(t *neuron.Turn, r *Row) error {
		req, after, err := decode(r)
		if err != nil {
			return err
		}
		items, next, more, err := fn(t, req, after)
		if err != nil {
			return err
		}
		part, err := encode(t, c.Alias(), items, 1)
		if err != nil {
			return err
		}
		place, err := encode(t, c.Alias(), next, 1)
		if err != nil {
			return err
		}
		state := Completed
		if more {
			state = More
		}
		t.Write(r.reply(t.Delivery().ID, state, nil, place), r.part(part))
		return nil
	}, func(t *neuron.Turn, r *Row) error {
		if dispose == nil {
			return nil
		}
		req, after, err := decode(r)
		if err != nil {
			return err
		}
		return dispose(t, req, after)
	})
}

// encode returns what is stored of an answer, at most as many times Limits.PayloadBytes as room says.
func encode(t *neuron.Turn, alias string, v any, room int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, neuron.Settle(fmt.Errorf("cannot encode an answer of %s: %w", alias, err))
	}
	if len(b) > room*t.Limits().PayloadBytes {
		return nil, neuron.SettleAs(TooLarge, fmt.Errorf("%w: answer of %s has %d bytes", neuron.ErrPayloadTooLarge, alias, len(b)))
	}
	return b, nil
}

// serve registers a method behind the checks that every call passes first.
func serve(k *neuron.Kind, c about, run, dispose func(*neuron.Turn, *Row) error) {
	for _, err := range c.mistakes {
		k.Mistake(err)
	}
	k.HandleRaw(c.Alias(), func(t *neuron.Turn) error {
		r, err := admit(t, &c)
		if err != nil {
			return err
		}
		if r.State != Left {
			return run(t, r)
		}
		t.Write(r.Forget()...)
		if dispose == nil {
			return nil
		}
		return dispose(t, r)
	})
}

// admit finds the committed request behind the delivery and refuses who may not ask (N-29).
func admit(t *neuron.Turn, c *about) (*Row, error) {
	d := t.Delivery()
	refuse := func(code neuron.Code, text string) (*Row, error) {
		return nil, neuron.SettleAs(code, errors.New(text))
	}
	if d.Request == nil {
		if d.Caller.IsZero() {
			return refuse(Unattributed, "a call from outside that nobody asked for")
		}
		return refuse(NoRequest, "a call without a request")
	}
	r, found, err := read(t.Query, d.Request.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case !found, r.Ask != d.ID, r.Caller != d.Caller, r.Target != d.Target, r.Alias != d.Alias, r.State != Asked && !(r.State == Left && d.Request.Dispose):
		return refuse(NoRequest, "no open request stands behind the delivery")
	case r.Caller.IsZero() && !c.entry:
		return refuse(Unattributed, "the contract is no entry for callers from outside")
	case !r.Caller.IsZero() && r.Caller.Owner != t.Self().Owner && !c.crosses(r.Caller, t.Self()):
		return refuse(CrossOwner, "the caller belongs to another owner")
	case r.State == Asked && !r.Deadline.After(t.Now()):
		return refuse(TooLate, "nobody waits any more")
	}
	return &r, nil
}
