package neuron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"soma/ident"
)

// Reader reads committed rows; Store fills it.
type Reader interface {
	Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error
}

// Base is what a turn starts from. The engine fills it.
type Base struct {
	Delivery Delivery
	// Message is what the delivery's payload encodes, nil where only the payload is at hand.
	Message    any
	Now        time.Time
	StateAlias string
	State      []byte
	OutSeq     uint64 // last outgoing sequence
	Limits     Limits
	Reader     Reader
	PlaceOf    func(ID) Place
	Steps      Steps // nil: the turn can neither commit ahead nor wait
	Receivers  ReceiversFunc
}

// Turn is what a handler works with: the delivery, the clock, its state, and the record it fills. It is valid until the
// handler returns and must not be used by another goroutine.
type Turn struct {
	ctx     context.Context // the attempt's own; handed out by Context so that handlers need no second parameter
	base    Base
	record  Record
	out     []Entry
	wrote   bool
	anyway  Step
	atEnd   []func()
	ordinal int
	began   time.Time
}

// NewTurn returns the turn of one attempt; ctx ends with the attempt.
func NewTurn(ctx context.Context, base Base) *Turn {
	return &Turn{ctx: ctx, base: base, began: time.Now()}
}

// Context ends when the attempt does.
func (t *Turn) Context() context.Context { return t.ctx }

// Self is the neuron whose turn this is.
func (t *Turn) Self() ID { return t.base.Delivery.Target }

// Delivery is what is being handled. The caller must not change what it points to.
func (t *Turn) Delivery() *Delivery { return &t.base.Delivery }

// Now is the time of the turn (N-12), the same at each call.
func (t *Turn) Now() time.Time { return t.base.Now }

// NewID returns a fresh time-ordered id.
func (t *Turn) NewID() ident.ID { return ident.New(t.base.Now) }

// Query reads committed rows; what this turn writes is not among them.
func (t *Turn) Query(sql string, args []any, row func(scan func(dest ...any) error) error) error {
	return t.base.Reader.Query(t.ctx, sql, args, row)
}

// Write adds a write operation; operations run in the order in which they were added.
func (t *Turn) Write(ops ...Op) { t.record.Ops = append(t.record.Ops, ops...) }

// Keep stores a large value with the turn and returns its reference.
func (t *Turn) Keep(b []byte) ident.ID {
	c := Content{ID: t.NewID(), Bytes: b}
	t.record.Contents = append(t.record.Contents, c)
	return c.ID
}

// Start begins an execution with this turn. ID, Neuron, Depth, Correlation, Causation, StartedAt are filled where zero,
// Attempt 0 becomes 1. It returns the execution as stored. An ID that runs already needs a greater Attempt, which takes the
// place of the running one; without it the delivery is settled with code Refused.
func (t *Turn) Start(x Execution) Execution {
	if x.ID.IsZero() {
		x.ID = t.NewID()
	}
	if x.Attempt == 0 {
		x.Attempt = 1
	}
	d := &t.base.Delivery
	x.Neuron, x.Depth, x.StartedAt = d.Target, d.Depth, t.base.Now
	if x.Correlation.IsZero() {
		x.Correlation = d.Correlation
	}
	x.Causation = d.ID
	t.record.Started = append(t.record.Started, x)
	return x
}

// Finish ends the execution's row with this turn.
func (t *Turn) Finish(id ident.ID) { t.record.Ended = append(t.record.Ended, id.WithAttempt(0)) }

// CancelExecution ends the context of a running execution after the commit; its outcome still comes.
func (t *Turn) CancelExecution(id ident.ID) {
	t.record.Cancelled = append(t.record.Cancelled, id.WithAttempt(0))
}

// SendOption changes one sent delivery.
type SendOption func(*Delivery)

// OnLane sends on the given lane.
func OnLane(l Lane) SendOption { return func(d *Delivery) { d.Lane = l } }

// WithKey gives the delivery an idempotency key.
func WithKey(key string) SendOption { return func(d *Delivery) { d.Key = key } }

// Protected keeps the payload from those who read journals: for facts that carry what a call was asked or answered.
func Protected() SendOption { return func(d *Delivery) { d.Protected = true } }

// WithID gives the delivery an id of its own, for sends that must come out equal when repeated.
func WithID(id ident.ID) SendOption { return func(d *Delivery) { d.ID = id } }

// AtDepth starts the delivery at the given depth instead of one more than the turn's: for what enters an actor's mailbox
// as new work (N-19); causation is kept.
func AtDepth(n int) SendOption { return func(d *Delivery) { d.Depth = n } }

