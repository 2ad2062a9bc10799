package telemetry

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"soma/ident"
)

// spanID is the id of a span; zero means none.
type spanID [8]byte

// spanOf returns the id of the span of what an id and a role name. It is the same in every run of every daemon, so that a
// parent need not be known to refer to it.
func spanOf(id ident.ID, role string) spanID {
	if id.IsZero() {
		return spanID{}
	}
	return hashed(id[:], role)
}

func hashed(name []byte, role string) (s spanID) {
	h := sha256.New()
	h.Write(name)
	h.Write([]byte(role))
	copy(s[:], h.Sum(nil))
	if s == (spanID{}) { // an id of zeros is none
		s[7] = 1
	}
	return s
}

// The roles of spans.
const (
	roleTurn  = "turn"
	roleTry   = "try" // of an attempt that failed and is repeated by its caller, if by anybody
	roleRun   = "run"
	roleModel = "model"
	roleCell  = "cell"
)

// The kinds of spans that are used, as OTLP numbers them.
const (
	internalSpan = 1
	clientSpan   = 3
	consumerSpan = 5
)

// span is one finished piece of work. It holds names and numbers only.
type span struct {
	trace      ident.ID
	id, parent spanID
	name       string
	kind       int
	start, end time.Time
	failed     bool
	attributes []attribute
	events     []event
}

type event struct {
	name       string
	at         time.Time
	attributes []attribute
}

// attribute has a text or, where that is empty, a number.
type attribute struct {
	key    string
	text   string
	number int64
}

// turnSpan describes a delivery that is settled; tries are the attempts before.
func turnSpan(a *Attempt, names turnKey, tries []event) span {
	s := span{
		trace: a.Correlation, id: spanOf(a.ID, roleTurn), parent: spanOf(a.Causation, roleTurn), name: names.alias, kind: consumerSpan,
		start: a.Began, end: a.Began.Add(a.Took), failed: a.Outcome == Failed || a.Dead, events: tries,
		attributes: []attribute{
			{key: "soma.kind", text: names.kind}, {key: "soma.outcome", text: a.Outcome}, {key: "soma.delivery", text: a.ID.String()},
			{key: "soma.attempt", number: int64(a.Number)},
		},
	}
	if a.Outcome == Failed {
		var began [8]byte
		binary.BigEndian.PutUint64(began[:], uint64(a.Began.UnixNano()))
		s.id = hashed(append(a.ID[:], began[:]...), roleTry)
	}
	if a.Code != "" {
		s.attributes = append(s.attributes, attribute{key: "soma.code", text: a.Code})
	}
	if a.Lag >= 0 {
		s.attributes = append(s.attributes, attribute{key: "soma.lag_us", number: a.Lag.Microseconds()})
	}
	if len(tries) > 0 && tries[0].at.Before(s.start) {
		s.start = tries[0].at
	}
	return s
}

func runSpan(r *Run) span {
	return span{
		trace: r.Correlation, id: spanOf(r.ID, roleRun), parent: spanOf(r.Causation, roleTurn), name: "execution " + r.Kind,
		kind: internalSpan, start: r.Began, end: r.Began.Add(r.Took), failed: r.Status == "failed",
		attributes: []attribute{
			{key: "soma.status", text: r.Status}, {key: "soma.execution", text: r.ID.WithAttempt(0).String()},
			{key: "soma.attempt", number: int64(r.ID.Attempt())},
		},
	}
}

// billSpan is named and described as the conventions for generative models ask for.
func billSpan(b *Bill) span {
	return span{
		trace: b.Correlation, id: spanOf(b.ID, roleModel), parent: spanOf(b.ID, roleRun), name: "chat " + b.Model, kind: clientSpan,
		start: b.Began, end: b.Ended, failed: b.Outcome == "failed",
		attributes: []attribute{
			{key: "gen_ai.operation.name", text: "chat"}, {key: "gen_ai.provider.name", text: b.Provider},
			{key: "gen_ai.request.model", text: b.Model}, {key: "gen_ai.usage.input_tokens", number: b.Input + b.CacheRead + b.CacheWrite},
			{key: "gen_ai.usage.output_tokens", number: b.Output}, {key: "soma.outcome", text: b.Outcome},
		},
	}
}

func cellSpan(c *Cell) span {
	return span{
		trace: c.Correlation, id: hashed([]byte(c.ID), roleCell), parent: spanOf(c.Causation, roleTurn), name: "cell", kind: internalSpan,
		start: c.Ended.Add(-c.Took), end: c.Ended, failed: c.Status != "ok",
		attributes: []attribute{{key: "soma.status", text: c.Status}},
	}
}
