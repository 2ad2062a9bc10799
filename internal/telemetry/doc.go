// Package telemetry tells people what a daemon does: counts and times as Prometheus metrics, and traces that it sends as
// OTLP/HTTP JSON to a collector. It is diagnosis only: nothing of Soma reads any of it back, and nothing waits for it.
//
// It owns the names of the metrics, the bounds of their labels, the form of a span and the way to the collector. It is handed
// plain values and must know no neuron, process, store or API; no text that a person, a model or a program wrote goes into a
// label or a span. It may import ident and lifecycle.
package telemetry
