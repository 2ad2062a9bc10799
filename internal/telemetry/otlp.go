package telemetry

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// What follows is the body of an export request in OTLP's JSON mapping: ids in hexadecimal, 64-bit numbers as strings,
// enumerations as numbers.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope      `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	otlpSpan struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []keyValue  `json:"attributes,omitempty"`
		Events       []otlpEvent `json:"events,omitempty"`
		Status       *otlpStatus `json:"status,omitempty"`
	}
	otlpEvent struct {
		Time       string     `json:"timeUnixNano"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	otlpStatus struct {
		Code int `json:"code"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
	exportResponse struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
)

// statusError is OTLP's code of a span that failed.
const statusError = 2

// encodeSpans writes the request that exports spans.
func encodeSpans(build string, spans []span) ([]byte, error) {
	list := make([]otlpSpan, len(spans))
	for i := range spans {
		s := &spans[i]
		list[i] = otlpSpan{
			TraceID: hex.EncodeToString(s.trace[:]), SpanID: hex.EncodeToString(s.id[:]), Name: s.name, Kind: s.kind,
			Start: nanos(s.start), End: nanos(later(s.start, s.end)), Attributes: keyValues(s.attributes),
		}
		if s.parent != (spanID{}) {
			list[i].ParentSpanID = hex.EncodeToString(s.parent[:])
		}
		for _, e := range s.events {
			list[i].Events = append(list[i].Events, otlpEvent{nanos(e.at), e.name, keyValues(e.attributes)})
		}
		if s.failed {
			list[i].Status = &otlpStatus{statusError}
		}
	}
	about := keyValues([]attribute{{key: "service.name", text: "soma"}, {key: "service.version", text: build}})
	return json.Marshal(exportRequest{[]resourceSpans{{resource{about}, []scopeSpans{{scope{"soma", build}, list}}}}})
}

func keyValues(list []attribute) []keyValue {
	var all []keyValue
	for _, a := range list {
		v := anyValue{}
		if a.text != "" {
			v.Text = &a.text
		} else {
			n := strconv.FormatInt(a.number, 10)
			v.Number = &n
		}
		all = append(all, keyValue{a.key, v})
	}
	return all
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// later keeps a span from ending before it begins when the clock was set back.
func later(a, b time.Time) time.Time {
	if b.Before(a) {
		return a
	}
	return b
}

// rejected reads from an answer how many spans the collector did not take; what cannot be read is none.
func rejected(body []byte) int {
	var r exportResponse
	if json.Unmarshal(body, &r) != nil {
		return 0
	}
	n, _ := strconv.Atoi(r.PartialSuccess.RejectedSpans.String())
	return n
}
