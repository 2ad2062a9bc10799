package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"soma/bench/measure"
)

const (
	printRuns  = 15
	printBytes = 10_000_000
)

// printed is one way to write 10 MB: in a cell, and in a bare program whose stdout is a pipe; FILE stands for a file of that size.
var printed = []struct{ name, cell, bare string }{
	{"print_10mb", "for i in range(100_000): print('%05d' % i + 'x' * 94)", "for i in range(100_000): print('%05d' % i + 'x' * 94)"},
	{"print_10mb_once", "print('x' * 9_999_999)", "print('x' * 9_999_999)"},
	{"print_10mb_child", "j = run(['cat', 'FILE'])\nawait j\nj.size", "subprocess.run(['cat', 'FILE'])"},
}

// Print returns how fast a cell writes 10 MB: in 100,000 lines, in one print, and by an OS process that it starts; from the
// commit of its execute frame to the commit of its result, with the output kept to its last byte. In turns with them a bare
// python writes the same into a pipe that is read.
func Print(ctx context.Context, dir, fs string) (lines []measure.Line, err error) {
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	i, err := open(ctx, bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	file := filepath.Join(dir, "10mb")
	if err := os.WriteFile(file, []byte(strings.Repeat(strings.Repeat("x", 99)+"\n", printBytes/100)), 0o600); err != nil {
		return nil, err
	}
	for _, p := range printed {
		writer, err := startWriter(ctx, strings.ReplaceAll(p.bare, "FILE", file))
		if err != nil {
			return nil, err
		}
		var theirs []time.Duration
		ours, cell, err := i.cells(ctx, p.name, dir, strings.ReplaceAll(p.cell, "FILE", file), printRuns+1, func() error {
			d, err := writer.round()
			theirs = append(theirs, d)
			return err
		})
		if err = errors.Join(err, writer.end()); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if err := i.whole(ctx, cell); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		rate := func(all []time.Duration) float64 { return printBytes / 1e6 / median(all[1:]).Seconds() }
		lines = append(lines, measure.Line{Name: p.name, Value: rate(ours), Unit: "MB/s", Bare: rate(theirs), N: printRuns, FS: fs})
	}
	return lines, nil
}

// whole reads a cell's output by offset, and leaves a job's to its value; the error says where it is not kept.
func (i *instance) whole(ctx context.Context, cell string) error {
	c, err := i.client.Cell(ctx, cell)
	if err != nil {
		return err
	}
	if c.Status != "ok" || c.Value != nil && *c.Value != fmt.Sprint(printBytes) {
		return fmt.Errorf("cell %s: %s %v", cell, c.Status, c.Error)
	}
	if c.Value != nil {
		return nil
	}
	for at := int64(0); ; {
		p, err := i.client.Output(ctx, cell, at, 0)
		switch {
		case err != nil:
			return err
		case !p.Kept, p.Next == at && !p.EOF:
			return fmt.Errorf("the output of cell %s is not kept at %d of %d bytes", cell, at, p.Size)
		case p.EOF && p.Next != printBytes:
			return fmt.Errorf("the output of cell %s ends at %d", cell, p.Next)
		case p.EOF:
			return nil
		}
		at = p.Next
	}
}

// writer is a python that writes 10 MB into a pipe for each line that it is sent.
type writer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWriter(ctx context.Context, code string) (*writer, error) {
	cmd := exec.CommandContext(ctx, python, "-I", "-c", "import subprocess, sys\nfor line in sys.stdin:\n    "+code+"\n    sys.stdout.flush()")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &writer{cmd, in, bufio.NewReaderSize(out, 64<<10)}, cmd.Start()
}

func (w *writer) round() (time.Duration, error) {
	began := time.Now()
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		return 0, err
	}
	_, err := io.CopyN(io.Discard, w.out, printBytes)
	return time.Since(began), err
}

func (w *writer) end() error {
	return errors.Join(w.in.Close(), w.cmd.Wait())
}
