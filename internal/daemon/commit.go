package daemon

import (
	"soma/internal/crash"
	"soma/internal/neuron"
	"soma/internal/process"
	"soma/wire"
)

// pointOf names the crash point that lies between the commit of an event and anybody hearing of it.
var pointOf = map[string]crash.Name{
	wire.InputAdmitted: crash.AdmitCommitted,
	wire.StepStarted:   crash.DispatchCommitted,
	wire.StepEnded:     crash.AnswerCommitted,
	wire.ToolResult:    crash.ResultCommitted,
	wire.ProcessExited: crash.EndCommitted,
}

// committed is called after each commit, in commit order: followers see the events, the scheduler who is ready, and the
// python kernels get their frames. It does not block.
func (d *daemon) committed(group []*neuron.Record) {
	for _, r := range group {
		for _, op := range r.Ops {
			if e, ok := op.(*process.Event); ok {
				if name, ok := pointOf[e.Kind]; ok {
					crash.Point(name)
				}
			}
		}
	}
	for _, r := range group {
		for _, op := range r.Ops {
			switch op := op.(type) {
			case *process.Event:
				d.events.publish(op.Event)
			case *process.MarkRemoving:
				d.events.gone(op.Session)
				d.shells.EndSession(op.Session)
			}
			d.host.Committed(op)
		}
		d.sup.Committed(r.Ops)
		d.view.Committed(r.Ops)
	}
}

func (d *daemon) output(kernel, cell string, offset int64, text string) {
	if session := d.host.SessionOfCell(cell); session != "" {
		d.events.live(session, wire.CellOutput, wire.OutputEvent{Cell: cell, Offset: offset, Text: text})
	}
}
