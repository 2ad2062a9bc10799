package supervise_test

import (
	"context"
	"encoding/json"
	"sync"

	"soma/internal/neuron"
	"soma/internal/pykernel"
	"soma/internal/pykernel/supervise"
)

// host answers host calls and counts them.
type host struct {
	mu     sync.Mutex
	ran    map[string]int // by call id
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
	if c.Method != "test.echo" {
		return nil, &pykernel.CallError{Code: "not_found", Message: "no " + c.Method}
	}
	return c.Args, nil
}
