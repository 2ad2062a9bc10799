package daemon

import (
	"cmp"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"soma/internal/api"
	"soma/internal/neuron/engine"
	"soma/internal/neuron/observe"
	"soma/internal/process"
	"soma/internal/telemetry"
)

// observe makes the telemetry of what the engine is made of. What is wrong with the way of the traces is told in the log, and
// the daemon goes on without them.
func (d *daemon) observe(o *engine.Options) {
	handlers := map[string][]string{}
	for _, k := range o.Kinds {
		handlers[k.Name] = append(k.Aliases(), engine.SystemAliases()...)
	}
	var routes []string
	for _, r := range api.Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	d.telemetry = telemetry.New(telemetry.Options{
		Build: d.o.Build, Handlers: handlers, Executions: slices.Sorted(maps.Keys(o.Adapters)), Routes: routes, Sample: d.sample,
		Traces: d.traces(), Log: d.log,
	})
	o.Observer = observer{d.telemetry}
}

// traces says where spans go to, nil for nowhere.
func (d *daemon) traces() *telemetry.Traces {
	to := d.config.Telemetry
	header, err := d.config.TracesHeader(d.o.Env)
	if err = cmp.Or(to.Problem, err); err != nil {
		d.log.Warn("traces are not sent", "error", err)
		return nil
	}
	if to.TracesURL == "" {
		return nil
	}
	t := &telemetry.Traces{URL: to.TracesURL, Header: http.Header{}}
	for name, value := range header {
		t.Header.Set(name, value.Reveal())
	}
	d.log.Info("traces are sent", "to", to.TracesURL)
	return t
}

// observer hands on what the engine tells.
type observer struct{ to *telemetry.Telemetry }

func (o observer) Attempted(a observe.Attempt) { o.to.Attempted(telemetry.Attempt(a)) }
func (o observer) Grouped(g observe.Group)     { o.to.Grouped(telemetry.Group(g)) }
func (o observer) Ran(r observe.Run)           { o.to.Ran(telemetry.Run(r)) }

// billed counts an attempt at an inference. The name of a script is a path, which is nobody's business.
func (d *daemon) billed(b process.Bill) {
	if filepath.IsAbs(b.Model) {
		b.Model = "script"
	}
	d.telemetry.Billed(telemetry.Bill{
		ID: b.ID, Correlation: b.Cause.Correlation, Causation: b.Cause.Causation, Provider: b.Provider, Model: b.Model,
		Outcome: b.Outcome, Input: b.Usage.Input, CacheRead: b.Usage.CacheRead, CacheWrite: b.Usage.CacheWrite,
		Output: b.Usage.Output, Thought: b.Usage.Reasoning, Cost: b.Cost, Began: b.Began, Ended: b.Ended,
	})
}

func (d *daemon) cellEnded(c process.CellEnd) {
	d.telemetry.CellEnded(telemetry.Cell{
		ID: c.ID, Correlation: c.Cause.Correlation, Causation: c.Cause.Causation, Status: string(c.Status), Ended: c.Ended, Took: c.Took,
	})
}

func (d *daemon) answered(a api.Answered) { d.telemetry.Answered(telemetry.Request(a)) }

// sample is what there is now, for a scrape.
func (d *daemon) sample() telemetry.Sample {
	e, store := d.engine.Stats(), d.storeStatus()
	return telemetry.Sample{
		Warm: e.Warm, Mailbox: e.Waiting, Running: e.Running, Records: e.Records, Outbox: e.Outbox - e.Dormant, Alarms: e.Dormant,
		Delivered: e.Removals, Executions: e.Executions, PyKernels: len(d.sup.List()), Places: d.engine.Holding().Len(),
		StoreBytes: store.Bytes, WALBytes: store.WAL, FeedDrops: d.events.drops.Load(),
	}
}
