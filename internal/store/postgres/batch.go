package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"soma/internal/crash"
	"soma/internal/neuron"
)

// step is one statement of a group, ready to be sent.
type step struct {
	p      *prepared
	values [][]byte
	record int    // whose it is; none for the group's own
	guard  error  // what a statement made by exactlyOne fails with
	what   string // for errors
}

const none = -1

// batch is the statements of a group in the order in which they run. The first error stops it.
type batch struct {
	s     *session
	texts *texts
	steps []step
}

// add appends a statement. An error of its text or arguments is one of the record.
func (b *batch) add(ctx context.Context, record int, what, text string, args ...any) error {
	return b.push(ctx, step{record: record, what: what}, b.texts.of(text), args)
}

// one appends a statement that must change exactly one row.
func (b *batch) one(ctx context.Context, record int, guard error, what, text string, args ...any) error {
	return b.push(ctx, step{record: record, what: what, guard: guard}, b.texts.one(text), args)
}

// op appends an operation of a record.
func (b *batch) op(ctx context.Context, record int, op neuron.Op) error {
	what := fmt.Sprintf("write %T", op)
	if g, ok := op.(neuron.Guarded); ok {
		return b.one(ctx, record, g.Guard(), what, op.SQL(), op.Args()...)
	}
	return b.add(ctx, record, what, op.SQL(), op.Args()...)
}

func (b *batch) push(ctx context.Context, st step, text string, args []any) (err error) {
	if st.p, err = b.s.prepare(ctx, text); err == nil {
		st.values, err = st.p.bind(args)
	}
	if err != nil {
		return b.blame(st, err, false)
	}
	b.steps = append(b.steps, st)
	return nil
}

// failed is an error with what it means.
type failed struct {
	fault fault
	err   error
}

func (f *failed) Error() string { return f.err.Error() }
func (f *failed) Unwrap() error { return f.err }

// blame lays an error to its record where the record is at fault. sent tells whether the group was on its way.
func (b *batch) blame(st step, err error, sent bool) error {
	what := blamed
	var pe *pgconn.PgError
	switch {
	case errors.As(err, &pe) || sent:
		what = judge(err, false)
	case b.s.c.IsClosed():
		what = transient // it broke before anything was sent
	}
	if what != blamed || st.record == none {
		return &failed{what, fmt.Errorf("cannot %s: %w", st.what, err)}
	}
	if st.guard != nil && hasCode(err, divisionByZero) {
		err = st.guard
	} else {
		err = fmt.Errorf("cannot %s: %w", st.what, err)
	}
	return &neuron.RecordError{Index: st.record, Err: err}
}

// run sends all statements and the Sync that commits them in one go, and waits for the answer. The server commits at the
// Sync if all went well, and rolls back what went before an error.
func (b *batch) run(ctx context.Context) error {
	p := b.s.c.StartPipeline(ctx)
	for i := range b.steps {
		st := &b.steps[i]
		p.SendQueryPrepared(st.p.name, st.values, st.p.forms, st.p.results)
	}
	var err error
	if serr := p.Sync(); serr != nil {
		err = &failed{judge(serr, false), serr}
	} else {
		crash.Point(crash.GroupSent)
		err = b.results(p)
	}
	if cerr := p.Close(); cerr != nil && err == nil {
		err = &failed{judge(cerr, true), cerr}
	}
	return err
}

func (b *batch) results(p *pgconn.Pipeline) error {
	for i := range b.steps {
		r, err := p.GetResults()
		if rr, ok := r.(*pgconn.ResultReader); ok && err == nil {
			_, err = rr.Close()
		}
		if err != nil {
			return b.blame(b.steps[i], err, true)
		}
	}
	r, err := p.GetResults()
	if err != nil {
		return &failed{judge(err, true), err}
	}
	if _, ok := r.(*pgconn.PipelineSync); !ok {
		return &failed{unknown, fmt.Errorf("the server answered %T in place of the end of the transaction", r)}
	}
	return nil
}
