package cli

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
	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/pypath"
	"soma/wire"
)

// The exit codes of the program itself (I-15); those below 64 and 137 are the process's own.
const (
	exitOK       = 0
	exitFailed   = 1
	exitKilled   = 137
	exitUsage    = 64
	exitBadFile  = 65
	exitNotFound = 66
	exitNoDaemon = 69
	exitNoPython = 72
	exitHome     = 73
	exitBusy     = 75
	exitRefused  = 77
	exitConfig   = 78
)

var exitCodes = []struct {
	code  int
	means string
}{
	{exitOK, "done; or detached by Ctrl-C"},
	{exitFailed, "the process failed, the cell ended with an error, or the command could not be done"},
	{exitKilled, "the process was killed"},
	{exitUsage, "wrong use of the command line"},
	{exitBadFile, "a file that was given is not good"},
	{exitNotFound, "there is no such process, session or cell"},
	{exitNoDaemon, "no daemon answers"},
	{exitNoPython, "python is missing or too old"},
	{exitHome, "the home is locked, not writable, or of another schema"},
	{exitBusy, "busy: try again later"},
	{exitRefused, "refused"},
	{exitConfig, "the config is wrong, or no model is at hand"},
}

// fault is an error that says what to do and which code the program ends with.
type fault struct {
	code int
	err  error  // "cannot …: …"
	do   string // may be empty
}

func (f *fault) Error() string {
	if f.do == "" {
		return f.err.Error()
	}
	return f.err.Error() + "; " + f.do
}

func (f *fault) Unwrap() error { return f.err }

func faultf(code int, do, format string, args ...any) *fault {
	return &fault{code, fmt.Errorf(format, args...), do}
}

// exitCode ends the program with a code and says nothing more: it was all said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// codes maps the API's refusals. What is not listed ends with exitFailed.
var codes = map[wire.Code]int{
	wire.BadRequest: exitUsage, wire.TooLarge: exitBadFile, wire.NotFound: exitNotFound, wire.Unprocessable: exitConfig,
	wire.BadFile: exitBadFile, wire.NoModel: exitConfig, wire.NoPython: exitNoPython, wire.Busy: exitBusy, wire.Stopping: exitNoDaemon,
	wire.Unauthorized: exitRefused, wire.ForbiddenHost: exitRefused, wire.ForbiddenOrigin: exitRefused, wire.Forbidden: exitRefused,
	wire.Conflict: exitRefused, wire.ProcessEnded: exitRefused, wire.SessionClosed: exitRefused, wire.WireVersion: exitRefused,
}

// wayOut says what to do where the daemon does not.
var wayOut = map[wire.Code]string{
	wire.NotFound: "see soma ps -a", wire.ProcessEnded: "start another with soma run", wire.SessionClosed: "open another with soma run",
	wire.Internal: "see soma logs --daemon", wire.Busy: "try again later",
}

// asFault finds the code and the way out of any error.
func asFault(err error) *fault {
	var (
		f       *fault
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
			code = exitFailed
		}
		do := refusal.Detail
		if do == "" {
			do = wayOut[refusal.Code]
		}
		return &fault{code, errors.New(cannot(refusal.Title)), do}
	case errors.As(err, &locked):
		return &fault{exitHome, err, "use that one, or end it with soma stop"}
	case errors.As(err, &home):
		return &fault{exitHome, err, homeWayOut(err)}
	case errors.As(err, &file), errors.As(err, &value), errors.As(err, &noModel),
		errors.As(err, &choose), errors.As(err, &unknown):
		return &fault{exitConfig, err, ""}
	case errors.As(err, &python):
		return &fault{exitNoPython, err, python.Do}
	case errors.Is(err, client.ErrStopped):
		return &fault{exitNoDaemon, client.ErrStopped, "the next command starts one"}
	case errors.Is(err, client.ErrLost):
		return &fault{exitNoDaemon, err, "see soma logs --daemon, or start one with soma serve"}
	case errors.Is(err, context.DeadlineExceeded):
		return &fault{exitBusy, err, "try again"}
	}
	return &fault{code: exitFailed, err: err}
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

// stopped says how to go on after an orderly stop of the daemon; other errors stay as they are. A stop is no loss: who
// stopped it does not want it back at once.
func stopped(err error, goOn string, args ...any) error {
	var refusal *wire.Error
	if errors.Is(err, client.ErrStopped) || errors.As(err, &refusal) && refusal.Code == wire.Stopping {
		return &fault{exitNoDaemon, client.ErrStopped, fmt.Sprintf(goOn, args...) + " goes on"}
	}
	return err
}

// report writes err to w and returns the exit code.
func report(w io.Writer, err error, asJSON bool) int {
	var quiet exitCode
	if err == nil {
		return exitOK
	}
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	f := asFault(err)
	if asJSON {
		words, more, _ := strings.Cut(f.err.Error(), "\n") // the second line of an error says what to do
		line, _ := json.Marshal(struct {                   // strings and numbers always marshal
			Error string `json:"error"`
			Do    string `json:"do,omitempty"`
			Exit  int    `json:"exit"`
		}{words, cmp.Or(f.do, more), f.code})
		fmt.Fprintf(w, "%s\n", line)
		return f.code
	}
	text, sep := f.err.Error(), "; "
	if f.code == exitConfig && strings.Contains(f.do, "\n") {
		sep = "\n" // a list of models, one a line
	}
	if f.do != "" {
		text += sep + f.do
	}
	if f.code != exitConfig { // what there is no model for takes two lines; everything else is one
		text = strings.ReplaceAll(text, "\n", " ")
	}
	fmt.Fprintf(w, "soma: %s\n", clean(text))
	return cmp.Or(f.code, exitFailed)
}
