// Command soma is the whole program: daemon and client. It hands its arguments to package cli.
package main

import (
	"os"

	"soma/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Hooks{}))
}
