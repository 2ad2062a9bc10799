package exit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"soma/client"
	"soma/internal/cli/plain"
	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/pypath"
	"soma/wire"
)

// The exit codes of the program itself (I-15); those below 64 and 137 are the process's own.
const (
	OK       = 0
	Failed   = 1
	Killed   = 137
	Usage    = 64
	BadFile  = 65
	NotFound = 66
	NoDaemon = 69
	NoPython = 72
	Home     = 73
	Busy     = 75
	Refused  = 77
	Config   = 78
)

// Codes are all exit codes with what they mean, as the documents list them.
var Codes = []struct {
	Code  int
	Means string
}{
	{OK, "done; or detached by Ctrl-C"},
	{Failed, "the process failed, the cell ended with an error, or the command could not be done"},
	{Killed, "the process was killed"},
	{Usage, "wrong use of the command line"},
	{BadFile, "a file that was given is not good"},
	{NotFound, "there is no such process, session, cell, kernel or job"},
	{NoDaemon, "no daemon answers"},
	{NoPython, "python is missing or too old"},
	{Home, "the home is locked, not writable, or of another schema"},
	{Busy, "busy: try again later"},
	{Refused, "refused"},
	{Config, "the config is wrong, or no model is at hand"},
}

// Fault is an error that says what to do and which code the program ends with.
type Fault struct {
	Code int
	Err  error  // "cannot …: …"
	Do   string // may be empty
}

func (f *Fault) Error() string {
	if f.Do == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + "; " + f.Do
}

func (f *Fault) Unwrap() error { return f.Err }

// Faultf returns an error with a code, what to do, which may be empty, and its text as of fmt.Errorf.
func Faultf(code int, do, format string, args ...any) *Fault {
	return &Fault{code, fmt.Errorf(format, args...), do}
}

// Quiet ends the program with a code and says nothing more: it was all said.
type Quiet int

func (e Quiet) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// codes maps the API's refusals. What is not listed ends with Failed.
var codes = map[wire.Code]int{
	wire.BadRequest: Usage, wire.TooLarge: BadFile, wire.NotFound: NotFound, wire.Unprocessable: Config,
	wire.BadFile: BadFile, wire.NoModel: Config, wire.NoPython: NoPython, wire.Busy: Busy, wire.Stopping: NoDaemon, wire.Unavailable: Busy,
	wire.Unauthorized: Refused, wire.ForbiddenHost: Refused, wire.ForbiddenOrigin: Refused, wire.Forbidden: Refused,
	wire.Conflict: Refused, wire.ProcessEnded: Refused, wire.SessionClosed: Refused, wire.InUse: Refused, wire.Gone: NotFound, wire.WireVersion: Refused,
	wire.JobNotFound: NotFound, wire.Unreachable: Busy,
}

// wayOut says what to do where the daemon does not.
var wayOut = map[wire.Code]string{
	wire.NotFound: "see soma ps -a", wire.ProcessEnded: "start another with soma run", wire.SessionClosed: "open another with soma run",
	wire.Internal: "see soma logs --daemon", wire.Busy: "try again later",
}

// As finds the code and the way out of any error.
func As(err error) *Fault {
	var (
		f       *Fault
		refusal *wire.Error
		locked  *config.LockedError
		home    *config.HomeError
		file    *config.FileError
		value   *config.ValueError
		noModel *config.NoModelError
		choose  *config.ChooseModelError
		unknown *config.UnknownModelError
		python  *pypath.Error
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refusal):
		code, ok := codes[refusal.Code]
		if !ok {
			code = Failed
		}
		do := refusal.Detail
		if do == "" {
			do = wayOut[refusal.Code]
		}
		return &Fault{code, errors.New(cannot(refusal.Title)), do}
	case errors.As(err, &locked):
		return &Fault{Home, err, "use that one, or end it with soma stop"}
	case errors.As(err, &home):
		return &Fault{Home, err, homeWayOut(err)}
	case errors.As(err, &file), errors.As(err, &value), errors.As(err, &noModel),
		errors.As(err, &choose), errors.As(err, &unknown):
		return &Fault{Config, err, ""}
	case errors.As(err, &python):
		return &Fault{NoPython, err, python.Do}
	case errors.Is(err, client.ErrStopped):
		return &Fault{NoDaemon, client.ErrStopped, "the next command starts one"}
	case errors.Is(err, client.ErrLost):
		return &Fault{NoDaemon, err, "see soma logs --daemon, or start one with soma serve"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Fault{Busy, err, "try again"}
	case errors.Is(err, neuron.ErrStoreFailed):
		return &Fault{Failed, err, "mend that and start it again: what was committed is kept"}
	}
	return &Fault{Code: Failed, Err: err}
}

// homeWayOut says what helps a home whose own error does not say it.
func homeWayOut(err error) string {
	switch {
	case errors.Is(err, neuron.ErrStoreFailed), errors.Is(err, syscall.ENOSPC):
		return "make room: what was committed is kept"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "make it writable, or set SOMA_HOME"
	}
	return ""
}

// cannot gives a daemon's words the form of all errors.
func cannot(words string) string {
	if strings.HasPrefix(words, "cannot ") || strings.HasPrefix(words, "no ") {
		return words
	}
	return "cannot do that: " + words
}

// Stopped says how to go on after an orderly stop of the daemon; other errors stay as they are. A stop is no loss: who
// stopped it does not want it back at once.
func Stopped(err error, goOn string, args ...any) error {
	var refusal *wire.Error
	if errors.Is(err, client.ErrStopped) || errors.As(err, &refusal) && refusal.Code == wire.Stopping {
		return &Fault{NoDaemon, client.ErrStopped, fmt.Sprintf(goOn, args...) + " goes on"}
	}
	return err
}

// Report writes err to w and returns the exit code.
func Report(w io.Writer, err error, asJSON bool) int {
	var quiet Quiet
	if err == nil {
		return OK
	}
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	f := As(err)
	if asJSON {
		words, more, _ := strings.Cut(f.Err.Error(), "\n") // the second line of an error says what to do
		line, _ := json.Marshal(struct {                   // strings and numbers always marshal
			Error string `json:"error"`
			Do    string `json:"do,omitempty"`
			Exit  int    `json:"exit"`
		}{words, cmp.Or(f.Do, more), f.Code})
		fmt.Fprintf(w, "%s\n", line)
		return f.Code
	}
	text, sep := f.Err.Error(), "; "
	if f.Code == Config && strings.Contains(f.Do, "\n") {
		sep = "\n" // a list of models, one a line
	}
	if f.Do != "" {
		text += sep + f.Do
	}
	if f.Code != Config { // what there is no model for takes two lines; everything else is one
		text = strings.ReplaceAll(text, "\n", " ")
	}
	fmt.Fprintf(w, "soma: %s\n", plain.Clean(text))
	return cmp.Or(f.Code, Failed)
}
