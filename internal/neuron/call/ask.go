package call

import (
	stdbytes "bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
)

// pollEvery is how long a waiting caller trusts that it would have been woken.
const pollEvery = time.Second

// Side is whoever asks: a *neuron.Turn, or the engine's stand-in for a caller from outside.
type Side interface {
	Context() context.Context
	Self() neuron.ID // zero from outside
	Delivery() *neuron.Delivery
	Clock() time.Time
	Limits() neuron.Limits
	PlaceOf(neuron.ID) neuron.Place
	Query(sql string, args []any, row func(scan func(dest ...any) error) error) error
	Ordinal() int
	Commit(neuron.Step) error
	Anyway(neuron.Step)
	Hold(request ident.ID, on neuron.ID) (neuron.Hold, error)
}

// Do asks target and waits for its answer, within the handler of t. What the method sends and writes is committed before Do
// returns; that the call has ended is committed with the turn of t, also where its delivery is settled by a refusal. A handler that runs
// again and asks the same again, in the same order, is answered from what was stored: the method does not run twice unless
// it failed.
//
// Errors: a *neuron.Refusal that is an ErrRejected; a *FailedError; neuron.ErrWouldDeadlock, as a *neuron.Refusal where the
// target is among those that wait for this very handler; neuron.ErrBusy when too many handlers wait; neuron.ErrStopped and
// the store's. All but refusals are worth another attempt.
func Do[Req, Resp any](t *neuron.Turn, c Contract[Req, Resp], target neuron.ID, req Req) (Resp, error) {
	return do(t, c, target, req)
}

// Outside asks target for a caller who is no neuron, through the stand-in that the engine makes for one call, and waits until
// the context of it ends at the latest. The contract must be an entry. Errors are those of Do.
func Outside[Req, Resp any](from Side, c Contract[Req, Resp], target neuron.ID, req Req) (Resp, error) {
	return do(from, c, target, req)
}

func do[Req, Resp any](from Side, c Contract[Req, Resp], target neuron.ID, req Req) (resp Resp, err error) {
	a, err := open(from, &c.about, target, req)
	if err != nil {
		return resp, err
	}
	if err := a.get(1); err != nil {
		return resp, err
	}
	a.end(CompletedAlias, "")
	if err := json.Unmarshal(a.row.Reply, &resp); err != nil {
		return resp, neuron.SettleAs(neuron.Undecodable, fmt.Errorf("answer of %s: %w", c.Alias(), err))
	}
	return resp, nil
}

// asking is one call as its caller sees it.
type asking struct {
	side  Side
	c     *about
	known bool // the row exists
	row   Row
}

// open checks a call and finds the row that an earlier attempt may have left. Nothing is committed yet.
func open(side Side, c *about, target neuron.ID, req any) (*asking, error) {
	if err := errors.Join(c.mistakes...); err != nil {
		return nil, neuron.Settle(err)
	}
	if err := target.Check(); err != nil {
		return nil, neuron.Settle(err)
	}
	d, limits := side.Delivery(), side.Limits()
	body, err := json.Marshal(req)
	if err != nil {
		return nil, neuron.Settle(fmt.Errorf("cannot encode a request of %s: %w", c.Alias(), err))
	}
	if len(body) > maxPayload*limits.PayloadBytes {
		return nil, neuron.SettleAs(TooLarge, fmt.Errorf("%w: request of %s has %d bytes", neuron.ErrPayloadTooLarge, c.Alias(), len(body)))
	}
	if hops(side) > limits.Depth {
		return nil, neuron.SettleAs(neuron.TooDeep, fmt.Errorf("%d hops, at most %d", hops(side), limits.Depth))
	}
	if slices.Contains(chain(side), target) {
		return nil, neuron.SettleAs(WouldDeadlock, fmt.Errorf("%w: %s waits for this handler", neuron.ErrWouldDeadlock, target))
	}
	a := &asking{side: side, c: c}
	for {
		n := side.Ordinal()
		if n > maxCalls {
			return nil, neuron.SettleAs(TooMany, fmt.Errorf("%d calls in one attempt", n))
		}
		id := ident.Derive(d.ID, "call "+strconv.Itoa(n))
		row, found, err := read(side.Query, id)
		if err != nil {
			return nil, err
		}
		if !found {
			a.row = Row{
				ID: id, Cause: d.ID, Correlation: d.Correlation, Caller: side.Self(), Target: target, Alias: c.Alias(),
				Place: side.PlaceOf(target), Request: body,
			}
			if !a.row.Caller.IsZero() {
				a.row.Place = side.PlaceOf(a.row.Caller)
			}
			return a, nil
		}
		// An earlier attempt that asked something else here leaves its request to be ended as lost.
		if row.Target == target && row.Alias == c.Alias() && stdbytes.Equal(row.Request, body) && row.State != Left {
			a.row, a.known = row, true
			return a, nil
		}
	}
}

