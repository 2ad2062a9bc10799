package exit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"soma/client"
	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/pypath"
	"soma/wire"
)

// I-15: what happens decides the code; I-14: every error is one line with a way out.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{wire.Errorf(wire.NotFound, "there is no process 9"), NotFound, "soma: cannot do that: there is no process 9; see soma ps -a"},
		{wire.Errorf(wire.NoModel, "no model at hand").Do("set a key"), Config, "soma: no model at hand; set a key"},
		{wire.Errorf(wire.NoModel, "cannot choose").Do("one of\n  a\n  b"), Config, "soma: cannot choose\none of\n  a\n  b"},
		{wire.Errorf(wire.NoPython, "python is too old"), NoPython, ""},
		{wire.Errorf(wire.Busy, "too many"), Busy, ""},
		{wire.Errorf(wire.WireVersion, "other version").Do("stop it"), Refused, ""},
		{wire.Errorf(wire.ProcessEnded, "it has ended"), Refused, "soma run"},
		{wire.Errorf(wire.TooLarge, "too large"), BadFile, ""},
		{wire.Errorf(wire.Internal, "failed"), Failed, "logs --daemon"},
		{&config.LockedError{Home: "/h", Holder: config.Holder{PID: 12, Socket: "/h/soma.sock"}}, Home, "pid 12 holds it (socket /h/soma.sock); use that one"},
		{&config.HomeError{Home: "/h", Err: errors.New("read-only")}, Home, ""},
		{&config.FileError{File: "/h/config.yaml", Line: 3, Key: "modles", Problem: "unknown key"}, Config, "config.yaml:3: modles: unknown key"},
		{&pypath.Error{Path: "python3", Why: "it is not on PATH", Do: "install it"}, NoPython, "; install it"},
		{fmt.Errorf("x: %w", &client.LostError{Unsent: true, Err: io.EOF}), NoDaemon, "soma serve"},
		{fmt.Errorf("cannot commit: %w: no space left", neuron.ErrStoreFailed), Failed, "no space left; mend that and start it again"},
		{errors.New("cannot print"), Failed, "soma: cannot print"},
		{errors.New("cannot print:\nit is\x1b[2J full"), Failed, "soma: cannot print: it is full\n"},
		{Quiet(7), 7, ""},
		{nil, 0, ""},
	} {
		var b bytes.Buffer
		code := Report(&b, c.err, false)
		if code != c.code || !strings.Contains(b.String(), c.text) {
			t.Errorf("%v: code %d, %q, want %d, %q", c.err, code, b.String(), c.code, c.text)
		}
	}
	listed := map[int]bool{}
	for _, e := range Codes {
		listed[e.Code] = true
	}
	for code, ends := range codes {
		if !listed[ends] {
			t.Errorf("%s ends with %d, which the table of exit codes does not hold", code, ends)
		}
	}
}
