package engine

import (
	"time"

	"soma/internal/neuron"
	"soma/internal/neuron/call"
	"soma/internal/neuron/observe"
)

// SystemAliases are those of the deliveries that the engine handles itself, whatever the kind of the target.
func SystemAliases() []string { return []string{endedAlias, call.LostAlias} }

// attempted tells the observer of an attempt that is over.
func (e *Engine) attempted(j *job, outcome string, refusal *neuron.Refusal, dead bool) {
	if e.observer == nil {
		return
	}
	d := &j.d
	a := observe.Attempt{
		ID: d.ID, Correlation: d.Correlation, Causation: d.Causation, Kind: d.Target.Kind, Alias: d.Alias, Number: j.attempts(),
		Outcome: outcome, Dead: dead, Began: j.began, Took: time.Since(j.began), Lag: -1,
	}
	if refusal != nil {
		a.Code = string(refusal.Code)
	}
	if j.row != nil {
		a.Lag = max(0, j.began.Sub(j.row.Due))
	}
	e.observer.Attempted(a)
}

// settledAttempts tells the observer of the turns of a committed group.
func (e *Engine) settledAttempts(group []*staged) {
	if e.observer == nil {
		return
	}
	for _, s := range group {
		switch {
		case s.a == nil:
		case s.refusal != nil:
			e.attempted(s.j, observe.AttemptRefused, s.refusal, len(s.rec.Dead) > 0)
		default:
			e.attempted(s.j, observe.AttemptCommitted, nil, false)
		}
	}
}

// ran tells the observer of the end of a run.
func (e *Engine) ran(x *neuron.Execution, status neuron.Status, recovered bool, began time.Time) {
	if e.observer == nil {
		return
	}
	r := observe.Run{
		ID: x.OutcomeID(), Correlation: x.Correlation, Causation: x.Causation, Kind: x.Kind, Status: string(status),
		Recovered: recovered, Began: began, Took: time.Since(began),
	}
	if e.stops() {
		r.Status = observe.RunStopped
	}
	e.observer.Ran(r)
}