// hops is the depth of the request.
func hops(side Side) int {
	if side.Self().IsZero() {
		return 0
	}
	return side.Delivery().Depth + 1
}

// chain is who would wait for the target.
func chain(side Side) []neuron.ID {
	if side.Self().IsZero() {
		return nil
	}
	var waiting []neuron.ID
	if r := side.Delivery().Request; r != nil {
		waiting = r.Chain
	}
	return append(slices.Clip(waiting), side.Self())
}

// get returns once part n has its answer. Where there will be none, it has staged the call's end, unless the attempt cannot
// say what became of it.
func (a *asking) get(n int) error {
	if !a.row.answered(n) && a.row.State != Rejected {
		if err := a.wait(n); errors.Is(err, errLate) {
			a.end(FailedAlias, TooLate)
			return fmt.Errorf("%w: no answer from %s within %s", &FailedError{TooLate}, a.row.Target, a.c.deadline)
		} else if err != nil {
			return err
		}
	}
	switch {
	case a.row.answered(n):
		return nil
	case a.row.State == Rejected:
		a.end(RejectedAlias, a.row.Code)
		return &neuron.Refusal{Code: a.row.Code, Err: fmt.Errorf("%w by %s", ErrRejected, a.row.Target)}
	}
	a.end(FailedAlias, a.row.Code)
	return &FailedError{a.row.Code}
}

// errLate: the deadline passed.
var errLate = errors.New("the deadline passed")

// wait asks for part n, unless that is asked already, and waits while the row says so.
func (a *asking) wait(n int) error {
	hold, err := a.side.Hold(a.row.ID, a.row.Target)
	if err != nil {
		return fmt.Errorf("cannot call %s: %w", a.row.Target, err)
	}
	defer hold.Release()
	if !a.known || a.row.Part != n || a.row.State != Asked || !a.row.Deadline.After(a.side.Clock()) {
		if err := a.ask(n); err != nil {
			return fmt.Errorf("cannot ask %s: %w", a.row.Target, err)
		}
	}
	ctx := a.side.Context()
	var met ident.ID // where the last look found a cycle
	for {
		left := a.row.Deadline.Sub(a.side.Clock())
		if left <= 0 {
			return errLate
		}
		err := hold.Wait(ctx, min(left, pollEvery))
		if errors.Is(err, context.DeadlineExceeded) {
			return errLate
		} else if err != nil {
			return fmt.Errorf("cannot wait for %s: %w", a.row.Target, err)
		}
		row, found, err := read(a.side.Query, a.row.ID)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("call %s: %w", a.row.ID, errGone)
		}
		if a.row = row; row.State != Asked {
			return nil
		}
		if hold.Alone() {
			continue
		}
		was := met
		if met, err = a.cycle(); err != nil {
			return err
		}
		if !met.IsZero() && met == was && met == a.row.ID {
			a.end(RejectedAlias, WouldDeadlock)
			return fmt.Errorf("%w: %s waits for this neuron at another node", neuron.ErrWouldDeadlock, a.row.Target)
		}
	}
}

