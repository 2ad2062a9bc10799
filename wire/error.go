package wire

import "fmt"

// Code is a stable error code.
type Code string

// The error codes, each with its HTTP status (see Status).
const (
	BadRequest       Code = "bad_request"
	Unauthorized     Code = "unauthorized"
	ForbiddenHost    Code = "forbidden_host"
	ForbiddenOrigin  Code = "forbidden_origin"
	Forbidden        Code = "forbidden"
	NotFound         Code = "not_found"
	MethodNotAllowed Code = "method_not_allowed"
	Conflict         Code = "conflict" // the id is taken by a request that said something else
	ProcessEnded     Code = "process_ended"
	SessionClosed    Code = "session_closed"
	InUse            Code = "in_use" // what shall be removed is in use
	Gone             Code = "gone"   // it was there and was removed; its id is not used again
	TooLarge         Code = "too_large"
	UnsupportedMedia Code = "unsupported_media_type"
	Unprocessable    Code = "unprocessable" // well-formed, but it cannot be done: no such model, python too old
	NoModel          Code = "no_model"
	NoPython         Code = "no_python"
	BadFile          Code = "bad_file" // a file that the request names cannot be used
	Busy             Code = "busy"
	WireVersion      Code = "wire_version"
	Stopping         Code = "stopping"
	Unavailable      Code = "unavailable" // nobody answers for it at this moment: try again
	JobNotFound      Code = "job_not_found"
	OutputLost       Code = "output_lost"          // that part of the output was not kept
	Unconfirmed      Code = "job_stop_unconfirmed" // the job may still run, or end yet
	NotRestarted     Code = "kernel_restart_failed"
	Unreachable      Code = "kernel_unreachable" // the python kernel cannot be asked now
	Internal         Code = "internal"
)

// Status returns the HTTP status of a code.
func (c Code) Status() int {
	switch c {
	case BadRequest:
		return 400
	case Unauthorized:
		return 401
	case ForbiddenHost, ForbiddenOrigin, Forbidden:
		return 403
	case NotFound, JobNotFound:
		return 404
	case MethodNotAllowed:
		return 405
	case Conflict, ProcessEnded, SessionClosed, InUse, OutputLost:
		return 409
	case Gone:
		return 410
	case TooLarge:
		return 413
	case UnsupportedMedia:
		return 415
	case Unprocessable, NoModel, NoPython, BadFile:
		return 422
	case WireVersion:
		return 426
	case Busy:
		return 429
	case Stopping, Unavailable, Unconfirmed, NotRestarted, Unreachable:
		return 503
	}
	return 500
}

// Error is the body of every failed request, application/problem+json (RFC 9457). As a Go error it is what handlers return
// and what the client hands back.
type Error struct {
	Code   Code   `json:"code"`
	Status int    `json:"status"`
	Title  string `json:"title"`            // what failed, and why
	Detail string `json:"detail,omitempty"` // what to do
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Title
	}
	return e.Title + ": " + e.Detail
}

// Errorf returns an Error with its status.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Status: code.Status(), Title: fmt.Sprintf(format, args...)}
}

// Do returns a copy of e that says what to do.
func (e *Error) Do(what string) *Error {
	c := *e
	c.Detail = what
	return &c
}
