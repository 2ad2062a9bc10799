package folder

import (
	"context"
	"errors"
	"sync"
	"time"

	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/cli/prompt"
	"soma/internal/cli/shell"
	"soma/wire"
)

// arriving is the pause between two tries to interrupt a command that has not arrived yet.
const arriving = 50 * time.Millisecond

// Show shows a cell of a session from a cursor before it until it has ended, with its code and what it wrote before if that is
// asked for. Its error is that of following it.
type Show func(ctx context.Context, session string, from wire.Cursor, cell string, code bool) error

// Kernel is the python kernel of the folder one stands in, as the prompt sees it.
type Kernel struct {
	Program Program
	Show    Show
	// Python is the interpreter that was asked for; Fresh says that a kernel that is there is ended first.
	Python string
	Fresh  bool
	// Timeout ends each cell; 0: the daemon's own.
	Timeout time.Duration

	session wire.Session
	mu      sync.Mutex
	shown   chan struct{} // closed when interrupt can be called; nil while nothing is shown
	stop    func(context.Context) error
}

func (k *Kernel) Open(ctx context.Context) (g prompt.Greeting, err error) {
	p := k.Program
	dir, err := p.Workspace()
	if err != nil {
		return g, err
	}
	if k.session, err = Session(ctx, p, dir, k.Python, k.Fresh); err != nil {
		return g, err
	}
	k.Python, k.Fresh = "", false // they were for this one
	g.Python, g.Folder = k.session.Python, dir
	if found, err := p.Python(ctx, k.session.Python, dir); err == nil {
		g.Python = found.Version()
	}
	var v wire.KernelView
	if err = p.Keep(ctx, func() (err error) { v, err = p.Client().Kernel(ctx, k.session.Branch); return err }); err != nil {
		return g, err
	}
	if g.Live = v.Kernel != nil; g.Live {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, names := k.Complete(limited, "", 0)
		g.Names, g.More = len(names), len(names) == wire.MaxNames
	}
	if v.LiveJobs != nil {
		g.Jobs = *v.LiveJobs
	}
	return g, nil
}

func (k *Kernel) Unfinished(ctx context.Context) (ids []string, err error) {
	open, err := OpenCells(ctx, k.Program, k.session.ID, k.session.LastEvent)
	for _, c := range open {
		ids = append(ids, c.ID)
	}
	return ids, err
}

func (k *Kernel) Watch(ctx context.Context, cell string) error {
	open, err := OpenCells(ctx, k.Program, k.session.ID, k.session.LastEvent)
	if err != nil {
		return err
	}
	for _, c := range open {
		if c.ID == cell {
			return k.show(ctx, c.From, cell, true)
		}
	}
	return nil // it has ended
}

func (k *Kernel) Run(ctx context.Context, code string) error {
	p := k.Program
	k.begin()
	defer k.end()
	s, cell, err := Run(ctx, p, wire.RunCell{Code: code, TimeoutMS: k.Timeout.Milliseconds()}, "", false)
	if err != nil {
		return err
	}
	if s.ID != k.session.ID {
		p.Say("this folder's kernel was ended meanwhile; this is a fresh one without its names")
	}
	k.session = s
	SayQueued(ctx, p, s.ID)
	return k.show(ctx, wire.Cursor{Seq: s.LastEvent}, cell.ID, false)
}

// show follows a cell, which can be interrupted from now on.
func (k *Kernel) show(ctx context.Context, from wire.Cursor, cell string, code bool) error {
	p := k.Program
	k.begin()
	defer k.end()
	k.ready(func(ctx context.Context) error {
		return p.Keep(ctx, func() error { _, err := p.Client().InterruptCell(ctx, cell); return err })
	})
	err := k.Show(ctx, k.session.ID, from, cell, code)
	if ctx.Err() != nil {
		p.Say("the cell runs on")
	}
	return err
}

func (k *Kernel) Shell(ctx context.Context, command string) error {
	p := k.Program
	id := ident.New(time.Now()).String()
	k.begin()
	defer k.end()
	k.ready(func(ctx context.Context) error {
		for {
			err := p.Keep(ctx, func() error { _, err := p.Client().InterruptShell(ctx, k.session.ID, id); return err })
			var refusal *wire.Error
			if !errors.As(err, &refusal) || refusal.Code != wire.NotFound {
				return err
			}
			select { // it is on its way
			case <-time.After(arriving):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	err := shell.Run(ctx, p, k.session.ID, id, command)
	if quiet := exit.Quiet(0); errors.As(err, &quiet) {
		return nil // it was said
	}
	return err
}

// begin says that there will be something to interrupt, ready what to do then, end that it is over.
func (k *Kernel) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shown == nil {
		k.shown = make(chan struct{})
	}
}

func (k *Kernel) ready(stop func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop = stop
	close(k.shown)
}

func (k *Kernel) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shown, k.stop = nil, nil
}

func (k *Kernel) Interrupt(ctx context.Context) error {
	k.mu.Lock()
	shown := k.shown
	k.mu.Unlock()
	if shown == nil {
		return nil
	}
	select {
	case <-shown:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	stop := k.stop
	k.mu.Unlock()
	if stop == nil {
		return nil
	}
	return stop(ctx)
}

func (k *Kernel) Complete(ctx context.Context, text string, cursor int) (start int, names []string) {
	found, err := k.Program.Client().Complete(ctx, k.session.Branch, text, cursor)
	if err != nil {
		return cursor, nil
	}
	return found.Start, found.Names
}
