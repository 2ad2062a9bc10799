package cli

import (
	"context"
	"encoding/json"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/wire"
)

// watch shows a process's events after a cursor until e says that it is done. Its error is the exit code; an end of ctx
// detaches.
func (a *app) watch(ctx context.Context, pid uint64, session string, from wire.Cursor, e *ending) error {
	show, finish := a.viewer(ctx, false)
	err := a.follow(ctx, session, from, func(f client.Frame) error {
		if err := show(f); err != nil {
			return err
		}
		if err := a.judge(ctx, e, pid, f); err != nil {
			return err
		}
		if e.done {
			return client.ErrEnough
		}
		if e.attach && f.Event != nil && f.Event.Kind == wire.TurnEnded && e.reason == onInput {
			a.say(needsInput, pid, pid, pid)
		}
		return nil
	})
	if err := finish(); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		does := "works on"
		if e.state == wire.Blocked && e.reason == onInput {
			does = "waits for input"
		}
		a.say("detached; process %d %s; soma attach %d shows it again", pid, does, pid)
		return exit.Quiet(exit.OK)
	case err != nil:
		return exit.Stopped(err, "soma attach %d", pid)
	}
	if e.waits {
		a.say(needsInput, pid, pid, pid)
	}
	return exit.Quiet(e.code)
}

// judge lets e see a frame; after a reset, which may have passed over the end of the process, it asks for the process.
func (a *app) judge(ctx context.Context, e *ending, pid uint64, f client.Frame) error {
	switch {
	case f.Event != nil && f.Event.PID == pid:
		return e.event(*f.Event)
	case f.Reset != nil:
		p, err := a.client.Process(ctx, pid)
		if err == nil && p.ExitCode != nil {
			e.done, e.code = true, *p.ExitCode
		}
		return err
	}
	return nil
}

// viewer returns what shows frames in the form that was asked for, and what ends the showing. With whole, long inputs and
// code are not folded.
func (a *app) viewer(ctx context.Context, whole bool) (show func(client.Frame) error, finish func() error) {
	if a.asJSON {
		return a.frameJSON, func() error { return nil }
	}
	t := newTranscript(a.screen())
	t.whole, t.picture = whole, a.pictures(ctx)
	if isTerminal(a.Out) {
		p := newPulse(t)
		a.endLine = p.endLine
		return p.frame, p.finish
	}
	a.endLine = func() error {
		t.s.endLine()
		return t.s.flush()
	}
	return t.frame, t.finish
}

// live is a live event in JSON: like a wire.Event without what only committed ones have.
type live struct {
	Kind string `json:"kind"`
	Body any    `json:"body"`
}

// frameJSON prints a frame as one line.
func (a *app) frameJSON(f client.Frame) error {
	switch {
	case f.Event != nil:
		return a.printJSON(f.Event)
	case f.Delta != nil:
		return a.printJSON(live{wire.Delta, f.Delta})
	case f.Output != nil:
		return a.printJSON(live{wire.CellOutput, f.Output})
	case f.Reset != nil:
		return a.printJSON(live{wire.Reset, f.Reset})
	}
	return nil
}

// until shows a session's events after a cursor up to the event with sequence last.
func (a *app) until(ctx context.Context, session string, from wire.Cursor, last uint64, fn func(client.Frame) error) error {
	if from.Seq >= last {
		return nil
	}
	return a.follow(ctx, session, from, func(f client.Frame) error {
		if f.Event != nil || f.Reset != nil {
			if err := fn(f); err != nil {
				return err
			}
		}
		if f.Cursor.Seq >= last {
			return client.ErrEnough
		}
		return nil
	})
}

// turnStart finds the cursor before the newest agent turn, or for a session without agents before its newest cell, among
// the events up to last. Without one it is the beginning.
func (a *app) turnStart(ctx context.Context, session string, last uint64) (wire.Cursor, error) {
	var at, before wire.Cursor
	err := a.until(ctx, session, wire.Cursor{}, last, func(f client.Frame) error {
		if f.Event != nil && begins(*f.Event) {
			at = before
		}
		before = f.Cursor
		return nil
	})
	return at, err
}

func begins(e wire.Event) bool {
	switch e.Kind {
	case wire.CellStarted:
		return true
	case wire.StepStarted:
		var b wire.StepStartedEvent
		return json.Unmarshal(e.Body, &b) == nil && b.Turn
	}
	return false
}

// notFound is the error for a process that a person did not name right.
func notFound(format string, args ...any) error {
	return exit.Faultf(exit.NotFound, "see soma ps -a", format, args...)
}
