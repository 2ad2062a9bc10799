package prompt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"soma/internal/cli/lineedit"
	"soma/internal/cli/pylines"
)

// Kernel is the python kernel of the folder as the prompt sees it. Run, Watch and Shell block until what they show has ended, or
// ctx has: then it runs on. Their errors are those of the way to it; how a cell ended is shown.
type Kernel interface {
	// Open tells what is there. It starts no kernel.
	Open(ctx context.Context) (Greeting, error)
	// Unfinished returns the ids of the cells that have not ended, the oldest first.
	Unfinished(ctx context.Context) ([]string, error)
	// Watch shows a cell that was given before, with its code.
	Watch(ctx context.Context, cell string) error
	// Run runs code as a cell and shows it.
	Run(ctx context.Context, code string) error
	// Shell runs a command in the folder and shows it.
	Shell(ctx context.Context, command string) error
	// Interrupt ends what Run, Watch or Shell shows. It is called while one of them runs.
	Interrupt(ctx context.Context) error
	// Complete returns what may stand in a text from start to the cursor, both in characters; nothing where it cannot tell.
	Complete(ctx context.Context, text string, cursor int) (start int, names []string)
}

// Greeting is what is known of the kernel at the start.
type Greeting struct {
	Python, Folder string
	Live           bool // there is a kernel already
	Names          int
	More           bool // there are more names than were counted
	Jobs           int
}

// Options say where a prompt reads and writes.
type Options struct {
	Kernel Kernel
	// Input gives what is typed; its end ends the loop. Resized gives word of another size.
	Input   <-chan []byte
	Resized <-chan os.Signal
	Size    func() (width, height int)
	Suspend func() error
	Screen  lineedit.Screen
	Out     io.Writer
	// Say writes one line to the person, Fail one about an error.
	Say  func(format string, args ...any)
	Fail func(err error)
	// History is read once and added to.
	History History
}

const (
	completeWait  = 300 * time.Millisecond
	interruptWait = 10 * time.Second
	// maxAhead bounds what is typed while something runs, in keys; more is dropped.
	maxAhead = 10_000
)

// loop is one run of the prompt.
type loop struct {
	Options
	editor  *lineedit.Editor
	decoder lineedit.Decoder
	ahead   []lineedit.Key // typed while something ran
	last    string         // of the history
}

// errLeft ends the loop: the person has left, or the program ends.
var errLeft = errors.New("left")

// Run reads, runs and shows until the person leaves, the input ends or ctx does. Its error is that of the first question to the
// kernel, or of the terminal.
func Run(ctx context.Context, o Options) error {
	l := &loop{Options: o}
	texts, err := o.History.Load()
	if err != nil {
		l.Fail(err)
	}
	if len(texts) > 0 {
		l.last = texts[len(texts)-1]
	}
	l.editor = lineedit.New(lineedit.Options{
		Prompt: ">>> ", More: "... ", Step: 4, Whole: whole, Indent: pylines.Indent, History: texts,
		Complete: func(text string, cursor int) (int, []string) {
			limited, cancel := context.WithTimeout(ctx, completeWait)
			defer cancel()
			return o.Kernel.Complete(limited, text, cursor)
		},
	})
	g, err := o.Kernel.Open(ctx)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(o.Out, banner(g)); err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	if err = l.finish(ctx); err == nil {
		err = l.rounds(ctx)
	}
	if errors.Is(err, errLeft) {
		l.Say("detached; names stay; soma py comes back to them")
		return nil
	}
	return err
}

func banner(g Greeting) string {
	first := fmt.Sprintf("python %s in %s: ", g.Python, g.Folder)
	switch {
	case !g.Live:
		first += "the first cell begins in a fresh kernel"
	default:
		more := ""
		if g.More {
			more = " and more"
		}
		first += many(g.Names, "name") + more + ", " + many(g.Jobs, "job")
	}
	return first + "\nCtrl-D detaches and the names stay; ? tells what else there is\n"
}

func many(n int, what string) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

const helping = `Enter runs what is whole; a block ends with an empty line. Alt-Enter begins a new line anywhere.
Up and Down go through the history, Ctrl-R searches it, Tab completes names.
Ctrl-C ends the cell that runs, the kernel and its names stay; at the prompt it drops the line.
Ctrl-D detaches: cells and jobs run on, names stay. soma py comes back to them, soma py --end ends the kernel.
?name shows how a name is called and what it says of itself. !command runs a shell command in the folder.
`

// finish shows the cells that were given before and have not ended.
func (l *loop) finish(ctx context.Context) error {
	cells, err := l.Kernel.Unfinished(ctx)
	if err != nil {
		return err
	}
	for i, cell := range cells {
		if i == 0 {
			l.Say("this still runs here; Ctrl-C ends it")
		}
		if err := l.attend(ctx, func(ctx context.Context) error { return l.Kernel.Watch(ctx, cell) }); err != nil {
			return err
		}
	}
	return nil
}

