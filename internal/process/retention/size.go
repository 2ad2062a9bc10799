package retention

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"soma/internal/neuron"
	"soma/wire"
)

// groups say under which name a person is told the size of a table.
var groups = map[string][]string{
	"conversations":  {"session", "branch", "message", "input", "process", "tool_call"},
	"outputs":        {"cell", "content", "cell_trace", "shell_command"},
	"events":         {"event"},
	"ledger":         {"ledger", "ledger_sum"},
	"python kernels": {"kernel", "kernel_frame", "kernel_inbox", "kernel_call", "job"},
	"journals":       {"neuron", "turn", "seen"},
	"deliveries":     {"outbox", "execution", "call", "call_part", "dead_letter", "connection"},
	"instance":       {"meta", "node", "lease"},
}

// GroupOf returns the group of a table, "" for one that no group has.
func GroupOf(table string) string {
	for name, tables := range groups {
		if slices.Contains(tables, table) {
			return name
		}
	}
	return ""
}

// sizes are those that were read last.
type sizes struct {
	groups []wire.SizeGroup
	at     time.Time
}

// Sizes returns how much each group held when that was last looked at; at is zero where it was not yet. It reads nothing.
func (k *Keeper) Sizes() (list []wire.SizeGroup, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sizes.groups), k.sizes.at
}

// Bounds of how often the sizes are read, which takes a walk through the file.
const (
	sizePause = time.Minute
	sizeShare = 100 // at most a hundredth of the time
)

func (k *Keeper) sizeLoop(ctx context.Context) error {
	if k.o.Sizes == nil {
		return nil
	}
	next := time.NewTimer(startPause / 4)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		if err := k.Measure(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.Warn("cannot read the sizes of the tables", "error", err)
		}
		next.Reset(max(sizePause, sizeShare*time.Since(began)))
	}
}

// Measure reads the sizes now.
func (k *Keeper) Measure(ctx context.Context) error {
	tables, err := k.o.Sizes(ctx)
	if err != nil {
		return err
	}
	list := group(tables)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sizes = sizes{list, k.o.Now()}
	return nil
}

// group sums the tables of each group, the largest first.
func group(tables []neuron.TableSize) []wire.SizeGroup {
	by := map[string]*wire.SizeGroup{}
	for _, t := range tables {
		name := GroupOf(t.Table)
		if name == "" {
			name = "other"
		}
		if by[name] == nil {
			by[name] = &wire.SizeGroup{Name: name}
		}
		by[name].Rows += t.Rows
		by[name].Bytes += t.Bytes
	}
	list := []wire.SizeGroup{}
	for _, g := range by {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b wire.SizeGroup) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	return list
}
