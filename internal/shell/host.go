package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"soma/ident"
	"soma/internal/lifecycle"
	"soma/internal/neuron"
	"soma/wire"
)

// Kind is the kind of the neurons whose executions, of the same kind, are the commands of a session; their key is the session's
// id.
const Kind = "shell"

// Bounds of one session.
const (
	maxLive = 8   // commands at one time
	maxKept = 256 // rows of commands that have ended
)

// Neurons is what the host asks of the engine.
type Neurons interface {
	// Deliver returns when the delivery's turn is committed; a refusal is a *neuron.Refusal.
	Deliver(ctx context.Context, d neuron.Delivery) error
}

// Options are the parts of a Host; all are needed.
type Options struct {
	Owner  string
	Reader neuron.Reader
	Dir    string          // where the outputs are kept
	Env    func() []string // of the commands
	Now    func() time.Time
	Log    *slog.Logger
}

// Host runs commands. It is safe for use from many goroutines.
type Host struct {
	o       Options
	neurons Neurons
	tasks   lifecycle.Tasks
	grace   time.Duration // between the signals that end a command

	mu   sync.Mutex
	live map[string]map[ident.ID]context.CancelFunc // commands that run here, by session
}

// New returns a host; wire its Neuron and Adapter into an engine, and Bind that before it starts.
func New(o Options) *Host {
	return &Host{o: o, grace: 2 * time.Second, live: map[string]map[ident.ID]context.CancelFunc{}}
}

// Bind gives the host the engine.
func (h *Host) Bind(n Neurons) { h.neurons = n }

// Start begins to remove outputs that are older than two weeks. ctx bounds the removal too.
func (h *Host) Start(ctx context.Context) error { return h.tasks.Go(ctx, "old shell output", h.sweep) }

// Stop waits for what the host runs by itself; commands end with the engine.
func (h *Host) Stop(ctx context.Context) error { return h.tasks.Stop(ctx) }

func neuronOf(owner, session string) neuron.ID {
	return neuron.ID{Owner: owner, Kind: Kind, Key: session}
}

// execution is the id of a command's execution, and names its output.
func execution(session, id string) ident.ID { return ident.Named("shell:"+session, id).WithAttempt(0) }

// folder is where the outputs of a session are.
func (h *Host) folder(session string) string {
	return filepath.Join(h.o.Dir, ident.Named("shell", session).String())
}

func (h *Host) file(session, id string) string {
	return filepath.Join(h.folder(session), execution(session, id).String()+".txt")
}

// Run runs a command in the workspace of a session, once for each id that the client chooses; it returns when the command is
// committed, not when it has ended. Errors: *wire.Error with not_found, gone, session_closed, conflict for an id that is taken by
// another command, busy, bad_request; those of the engine.
func (h *Host) Run(ctx context.Context, session, id string, req wire.RunShell) (wire.ShellCommand, error) {
	if req.TimeoutMS == 0 {
		req.TimeoutMS = wire.MaxShellTime.Milliseconds()
	}
	switch {
	case req.TimeoutMS < 0 || req.TimeoutMS > wire.MaxShellTime.Milliseconds():
		return wire.ShellCommand{}, wire.Errorf(wire.BadRequest, "timeout_ms is not from 1 to %d", wire.MaxShellTime.Milliseconds())
	case strings.TrimSpace(req.Command) == "" || strings.ContainsRune(req.Command, 0) || !utf8.ValidString(req.Command):
		return wire.ShellCommand{}, wire.Errorf(wire.BadRequest, "the command is empty, or no text")
	case len(req.Command) > wire.MaxShellLine:
		return wire.ShellCommand{}, wire.Errorf(wire.TooLarge, "the command is larger than %d bytes", wire.MaxShellLine)
	}
	if err := h.session(ctx, session); err != nil { // no neuron is made for a session that there is not
		return wire.ShellCommand{}, err
	}
	if err := h.deliver(ctx, session, runType.Alias(), run{ID: id, RunShell: req}); err != nil {
		return wire.ShellCommand{}, err
	}
	c, err := h.Command(ctx, session, id)
	if err == nil && c.Command != req.Command {
		return wire.ShellCommand{}, taken(id)
	}
	return c, err
}

func taken(id string) *wire.Error {
	return wire.Errorf(wire.Conflict, "%s was already sent with another command", id).Do("choose another id")
}

// Command returns a command of a session. Error: *wire.Error with not_found.
func (h *Host) Command(ctx context.Context, session, id string) (wire.ShellCommand, error) {
	c, err := find(ctx, h.o.Reader, session, id)
	if err == nil && c == nil {
		err = wire.Errorf(wire.NotFound, "there is no shell command %s", id)
	}
	if err != nil {
		return wire.ShellCommand{}, err
	}
	return *c, nil
}

// Interrupt ends a command with all that it has started; on one that has ended it does nothing. Errors: those of Command and of
// the engine.
func (h *Host) Interrupt(ctx context.Context, session, id string) (wire.ShellCommand, error) {
	c, err := h.Command(ctx, session, id)
	if err != nil || c.State == ended {
		return c, err
	}
	if err := h.deliver(ctx, session, stopType.Alias(), stop{ID: id}); err != nil {
		return c, err
	}
	return h.Command(ctx, session, id)
}

// session refuses what is no session, or was one.
func (h *Host) session(ctx context.Context, session string) error {
	found := false
	err := h.o.Reader.Query(ctx, `select 1 from session where id = ?`, []any{session}, func(func(...any) error) error { found = true; return nil })
	if err == nil && !found {
		err = wire.Errorf(wire.NotFound, "there is no session %s", session)
	}
	return err
}

func (h *Host) deliver(ctx context.Context, session, alias string, msg any) error {
	d, err := neuron.NewType[any](alias).New(neuronOf(h.o.Owner, session), msg, h.o.Now())
	if err != nil {
		return err
	}
	err = h.neurons.Deliver(ctx, d)
	var refused *neuron.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		code, ok := codes[refused.Code]
		if !ok {
			code = wire.Internal
		}
		text := string(refused.Code)
		if refused.Err != nil {
			text = refused.Err.Error()
		}
		return wire.Errorf(code, "%s", text)
	case errors.Is(err, neuron.ErrBusy):
		return wire.Errorf(wire.Busy, "too much waits for it").Do("try again")
	case errors.Is(err, neuron.ErrFenced), errors.Is(err, neuron.ErrNotOwner):
		return wire.Errorf(wire.Unavailable, "ownership is moving between daemons").Do("try again")
	case errors.Is(err, neuron.ErrStopped):
		return wire.Errorf(wire.Stopping, "the daemon is stopping").Do("try again when it is back")
	}
	return fmt.Errorf("cannot reach the shell of session %s: %w", session, err)
}
