package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"soma/ident"
	"soma/internal/pykernel"
)

// Waits for an answer of a python kernel (P-051, P-025), and how many asks of one may wait.
const (
	askWait  = 10 * time.Second
	stopWord = 15 * time.Second
	maxAsks  = 64
)

// Why an ask has no answer. After ErrUnanswered the python kernel may still do what it was asked.
var (
	ErrUnknownKernel = errors.New("no such python kernel lives here")
	ErrUnreachable   = errors.New("the python kernel cannot be reached now")
	ErrUnanswered    = errors.New("the python kernel has not answered")
	ErrStale         = errors.New("the python kernel runs sources of another build")
)

// Refused is the python kernel's own no to an ask.
type Refused struct{ Code, Text string }

func (r *Refused) Error() string { return r.Text }

// Ask asks a python kernel and waits for its answer, up to 10 s. The type and the fields of ask are the caller's, its id is given
// here. Nothing is queued for one that cannot be reached. Errors: *Refused; ErrUnknownKernel, ErrUnreachable, ErrStale,
// ErrUnanswered, ErrOutboxFull, those of the commit, each wrapped.
func (s *Supervisor) Ask(ctx context.Context, kernel string, ask pykernel.Ask) (pykernel.Answer, error) {
	return s.ask(ctx, kernel, ask, askWait)
}

func (s *Supervisor) ask(ctx context.Context, kernel string, ask pykernel.Ask, wait time.Duration) (pykernel.Answer, error) {
	fail := func(err error) (pykernel.Answer, error) {
		return pykernel.Answer{}, fmt.Errorf("cannot ask for %s: %w", ask.Type, err)
	}
	k := s.find(kernel)
	if k == nil {
		return fail(ErrUnknownKernel)
	}
	if err := s.Room(kernel); err != nil {
		return fail(err)
	}
	now := s.opt.Now()
	ask.ID = ident.New(now).String()
	answer, err := k.expect(ask.ID)
	if err != nil {
		return fail(err)
	}
	defer k.unexpect(ask.ID)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w within %s", ErrUnanswered, wait))
	defer cancel()
	f, err := pykernel.NewFrame(k.id, "", ask, now)
	if err == nil {
		ops, forget := k.riders()
		if err = s.opt.Neurons.Write(ctx, k.place, append(ops, f)...); err == nil {
			forget()
		}
	}
	switch {
	case errors.Is(err, pykernel.ErrKernelEnded):
		return fail(ErrUnreachable)
	case err != nil:
		return fail(err)
	}
	select {
	case a := <-answer:
		if !a.OK {
			return a, &Refused{Code: a.Code, Text: a.Error}
		}
		return a, nil
	case <-k.stop: // it ends
		return fail(ErrUnreachable)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
}

// expect makes room for the answer to an ask, where the python kernel can be asked.
func (k *kernel) expect(id string) (<-chan pykernel.Answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.phase != attached || k.reason != "":
		return nil, ErrUnreachable
	case k.stale():
		return nil, ErrStale
	case len(k.asks) >= maxAsks:
		return nil, &Refused{Code: pykernel.CodeBusy, Text: fmt.Sprintf("%d questions wait for the python kernel", len(k.asks))}
	}
	answer := make(chan pykernel.Answer, 1)
	k.asks[id] = answer
	return answer, nil
}

func (k *kernel) unexpect(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.asks, id)
}

// answered hands an answer to who waits for it. One that comes too late, or again, is dropped.
func (k *kernel) answered(a *pykernel.Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if waiting := k.asks[a.ID]; waiting != nil {
		delete(k.asks, a.ID)
		waiting <- *a
	}
}
