package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/pykernel"
)

// Waits between two tries of a commit that failed.
const (
	retryMin = 20 * time.Millisecond
	retryMax = 5 * time.Second
)

// maxRiders bounds the deletions that ride in one commit.
const maxRiders = 64

// persist repeats fn until it succeeds or ctx ends. A frame for a python kernel that has ended is given up too.
func (k *kernel) persist(ctx context.Context, what string, fn func(context.Context) error) bool {
	for gap := retryMin; ; gap = min(2*gap, retryMax) {
		err := fn(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || errors.Is(err, pykernel.ErrKernelEnded) {
			return false
		}
		level := slog.LevelWarn
		if errors.Is(err, neuron.ErrStopped) || errors.Is(err, neuron.ErrNotOwner) {
			level = slog.LevelDebug // the daemon starts or stops, or has the place soon
		}
		k.log().Log(ctx, level, "cannot commit", "what", what, "err", err)
		wait := time.NewTimer(gap)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false
		}
	}
}

// deliver brings a message to the owner with ops in one commit. Without a cause it begins a causal tree of its own.
func (k *kernel) deliver(ctx context.Context, id ident.ID, cause pykernel.Cause, alias string, message any, ops []neuron.Op) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if cause.Correlation.IsZero() {
		cause.Correlation = id
	}
	return k.s.opt.Neurons.Accept(ctx, neuron.Delivery{
		ID: id, Alias: alias, Payload: payload, Target: k.owner, Correlation: cause.Correlation, Causation: cause.Causation,
		At: k.s.opt.Now(),
	}, ops...)
}

// write commits ops, and the rows that go, until that succeeds; false: ctx ended first.
func (k *kernel) write(ctx context.Context, what string, ops ...neuron.Op) bool {
	return k.persist(ctx, what, func(ctx context.Context) error {
		all, forget := k.riders()
		err := k.s.opt.Neurons.Write(ctx, k.place, append(all, ops...)...)
		if err == nil {
			forget()
		}
		return err
	})
}

// tellOwner brings a message to the owner, in one commit with the inbox item of the frame that it came by, ops, and the rows that
// go; false: ctx ended first.
func (k *kernel) tellOwner(ctx context.Context, what string, id ident.ID, cause pykernel.Cause, alias string, message any, seq uint64, item string, ops ...neuron.Op) bool {
	ok := k.persist(ctx, what, func(ctx context.Context) error {
		all, forget := k.riders()
		all = append(append(all, &pykernel.InboxItem{Kernel: k.id, Item: item, At: k.s.opt.Now()}), ops...)
		err := k.deliver(ctx, id, cause, alias, message, all)
		if err == nil {
			forget()
		}
		return err
	})
	if ok {
		k.noteItem(item, seq)
	}
	return ok
}

// riders returns the deletions of rows that have done their work, and forget, to be called when they are committed.
func (k *kernel) riders() (ops []neuron.Op, forget func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	acked := slices.Clone(k.acked[:min(len(k.acked), maxRiders)])
	for _, seq := range acked {
		ops = append(ops, &pykernel.DropFrame{Kernel: k.id, Seq: seq})
		if call, ok := k.reply[seq]; ok {
			ops = append(ops, &pykernel.DropCall{Kernel: k.id, ID: call})
		}
	}
	var items []string
	behind := map[string]bool{} // they say it of open cells, also to the next daemon
	for _, c := range k.cells {
		behind[pykernel.BackgroundItem(c.id)] = true
	}
	for item, seq := range k.items {
		if !behind[item] && len(items) < maxRiders && seq <= k.proven && (seq > 0 || k.resent) {
			items = append(items, item)
			ops = append(ops, &pykernel.DropInbox{Kernel: k.id, Item: item})
		}
	}
	return ops, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.acked = slices.DeleteFunc(k.acked, func(seq uint64) bool { return slices.Contains(acked, seq) })
		for _, seq := range acked {
			delete(k.reply, seq)
		}
		for _, item := range items {
			if k.items[item] <= k.proven {
				delete(k.items, item)
			}
		}
	}
}

// known reports whether item is in the inbox, and notes that seq brought it again.
func (k *kernel) known(item string, seq uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.items[item]
	if ok {
		k.items[item] = seq
	}
	return ok
}

