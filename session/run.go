package session

import (
	"context"
	"errors"

	"soma/ident"
)

// runOf is the key under which a context says that it belongs to a run of a branch.
type runOf struct{ branch *Branch }

type opKey struct{}

// WithOp names what the signals emitted under the context belong to, such as a node of a flow.
func WithOp(ctx context.Context, op string) context.Context {
	return context.WithValue(ctx, opKey{}, op)
}

// OpOf returns what WithOp named, or the id of the run that the context belongs to; empty without either.
func OpOf(ctx context.Context) string {
	op, _ := ctx.Value(opKey{}).(string)
	return op
}

// Run works on the branch, and lets the observer know: RunStart, then work, then exactly one of RunEnd and RunFailed, also
// when the context ends, or work panics (the error wraps ErrPanic then) or ends its goroutine. Within a run of the same branch
// (work's context says so) it only calls work, and a panic is an error there too. Run returns when work does: ending the
// context asks it to.
func (b *Branch) Run(ctx context.Context, name string, work func(ctx context.Context) (any, error)) (any, error) {
	if ctx.Value(runOf{b}) != nil {
		return safely(ctx, work)
	}
	run := ident.New(b.now())
	ctx = context.WithValue(ctx, runOf{b}, run)
	if OpOf(ctx) == "" {
		ctx = WithOp(ctx, run.String())
	}
	// The end is told to whom the start was told, even if the branch leaves its session meanwhile.
	observer := b.Observer()
	tell := func(ctx context.Context, s Signal) {
		if observer != nil {
			observer.SafeEmit(ctx, s)
		}
	}
	began := b.now()
	meta := Envelope{Op: OpOf(ctx)}
	tell(ctx, RunStart{Envelope: meta, Run: run, Branch: b.id, Name: name, User: b.person(ctx)})
	result, err := any(nil), errGone
	defer func() { // also where work ends its goroutine
		took := b.now().Sub(began)
		ctx := context.WithoutCancel(ctx) // who is told of the end can still work
		if err != nil {
			tell(ctx, RunFailed{Envelope: meta, Run: run, Branch: b.id, Name: name, Took: took, Error: err.Error()})
			return
		}
		tell(ctx, RunEnd{Envelope: meta, Run: run, Branch: b.id, Name: name, Took: took})
	}()
	result, err = safely(ctx, work)
	return result, err
}

var errGone = errors.New("the run ended its goroutine")

func safely(ctx context.Context, work func(ctx context.Context) (any, error)) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("the run", v)
		}
	}()
	return work(ctx)
}

// person is for whom something is done: who the input names, else the session's.
func (b *Branch) person(ctx context.Context) string {
	if user := UserOf(ctx); user != "" {
		return user
	}
	if owner := b.at.Load().owner; owner != nil {
		return owner.User()
	}
	return ""
}
