package session

import (
	"context"
	"errors"
	"sync"
)

// beside is one call of an asynchronous handler.
type beside struct {
	handler *Handler
	value   any
}

func (o *Observer) dispatch(ctx context.Context, subs []*subscription, e *emission, results *[]any) error {
	var later []beside
	if err := o.inOrder(ctx, subs, e, results, &later); err != nil || len(later) == 0 {
		return err
	}
	got, errs := make([]any, len(later)), make([]error, len(later))
	var wg sync.WaitGroup
	for i, b := range later {
		wg.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					errs[i] = caught("a handler", v)
				}
			}()
			got[i], errs[i] = b.handler.do(ctx, b.value, o)
		})
	}
	wg.Wait()
	if results != nil {
		*results = append(*results, got...)
	}
	return errors.Join(errs...)
}

// inOrder calls the synchronous handlers and gathers the asynchronous ones that match.
func (o *Observer) inOrder(ctx context.Context, subs []*subscription, e *emission, results *[]any, later *[]beside) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = caught("a handler", v)
		}
	}()
	for i, s := range subs {
		value, ok := s.match(e)
		switch {
		case !ok:
		case s.async:
			*later = append(*later, beside{s.handler, value})
		default:
			result, err := s.handler.do(ctx, value, o)
			if err != nil {
				return err
			}
			if results != nil {
				if *results == nil {
					*results = make([]any, 0, len(subs)-i)
				}
				*results = append(*results, result)
			}
		}
	}
	return nil
}
