package lifecycle

import (
	"context"
	"os"
	"os/signal"
)

// SignalContext returns the root context of a program. It is done at the first of the signals (with none given: at no
// signal); from then on a signal has its default effect again, so that a second Ctrl-C ends a program that hangs.
// The returned function frees the signals and ends the context.
func SignalContext(signals ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	if len(signals) == 0 {
		return ctx, cancel
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	unhook := context.AfterFunc(ctx, stop)
	return ctx, func() { unhook(); stop(); cancel() }
}
