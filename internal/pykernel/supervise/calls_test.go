package supervise_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/pykerneltest"
	"soma/internal/pykernel/supervise"
)

// host answers host calls and counts them.
type host struct {
	mu     sync.Mutex
	ran    map[string]int // by call id
	last   supervise.Call
	policy neuron.Policy
	block  chan struct{} // if set, a call waits for it or for the end of its context
	begun  chan struct{} // gets a value when a call begins
}

func newHost() *host {
	return &host{ran: map[string]int{}, policy: neuron.Idempotent, begun: make(chan struct{}, 100)}
}

func (h *host) Policy(string) neuron.Policy { return h.policy }

func (h *host) Call(ctx context.Context, c supervise.Call) (json.RawMessage, *pykernel.CallError) {
	h.mu.Lock()
	h.ran[c.ID]++
	h.last = c
	block := h.block
	h.mu.Unlock()
	select {
	case h.begun <- struct{}{}:
	default:
	}
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
		}
	}
	if c.Method == "test.panic" {
		panic("a route's mistake")
	}
	if c.Method != "test.echo" {
		return nil, &pykernel.CallError{Code: "not_found", Message: "no " + c.Method}
	}
	return c.Args, nil
}

// call is the code of a cell that makes one host call and shows what came of it.
func call(method, args string) string {
	return fmt.Sprintf(`import sys
h = sys.modules['soma_host']
try:
    r = repr(await h._calls.call(%q, %s))
except h.HostError as e:
    r = e.code + ': ' + str(e)
r`, method, args)
}

// P-026, P-020: a host call is decoded once, routed, and answered once; what nobody routes is refused in the same shape.
func TestHostCalls(t *testing.T) {
	host := newHost()
	h := pykerneltest.New(t, func(o *supervise.Options) { o.Host = host })
	kernel, cell := h.Open("a", call("test.echo", "{'a': [1, None, 'é']}"))
	value(t, h.Outcome(cell), `"{'a': [1, None, 'é']}"`)
	value(t, h.Outcome(h.Run("a", kernel, call("test.none", "1"), time.Minute)), `'not_found: no test.none'`)
	value(t, h.Outcome(h.Run("a", kernel, call("test.panic", "1"), time.Minute)), `'internal: test.panic panicked'`)
	h.Outcome(h.Run("a", kernel, "1", time.Minute))
	h.Outcome(h.Run("a", kernel, "1", time.Minute))
	if n := h.Count(`select count(*) from kernel_call`); n != 0 {
		t.Errorf("%d rows of answered calls are left", n)
	}
	for id, n := range host.ran {
		if n != 1 {
			t.Errorf("call %s ran %d times", id, n)
		}
	}
}

// P-026: a call without a method or arguments is answered, and without a host every call is.
func TestHostCallsWithoutHost(t *testing.T) {
	h := pykerneltest.New(t, nil)
	kernel, cell := h.Open("a", call("any.thing", "1"))
	value(t, h.Outcome(cell), `'not_found: no host call "any.thing"'`)
	invalid := `import sys, asyncio
c = sys.modules['soma_host']._calls
import soma_host
real = soma_host.encode
soma_host.encode = lambda body: real({k: v for k, v in body.items() if k != 'args'})
try:
    await c.call('any.thing', 1)
except soma_host.HostError as e:
    r = e.code + ': ' + str(e)
finally:
    soma_host.encode = real
r`
	value(t, h.Outcome(h.Run("a", kernel, invalid, time.Minute)), `'invalid: invalid host request'`)
}

// P-020: a call that a dead daemon had begun runs again where that does no harm, and is unknown where it might.
func TestHostCallsAfterARestart(t *testing.T) {
	for _, c := range []struct {
		policy neuron.Policy
		want   string
		runs   int
	}{
		{neuron.Idempotent, `'7'`, 2},
		{neuron.Once, `'unknown: result unknown: the daemon ended while the call ran'`, 1},
	} {
		host := newHost()
		host.policy, host.block = c.policy, make(chan struct{})
		h := pykerneltest.New(t, func(o *supervise.Options) { o.Host = host })
		_, cell := h.Open("a", call("test.echo", "7"))
		<-host.begun
		h.Stop()
		host.block = nil
		h.Start()
		value(t, h.Outcome(cell), c.want)
		for id, n := range host.ran {
			if n != c.runs {
				t.Errorf("%s: call %s ran %d times, want %d", c.policy, id, n, c.runs)
			}
		}
	}
}

// P-020: a call that belongs to no cell lives until it is answered, also by the next daemon; a route that only reaches neurons finds
// the owner's branch and session with it, and an id that is the call's for ever.
func TestHostCallsBesideCells(t *testing.T) {
	host := newHost()
	host.block = make(chan struct{})
	h := pykerneltest.New(t, func(o *supervise.Options) { probed(o); o.Host = host })
	kernel, cell := h.Open("a", "answer = probe.api.start_call('test.echo', [1, 2])\n1")
	value(t, h.Outcome(cell), "1") // it ends before its call does
	<-host.begun
	h.Stop()
	host.block = nil
	h.Start()
	value(t, h.Outcome(h.Run("a", kernel, "await answer", time.Minute)), "[1, 2]")
	host.mu.Lock()
	defer host.mu.Unlock()
	if len(host.ran) != 1 || host.last.Cell != "" || host.last.Session != "s-a" || host.last.Branch.String() != kernel || host.last.Kernel != kernel {
		t.Errorf("%d calls, the last one %+v", len(host.ran), host.last)
	}
}
