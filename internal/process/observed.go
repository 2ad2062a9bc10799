package process

import (
	"time"

	"soma/ident"
	"soma/internal/neuron"
	"soma/internal/process/cells"
	"soma/internal/pykernel"
	"soma/message"
)

// Bill is one attempt at an inference as its ledger row has it, for diagnosis.
type Bill struct {
	ID              ident.ID // of the execution, with the attempt
	Cause           pykernel.Cause
	Provider, Model string
	Outcome         string
	Usage           message.Usage
	Cost            *int64 // nano-dollars, nil where nobody knows the price
	Began, Ended    time.Time
}

// CellEnd is one cell that has ended, for diagnosis.
type CellEnd struct {
	ID     string
	Cause  pykernel.Cause
	Status pykernel.CellStatus
	Ended  time.Time
	Took   time.Duration
}

// handedOn is the cause that an outcome carries: the turn that started what has ended.
func handedOn(t *neuron.Turn) pykernel.Cause {
	d := t.Delivery()
	return pykernel.Cause{Correlation: d.Correlation, Causation: d.Causation}
}

func (h *Host) billed(o *insertLedger) {
	if h.o.Billed == nil {
		return
	}
	h.o.Billed(Bill{ID: o.id, Cause: o.cause, Provider: o.provider, Model: o.model, Outcome: o.outcome, Usage: o.usage, Cost: o.cost,
		Began: o.startedAt, Ended: o.at})
}

func (h *Host) cellEnded(o *cells.End) {
	if h.o.CellEnded == nil {
		return
	}
	h.o.CellEnded(CellEnd{ID: o.Ended.Cell, Cause: o.Cause, Status: o.Ended.Status, Ended: o.At,
		Took: time.Duration(o.Ended.DurationMS) * time.Millisecond})
}
