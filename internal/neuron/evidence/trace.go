package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/wire"
)

// traceTime bounds the work for one trace. What was found until then is answered.
const traceTime = 5 * time.Second

// Clips of texts in nodes, in bytes.
const (
	whatBytes  = 200
	errorBytes = 1000
)

// Trace returns everything that is known of the correlation to which a thing belongs: a delivery, execution, input, cell,
// whatever else the domain knows, by the id that a person sees. Errors: *wire.Error with not_found, or the store's.
func (e *Evidence) Trace(ctx context.Context, asked string) (wire.Trace, error) {
	limited, cancel := context.WithTimeout(ctx, traceTime)
	defer cancel()
	entry, is, err := e.start(limited, asked)
	if err == nil && entry == nil {
		err = wire.Errorf(wire.NotFound, "cannot trace %s %.128s: its deliveries are not kept any more", is, asked).Do("see soma journal")
	}
	if err != nil {
		return wire.Trace{}, err
	}
	w := &walk{
		e: e, correlation: entry.Correlation, items: map[ident.ID]*item{}, journals: map[neuron.ID]*journal{},
		asked: map[ident.ID]bool{}, elsewhere: map[ident.ID]bool{},
	}
	w.add(entry, false)
	t := &tree{w: w, deliveries: map[ident.ID]*node{}, facts: map[string]*node{}, outcomes: map[ident.ID]*node{}, gaps: map[ident.ID]*node{}}
	for _, step := range []func(context.Context) error{w.collect, w.settle, t.grow} {
		err := step(limited)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			w.cut = fmt.Sprintf("it took longer than %s", traceTime)
			continue
		}
		if err != nil {
			return wire.Trace{}, err
		}
	}
	out := wire.Trace{Asked: asked, Is: is, Correlation: w.correlation.String(), Gaps: append([]wire.TraceGap{}, w.gaps...), Cut: w.cut}
	t.link()
	t.mark(asked, entry.ID)
	t.write(&out)
	return out, nil
}

// grow makes the nodes: one for each delivery, and those of executions and of the domain.
func (t *tree) grow(ctx context.Context) error {
	for _, it := range t.w.order {
		t.deliveries[it.entry.ID] = &node{TraceNode: deliveryNode(it)}
	}
	executions, err := t.w.running(ctx)
	if err != nil {
		return err
	}
	for i := range executions {
		x := &executions[i]
		t.fact(x.Causation, Fact{TraceNode: wire.TraceNode{
			Kind: wire.NodeExecution, ID: attemptID(x.ID, x.Attempt), Neuron: x.Neuron.String(), What: x.Kind, At: x.StartedAt.UTC(),
			State: "running", Attempt: x.Attempt,
		}})
	}
	for _, it := range t.w.order {
		if err := t.facts1(ctx, it); err != nil {
			return err
		}
	}
	return t.starts(ctx)
}

// facts1 adds what the domain knows of one settled delivery.
func (t *tree) facts1(ctx context.Context, it *item) error {
	if !it.settled {
		return nil
	}
	e := it.entry
	if err := t.w.e.fill(ctx, &e.Delivery); err != nil {
		return err
	}
	facts, err := t.w.e.o.Domain.Facts(ctx, &e)
	if err != nil {
		return err
	}
	above := false
	for _, f := range facts {
		above = above || f.Above
		t.fact(e.ID, f)
	}
	if !above && e.ID.Attempt() != 0 && e.Caller == e.Target {
		t.execution(&e)
	}
	return nil
}

// execution adds the execution whose outcome a delivery brings, where the domain does not know it better.
func (t *tree) execution(e *neuron.Entry) {
	var ended neuron.Ended
	if decode(e.Payload, &ended) != nil || ended.ID.WithAttempt(0) != e.ID.WithAttempt(0) {
		return
	}
	at := e.At.UTC()
	t.fact(e.ID, Fact{Above: true, TraceNode: wire.TraceNode{
		Kind: wire.NodeExecution, ID: attemptID(ended.ID, ended.Attempt), Neuron: e.Target.String(), What: e.Alias, At: t.after(e.Causation, at),
		End: &at, State: string(ended.Status), Error: ended.Error, Attempt: ended.Attempt,
	}})
}

