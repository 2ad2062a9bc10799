package notebook

import (
	"encoding/base64"
	"fmt"
	"strings"

	"soma/internal/cli/plain"
	"soma/wire"
)

// Result is what has come of one cell.
type Result struct {
	Cell   wire.Cell
	Output string // what it wrote
	Lost   int64  // bytes of it that were not kept
	Images []Image
}

// Image is one image that a cell has shown.
type Image struct {
	Media   string
	Content []byte
}

// outputs makes the outputs of a cell: what it wrote, images, its value, its error.
func outputs(count int, r Result) *node {
	all := list()
	add := func(kind string, pairs ...any) {
		all.list = append(all.list, object(append(pairs, "output_type", text(kind))...))
	}
	if r.Output != "" {
		add("stream", "name", text("stdout"), "text", lines(r.Output))
	}
	if r.Lost > 0 {
		add("stream", "name", text("stderr"), "text", lines(plain.Size(r.Lost)+" of output were not kept\n"))
	}
	for _, image := range r.Images {
		add("display_data", "data", object(image.Media, text(base64.StdEncoding.EncodeToString(image.Content))), "metadata", object())
	}
	for _, e := range r.Cell.ImageErrors {
		add("stream", "name", text("stderr"), "text", lines(e+"\n"))
	}
	if v := r.Cell.Value; v != nil {
		add("execute_result", "data", object("text/plain", lines(*v)), "execution_count", number(count), "metadata", object())
	}
	if r.Cell.Status != "ok" {
		f := wire.CellFault{Type: r.Cell.Status, Message: r.Cell.Note}
		if r.Cell.Error != nil {
			f = *r.Cell.Error
		}
		trace := list()
		for line := range strings.SplitSeq(strings.TrimRight(f.Traceback, "\n"), "\n") {
			trace.list = append(trace.list, text(line))
		}
		if f.Traceback == "" {
			trace.list = []*node{text(strings.TrimSuffix(fmt.Sprintf("%s: %s", f.Type, f.Message), ": "))}
		}
		add("error", "ename", text(f.Type), "evalue", text(f.Message), "traceback", trace)
	}
	return all
}
