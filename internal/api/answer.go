package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"soma/wire"
)

// answerWriter remembers whether an answer has begun.
type answerWriter struct {
	http.ResponseWriter
	begun  bool
	status int
}

func (w *answerWriter) WriteHeader(status int) {
	w.begun, w.status = true, status
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun, w.status = true, http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// document is an answer that is not JSON.
type document struct {
	kind string
	text []byte
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, body any) {
	if d, ok := body.(document); ok {
		w.Header().Set("Content-Type", d.kind)
		write(w, r, http.StatusOK, d.text)
		return
	}
	text, err := marshal(body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	write(w, r, http.StatusOK, text)
}

// write writes an answer to its last byte. Once the server stops, the client has endLimit to take it. Who does not take it is
// not told.
func write(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	control := http.NewResponseController(w)
	defer context.AfterFunc(serving(r.Context()), func() { _ = control.SetWriteDeadline(time.Now().Add(endLimit)) })()
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if _, err := w.Write(text); err == nil {
		_ = control.Flush()
	}
}

// marshal writes JSON on one line, without the detours that HTML would need.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// fail answers with an error. One that is no *wire.Error is the daemon's own: it goes to the log, and the answer says no
// more than that.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := s.refusal(r, err)
	text, err := marshal(e)
	if err != nil {
		s.Log.Error("cannot write an error", "error", err)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if e.Code == wire.Unavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	write(w, r, e.Status, text)
}

func (s *Server) refusal(r *http.Request, err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) && e.Code != wire.Internal {
		known := *e
		known.Status = e.Code.Status()
		return &known
	}
	if errors.Is(err, context.DeadlineExceeded) {
		s.Log.Warn("an answer took too long", "route", r.Pattern)
		return wire.Errorf(wire.Busy, "the daemon could not answer in time").
			Do("make the same request again: under the same id it happens once")
	}
	if errors.Is(err, context.Canceled) {
		if serving(r.Context()).Err() != nil {
			return wire.Errorf(wire.Stopping, "the daemon is stopping").Do("start it again")
		}
		if r.Context().Err() != nil { // the client has gone; nobody reads this
			return wire.Errorf(wire.Internal, "the request was given up")
		}
	}
	if s.Refusal != nil {
		if e := s.Refusal(err); e != nil {
			s.Log.Warn("cannot answer a request now", "route", r.Pattern, "error", err)
			return e
		}
	}
	s.Log.Error("cannot answer a request", "route", r.Pattern, "error", err)
	return failure()
}

// rescue answers a request whose handler panicked. r points to the request as it was then.
func (s *Server) rescue(w *answerWriter, r **http.Request) {
	value := recover()
	if value == nil {
		return
	}
	if value == http.ErrAbortHandler {
		panic(value)
	}
	s.Log.Error("panic in a request", "route", (*r).Pattern, "panic", value, "stack", string(debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler) // the client must not take what it has for the whole
	}
	s.fail(w, *r, failure())
}

func failure() *wire.Error {
	return wire.Errorf(wire.Internal, "the daemon failed at this request").Do("see its log")
}