// rounds reads and does one thing after the other.
func (l *loop) rounds(ctx context.Context) error {
	for {
		text, err := l.edit(ctx)
		if err == nil {
			err = l.do(ctx, text)
		}
		if err != nil {
			return err
		}
	}
}

// do does what a text means.
func (l *loop) do(ctx context.Context, text string) error {
	text = strings.TrimRight(text, " \t\n")
	k, arg := meaning(text)
	if k != nothing {
		l.remember(text)
	}
	switch k {
	case leave:
		return errLeft
	case refused:
		l.Say("%s", arg)
	case help:
		if _, err := io.WriteString(l.Out, helping); err != nil {
			return fmt.Errorf("cannot write: %w", err)
		}
	case shell:
		return l.attend(ctx, func(ctx context.Context) error { return l.Kernel.Shell(ctx, arg) })
	case explain:
		return l.attend(ctx, func(ctx context.Context) error { return l.Kernel.Run(ctx, explaining(arg)) })
	case code:
		return l.attend(ctx, func(ctx context.Context) error { return l.Kernel.Run(ctx, text) })
	}
	return nil
}

func (l *loop) remember(text string) {
	if text == l.last || len(text) > maxHistory {
		return
	}
	l.last = text
	l.editor.Remember(text)
	if err := l.History.Add(text); err != nil {
		l.Fail(err)
	}
}

// edit reads a text.
func (l *loop) edit(ctx context.Context) (string, error) {
	l.editor.Reset()
	for {
		r, err := l.press()
		if err != nil || r == lineedit.Accepted {
			return l.editor.Text(), err
		}
		if err := l.Screen.Draw(l.view()); err != nil {
			return "", fmt.Errorf("cannot write: %w", err)
		}
		select {
		case b, ok := <-l.Input:
			if !ok {
				return "", l.quit()
			}
			l.ahead = append(l.ahead, l.decoder.Feed(b)...)
		case <-l.Resized:
			width, _ := l.Size()
			l.Screen.Resized(width)
		case <-ctx.Done():
			return "", l.quit()
		}
	}
}

func (l *loop) view() lineedit.View { return l.editor.View(l.Size()) }

// quit ends the line and the loop.
func (l *loop) quit() error {
	_ = l.Screen.Leave(l.view(), "") // the terminal may be gone
	return errLeft
}

// press gives the keys that are there to the editor, up to one that accepts the text.
func (l *loop) press() (lineedit.Result, error) {
	for len(l.ahead) > 0 {
		k := l.ahead[0]
		l.ahead = l.ahead[1:]
		var err error
		switch r := l.editor.Press(k); r {
		case lineedit.Accepted:
			err = l.Screen.Leave(l.view(), "")
			if err != nil {
				err = fmt.Errorf("cannot write: %w", err)
			}
			return r, err
		case lineedit.Interrupted:
			err = l.Screen.Leave(l.view(), "^C")
			l.editor.Reset()
		case lineedit.Ended:
			return r, l.quit()
		case lineedit.Cleared:
			err = l.Screen.Clear()
		case lineedit.Suspended:
			if err = l.Screen.Leave(l.view(), ""); err == nil {
				err = l.Suspend()
			}
		}
		if err != nil {
			return lineedit.Edited, fmt.Errorf("cannot write: %w", err)
		}
	}
	return lineedit.Edited, nil
}

// attend does something that takes its time, and takes the keys that are meant for it: Ctrl-C interrupts it, Ctrl-D leaves it
// behind. Other keys wait.
func (l *loop) attend(ctx context.Context, do func(context.Context) error) error {
	running, detach := context.WithCancel(ctx)
	defer detach()
	var interrupts sync.WaitGroup
	defer interrupts.Wait()
	defer detach() // before the wait
	done := make(chan error, 1)
	go func() { done <- do(running) }()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				l.Fail(err)
			}
			if ctx.Err() != nil {
				return errLeft
			}
			return nil
		case b, ok := <-l.Input:
			if !ok {
				detach()
				<-done
				return errLeft
			}
			for _, k := range l.decoder.Feed(b) {
				switch {
				case k.Kind == lineedit.Interrupt:
					l.ahead = nil
					interrupts.Go(func() { l.interrupt(running) })
				case k.Kind == lineedit.Leave && !slices.ContainsFunc(l.ahead, written):
					detach()
					<-done
					return errLeft
				case k.Kind == lineedit.Suspend:
					if err := l.Suspend(); err != nil {
						l.Fail(err)
					}
				case len(l.ahead) < maxAhead:
					l.ahead = append(l.ahead, k)
				}
			}
		}
	}
}

// written reports whether a key is something for the next prompt.
func written(k lineedit.Key) bool { return k.Kind == lineedit.Text || k.Kind == lineedit.Paste }

func (l *loop) interrupt(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, interruptWait)
	defer cancel()
	if err := l.Kernel.Interrupt(limited); err != nil && ctx.Err() == nil {
		l.Fail(err)
	}
}
