// Command soma is the whole program: daemon and client. It hands its arguments to package cli, and the daemon to whoever
// asks cli for one.
package main

import (
	"context"
	"os"

	"soma/internal/cli"
	"soma/internal/config"
	"soma/internal/daemon"
)

func main() {
	serve := func(ctx context.Context, home config.Home, cfg *config.Config, o cli.ServeOptions) error {
		return daemon.Run(ctx, home, cfg, daemon.Options{Build: o.Build, Log: o.Log, Env: os.LookupEnv, Environ: os.Environ})
	}
	os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Hooks{Serve: serve}))
}