// Send stages a delivery to one neuron. Errors are settled: a payload too large, a depth past the limit, a bad target.
func Send[T any](t *Turn, to ID, typ Type[T], msg T, opts ...SendOption) error {
	_, err := stage(t, to, typ, msg, opts)
	return err
}

// After stages a durable alarm: msg is delivered to this neuron once d has passed, at depth 0, at least once (N-11).
// The returned id cancels it.
func After[T any](t *Turn, d time.Duration, typ Type[T], msg T) (ident.ID, error) {
	row, err := stage(t, t.Self(), typ, msg, []SendOption{AtDepth(0)})
	if err != nil {
		return ident.ID{}, err
	}
	row.Alarm, row.Due = true, t.base.Now.Add(d)
	return row.ID, nil
}

// CancelAlarm deletes the outbox row of an alarm that has not fired; one that has is without effect.
func (t *Turn) CancelAlarm(id ident.ID) { t.record.Delivered = append(t.record.Delivered, id) }

func stage[T any](t *Turn, to ID, typ Type[T], msg T, opts []SendOption) (*OutboxRow, error) {
	if err := CheckID(to); err != nil {
		return nil, err
	}
	payload, err := typ.Encode(msg)
	if err != nil {
		return nil, Settle(err)
	}
	d, err := t.compose(typ.alias, payload, opts)
	if err != nil {
		return nil, err
	}
	d.Target = to
	t.out = append(t.out, Entry{Delivery: d})
	t.record.Outbox = append(t.record.Outbox, OutboxRow{Delivery: d, Place: t.base.PlaceOf(to), Due: t.base.Now})
	return &t.record.Outbox[len(t.record.Outbox)-1], nil
}

// compose makes the next outgoing delivery of the turn, without a target. Errors are settled: a payload too large, a depth
// past the limit.
func (t *Turn) compose(alias string, payload json.RawMessage, opts []SendOption) (Delivery, error) {
	if len(payload) > t.base.Limits.PayloadBytes {
		return Delivery{}, Settle(fmt.Errorf("%w: %s is %d bytes, at most %d", ErrPayloadTooLarge, alias, len(payload), t.base.Limits.PayloadBytes))
	}
	in := &t.base.Delivery
	d := Delivery{
		ID: t.NewID(), Alias: alias, Payload: payload, Caller: in.Target, Correlation: in.Correlation,
		Causation: in.ID, Seq: t.base.OutSeq + uint64(len(t.out)) + 1, Depth: in.Depth + 1, At: t.base.Now,
	}
	for _, o := range opts {
		o(&d)
	}
	if d.Depth > t.base.Limits.Depth {
		return Delivery{}, SettleAs(TooDeep, fmt.Errorf("%d hops, at most %d", d.Depth, t.base.Limits.Depth))
	}
	return d, nil
}

// State decodes the neuron's state; a neuron without one gets the zero S. Older aliases are upgraded by up, which may be
// nil when there are none.
func State[S any](t *Turn, typ Type[S], up func(alias string, b json.RawMessage) (S, error)) (S, error) {
	var zero S
	switch {
	case t.base.State == nil:
		return zero, nil
	case t.base.StateAlias == typ.alias:
		return typ.Decode(t.base.State)
	case up != nil:
		return up(t.base.StateAlias, t.base.State)
	}
	return zero, SettleAs(Undecodable, fmt.Errorf("state %s is not known to this build", t.base.StateAlias))
}

// SetState replaces the neuron's state with this turn.
func SetState[S any](t *Turn, typ Type[S], s S) error {
	b, err := typ.Encode(s)
	if err != nil {
		return Settle(err)
	}
	if len(b) > t.base.Limits.PayloadBytes {
		return Settle(fmt.Errorf("%w: state %s is %d bytes", ErrPayloadTooLarge, typ.alias, len(b)))
	}
	t.base.StateAlias, t.base.State, t.wrote = typ.alias, b, true
	return nil
}

// Result is what a finished handler leaves to the engine.
type Result struct {
	Record     Record
	Out        []Entry
	StateAlias string
	State      []byte
	Wrote      bool // the state changed
}

// Result hands out what the handler has staged so far; it changes nothing.
func (t *Turn) Result() Result {
	out, rows := t.fill(t.anyway, t.base.OutSeq+uint64(len(t.out)))
	rec := t.record
	rec.Outbox, rec.Ops = append(slices.Clip(rec.Outbox), rows...), append(slices.Clip(rec.Ops), t.anyway.Ops...)
	return Result{Record: rec, Out: append(slices.Clip(t.out), out...), StateAlias: t.base.StateAlias, State: t.base.State, Wrote: t.wrote}
}