// ask commits the step that asks for part n.
func (a *asking) ask(n int) error {
	side := a.side
	now := side.Clock()
	until := now.Add(a.c.deadline)
	if end, ok := side.Context().Deadline(); ok {
		until = earlier(until, now.Add(time.Until(end)))
	}
	ask := ident.New(now)
	step := neuron.Step{Sends: []neuron.Delivery{{
		ID: ask, Alias: a.row.Alias, Target: a.row.Target, Depth: hops(side),
		Request: &neuron.Request{ID: a.row.ID, Chain: chain(side), Until: until},
	}}}
	if a.known {
		step.Ops = []neuron.Op{a.row.again(ask, n, until)}
	}
	a.row.Ask, a.row.Part, a.row.State, a.row.Code, a.row.Deadline = ask, n, Asked, "", until
	if !a.known {
		step.Ops = []neuron.Op{a.row.insert()}
		step.Facts = []neuron.Delivery{fact(RequestedAlias, side, &a.row, "")}
	}
	if err := side.Commit(step); err != nil {
		return err
	}
	a.known = true
	crash.Point(crash.CallRequested)
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// end stages the fact of the call's end and what becomes of its row.
func (a *asking) end(alias string, code neuron.Code) {
	a.side.Anyway(ended(a.side, &a.row, alias, code))
}

// ended is the end of a call. A stream whose target has not ended it is disposed of: the target gets one more delivery of the
// request.
func ended(side Side, r *Row, alias string, code neuron.Code) neuron.Step {
	step := neuron.Step{Facts: []neuron.Delivery{fact(alias, side, r, code)}}
	if r.State != More && r.Part < 2 || r.State == Completed || r.State == Rejected {
		step.Ops = r.Forget()
		return step
	}
	ask := ident.New(side.Clock())
	until := side.Clock().Add(side.Limits().Horizon) // as long as deliveries are tried
	step.Ops = r.leave(ask, until)
	step.Sends = []neuron.Delivery{{
		ID: ask, Alias: r.Alias, Target: r.Target, Correlation: r.Correlation, Causation: r.Cause, Depth: hops(side),
		Request: &neuron.Request{ID: r.ID, Until: until, Dispose: true},
	}}
	return step
}

// cycle looks in the rows for a way from the target back to the caller, as far as other nodes may hide it, and returns the
// greatest call on it: the one to be refused. A neuron whose row was left by an attempt that failed does not really wait, so
// one look is not enough.
func (a *asking) cycle() (ident.ID, error) {
	type step struct {
		at       neuron.ID
		greatest ident.ID
	}
	seen := map[neuron.ID]bool{a.row.Target: true}
	for todo := []step{{a.row.Target, a.row.ID}}; len(todo) > 0 && len(seen) < maxCalls; todo = todo[1:] {
		here := todo[0]
		var next []step
		err := a.side.Query(selectWaits, []any{here.at.String()}, func(scan func(...any) error) error {
			var b []byte
			var target string
			if err := scan(&b, &target); err != nil {
				return err
			}
			id, err := ident.FromBytes(b)
			if err != nil {
				return err
			}
			s := step{greatest: here.greatest}
			if stdbytes.Compare(id[:], s.greatest[:]) > 0 {
				s.greatest = id
			}
			next = append(next, s)
			return next[len(next)-1].at.UnmarshalText([]byte(target))
		})
		if err != nil {
			return ident.ID{}, fmt.Errorf("cannot look who waits: %w", err)
		}
		for _, s := range next {
			if s.at == a.row.Caller {
				return s.greatest, nil
			}
			if !seen[s.at] {
				seen[s.at] = true
				todo = append(todo, s)
			}
		}
	}
	return ident.ID{}, nil
}