// after returns the time of a delivery if it is known, else the other time.
func (t *tree) after(id ident.ID, otherwise time.Time) time.Time {
	if it := t.w.items[id]; it != nil {
		return it.entry.At.UTC()
	}
	return otherwise
}

// starts adds the starts of daemons that lie within the trace.
func (t *tree) starts(ctx context.Context) error {
	first, last := t.span()
	return t.w.e.o.Reader.Query(ctx, selectStarts, []any{first.UnixMicro(), last.UnixMicro()}, func(scan func(...any) error) error {
		var id string
		var epoch, at int64
		if err := scan(&id, &epoch, &at); err != nil {
			return err
		}
		t.loose = append(t.loose, &node{TraceNode: wire.TraceNode{
			Kind: wire.NodeDaemon, ID: fmt.Sprintf("%s.%d", id, epoch), What: "daemon " + id, At: time.UnixMicro(at).UTC(), State: "started",
			Note: fmt.Sprintf("its start number %d", epoch),
		}})
		return nil
	})
}

func deliveryNode(it *item) wire.TraceNode {
	e := &it.entry
	n := wire.TraceNode{
		Kind: wire.NodeDelivery, ID: e.ID.String(), Neuron: e.Target.String(), Caller: e.Caller.String(), What: e.Alias, At: e.At.UTC(),
		Code: cmp.Or(string(e.Settled), string(it.ended)), Error: clip(it.why, errorBytes), Dead: it.dead, Attempts: max(e.Attempts, it.tries),
	}
	if !e.Handled.IsZero() {
		at := e.Handled.UTC()
		n.End = &at
	}
	n.Via = text(e.Via)
	if e.Request != nil {
		n.Request = text(e.Request.ID)
	}
	switch {
	case e.Emitted != nil:
		emissionNode(&n, it)
	case it.noted:
		factNode(&n, e)
	case it.settled && e.Settled == "":
		n.State, n.Code = "handled", ""
	case it.settled || it.ended != "":
		n.State = "refused"
	case it.waits && it.alarm:
		n.State, n.Due = "alarm", &it.due
	case it.waits && it.tries > 1:
		n.State, n.Due = "retrying", &it.due
	case it.waits:
		n.State = "waiting"
	default:
		n.State = "unsettled"
	}
	return n
}

// emissionNode tells to how many an emission went, and of how many of them nothing can be found.
func emissionNode(n *wire.TraceNode, it *item) {
	n.Kind, n.State, n.Neuron, n.Caller = wire.NodeEmission, "emitted", n.Caller, ""
	n.Note = fmt.Sprintf("to %d neurons", it.entry.Emitted.Receivers)
	if missing := it.entry.Emitted.Receivers - it.found; missing > 0 {
		n.Note += fmt.Sprintf(", %d of which are not known any more", missing)
	}
}

// factNode tells of a fact about a call, which the caller has noted.
func factNode(n *wire.TraceNode, e *neuron.Entry) {
	var f call.Evidence
	_ = decode(e.Payload, &f) // what cannot be read is shown by its alias
	n.Kind, n.Neuron, n.Caller, n.Code, n.Request = wire.NodeFact, n.Caller, "", string(f.Code), text(f.Request)
	n.State, _, _ = strings.Cut(strings.TrimPrefix(e.Alias, "capability."), ".")
	if f.Contract != "" {
		n.What = f.Contract + "." + f.Method + " of " + e.Target.String()
	}
}

// attemptID names one attempt of an execution.
func attemptID(id ident.ID, attempt int) string {
	return fmt.Sprintf("%s.%d", id.WithAttempt(0), attempt)
}

func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("cannot read a row: %w", err)
	}
	return nil
}