// done brings the outcome of a cell to the owner; the frame is acknowledged after the commit.
func (k *kernel) done(ctx context.Context, seq uint64, d *pykernel.Done) {
	item := pykernel.DoneItem(d.Cell)
	c := k.open(d.Cell)
	if k.known(item, seq) || c == nil {
		// It came before, or names a cell that was never asked for here.
		k.link.Settle(seq)
		return
	}
	out := pykernel.CellEnded{
		Kernel: k.id, Cell: d.Cell, Status: d.Status, DurationMS: d.DurationMS, Value: d.Value, Error: d.Error,
		Calls: d.Calls, ImageErrors: d.ImageErrors, Repair: d.Repair, Background: d.Background || c.background,
	}
	out.Wake = out.Background && (d.Wake == nil || *d.Wake)
	images := pictures(&out, d.Images)
	if d.Status == pykernel.CellInterrupted && k.pastDeadline(c) {
		out.Status = pykernel.CellTimedOut
	}
	if !k.ended(ctx, c, out, d.Output, &item, images...) {
		return
	}
	k.noteItem(item, seq)
	crash.Point(crash.DoneCommitted)
	k.link.Settle(seq)
	k.s.changed()
}

// noteItem remembers an inbox row that seq has brought.
func (k *kernel) noteItem(item string, seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items[item] = seq
}

// ended commits the outcome of a cell: to its owner, with its output, its inbox item if it came by a frame, the operations given,
// and the rows that go. It returns false when ctx ended first.
func (k *kernel) ended(ctx context.Context, c *cell, out pykernel.CellEnded, o pykernel.Output, item *string, more ...neuron.Op) bool {
	id, err := ident.Parse(c.id)
	if err != nil {
		id = ident.Named(k.id, c.id) // a frame that this program never makes; its owner hears of it all the same
	}
	if o.Size > 0 {
		out.Content, out.Kept = ident.Derive(id, "output"), int64(len(o.Head))
	}
	out.Output = preview(o)
	ok := k.persist(ctx, "the outcome of a cell", func(ctx context.Context) error {
		ops, forget := k.riders()
		ops = append(append(ops, &pykernel.DropFrame{Kernel: k.id, Seq: c.seq}), more...)
		if c.background {
			ops = append(ops, &pykernel.DropInbox{Kernel: k.id, Item: pykernel.BackgroundItem(c.id)})
		}
		if item != nil {
			ops = append(ops, &pykernel.InboxItem{Kernel: k.id, Item: *item, At: k.s.opt.Now()})
		}
		if o.Size > 0 {
			ops = append(ops, &pykernel.KeepOutput{ID: out.Content, Bytes: []byte(o.Head + o.Tail)})
		}
		err := k.deliver(ctx, ident.Derive(id, "done"), c.cause, pykernel.CellEndedAlias, out, ops)
		if err == nil {
			forget()
		}
		return err
	})
	if !ok {
		return false
	}
	k.mu.Lock()
	k.cells = slices.DeleteFunc(k.cells, func(other *cell) bool { return other == c })
	delete(k.items, pykernel.BackgroundItem(c.id))
	k.used = k.s.opt.Now()
	k.startClock()
	k.mu.Unlock()
	k.publish()
	return true
}

func (k *kernel) open(id string) *cell {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.IndexFunc(k.cells, func(c *cell) bool { return c.id == id }); i >= 0 {
		return k.cells[i]
	}
	return nil
}

func (k *kernel) pastDeadline(c *cell) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.step == interrupted || c.step == given
}

// preview cuts an output to PreviewBytes: its beginning and its end.
func preview(o pykernel.Output) pykernel.Output {
	if len(o.Head)+len(o.Tail) <= pykernel.PreviewBytes {
		return o
	}
	rest := o.Tail
	if rest == "" {
		rest = o.Head
	}
	return pykernel.Output{
		Head: firstBytes(o.Head, pykernel.PreviewBytes/2), Tail: lastOf(rest, pykernel.PreviewBytes/2), Size: o.Size, Spill: o.Spill,
	}
}

// firstBytes returns at most n bytes from the start of s, cut on a character.
func firstBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// lastOf returns at most n bytes from the end of s, cut on a character.
func lastOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return strings.Clone(s[i:])
}
