package cli

import (
	"io"

	"soma/internal/config"
)

// whole is the program as the commands that move whole stores see it, and those that try it on this machine.
type whole struct{ a *app }

func (w whole) Home() config.Home { return w.a.home }

func (w whole) Config() (*config.Config, error) { return w.a.config(nil) }

func (w whole) JSON() bool { return w.a.asJSON }

func (w whole) PrintJSON(v any) error { return w.a.printJSON(v) }

func (w whole) Output() io.Writer { return w.a.Out }

func (w whole) Errors() io.Writer { return w.a.Err }

func (w whole) Terminal() bool { return isTerminal(w.a.Err) }
