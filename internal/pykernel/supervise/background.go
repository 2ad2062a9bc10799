package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"soma/ident"
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/pykernel"
)

// backgrounded tells the owner that a cell goes on without being waited for. Its deadline stays.
func (k *kernel) backgrounded(ctx context.Context, seq uint64, b *pykernel.Backgrounded) {
	item := pykernel.BackgroundItem(b.Cell)
	c := k.open(b.Cell)
	id, err := ident.Parse(b.Cell)
	if c == nil || err != nil || k.known(item, seq) {
		k.link.Settle(seq)
		return
	}
	m := pykernel.CellBackgrounded{Kernel: k.id, Cell: b.Cell, DurationMS: b.DurationMS, Output: preview(b.Output)}
	if !k.tellOwner(ctx, "that a cell goes on in the background", ident.Derive(id, "backgrounded"), c.cause, pykernel.CellBackgroundedAlias, m, seq, item) {
		return
	}
	k.mu.Lock()
	c.background = true
	if c.clock.IsZero() { // others are before it, and it has begun all the same
		c.clock = time.Now().Add(-time.Duration(b.DurationMS) * time.Millisecond)
		k.rouse()
	}
	k.mu.Unlock()
	crash.Point(crash.BackgroundCommitted)
	k.link.Settle(seq)
}

// read tells the owner which results have been read after their end.
func (k *kernel) read(ctx context.Context, seq uint64, s *pykernel.Seen) {
	item := pykernel.SeenItem(seq)
	for _, list := range []*[]string{&s.Cells, &s.Jobs} {
		*list = slices.DeleteFunc(*list, func(id string) bool { return !named(id) })
		*list = (*list)[:min(len(*list), maxJobs)]
	}
	if k.known(item, seq) || len(s.Cells)+len(s.Jobs) == 0 || k.tellOwner(ctx, "what has been read",
		ident.Named(k.id, item), pykernel.Cause{}, pykernel.SeenAlias, pykernel.ResultsSeen{Kernel: k.id, Cells: s.Cells, Jobs: s.Jobs}, seq, item) {
		k.link.Settle(seq)
	}
}

// maxTrace bounds the stored trace of one cell, in bytes of its paths and diffs.
const maxTrace = 1 << 20

// traced stores the files that a cell has changed.
func (k *kernel) traced(ctx context.Context, seq uint64, t *pykernel.Trace) {
	if _, err := ident.Parse(t.Cell); err != nil { // no cell of ours
		k.link.Settle(seq)
		return
	}
	left := maxTrace
	changes := make([]pykernel.Change, 0, len(t.Changes))
	for _, c := range t.Changes {
		if left -= len(c.Path) + len(c.Kind); left < 0 {
			break
		}
		if left < len(c.Diff) {
			c.Diff, c.Truncated = "", true
		}
		left -= len(c.Diff)
		changes = append(changes, c)
	}
	body, err := json.Marshal(changes)
	if err != nil || k.write(ctx, "the trace of a cell", &pykernel.InsertTrace{
		Cell: t.Cell, Session: k.session, Kernel: k.id, Body: body, At: k.s.opt.Now(),
	}) {
		k.link.Settle(seq)
	}
}

// Bounds of what a done frame says beside its result.
const (
	maxNotes = 64
	maxNote  = 4 << 10 // bytes
)

// pictures puts the images of a cell into its outcome and returns the operations that store them. What is beyond the bounds is
// named there instead.
func pictures(out *pykernel.CellEnded, images []pykernel.FrameImage) (ops []neuron.Op) {
	out.Calls, out.ImageErrors = shortNotes(out.Calls), shortNotes(out.ImageErrors)
	out.Repair = firstBytes(out.Repair, maxNote)
	id, err := ident.Parse(out.Cell)
	if err != nil {
		id = ident.Named(out.Kernel, out.Cell)
	}
	left := pykernel.MaxImageBytes
	for _, image := range images {
		if len(out.Images) == pykernel.MaxImages || len(image.Data) > left {
			out.ImageErrors = append(out.ImageErrors, fmt.Sprintf("%s is beyond the %d images and %d bytes of a cell",
				firstBytes(image.Name, maxNote), pykernel.MaxImages, pykernel.MaxImageBytes))
			continue
		}
		left -= len(image.Data)
		content := pykernel.ImageID(id, len(out.Images))
		out.Images = append(out.Images, pykernel.Image{
			Media: firstBytes(image.Media, maxNote), Name: firstBytes(image.Name, maxNote), Size: int64(len(image.Data)), Content: content,
		})
		ops = append(ops, &pykernel.KeepImage{ID: content, Bytes: image.Data})
	}
	out.ImageErrors = shortNotes(out.ImageErrors)
	return ops
}

func shortNotes(list []string) []string {
	list = list[:min(len(list), maxNotes)]
	for i := range list {
		list[i] = firstBytes(list[i], maxNote)
	}
	return list
}
