package mcp

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/wire"
)

// Program is what the server needs of the program that it is a part of. Its methods are called from many goroutines.
type Program interface {
	// Keep makes a request that may be repeated until a daemon has answered it; it starts one if need be.
	Keep(ctx context.Context, request func() error) error
	// Follow follows a session's events from a cursor on, through the death of daemons.
	Follow(ctx context.Context, session string, from wire.Cursor, fn func(client.Frame) error) error
	Client() *client.Client
	// PySession returns the python session of a folder, opening one if there is none.
	PySession(ctx context.Context, folder, python string) (wire.Session, error)
	Input() io.ReadCloser
	Output() io.WriteCloser
	// Build names this build.
	Build() string
}

// Bounds of how long one call may make its client wait. Most clients give a call up after 60 seconds.
const (
	defaultWait = 45 * time.Second
	maxWait     = 10 * time.Minute
)

// Command returns the command `mcp`.
func Command(p Program) *cobra.Command {
	var folder, python string
	wait := defaultWait
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "serve this folder's python kernel to an MCP client",
		Long: "mcp is an MCP server on the standard input and output. Its tools run Python code in the kernel of a folder, the same one that\n" +
			"soma py uses there: names last from call to call, through the end of the client and of the daemon. Code that takes longer than\n" +
			"--wait runs on, and the client asks for its result later. docs/mcp.md shows the settings of some clients.",
		Example: "  soma mcp\n  soma mcp --workspace ~/data --python ~/data/.venv/bin/python",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < time.Second || wait > maxWait {
				return exit.Faultf(exit.Usage, "give from 1s to 10m", "cannot take --wait %s", wait)
			}
			dir, err := filepath.Abs(folder)
			if err == nil {
				dir, err = filepath.EvalSymlinks(dir) // the same folder by whatever way the client named it
			}
			if err != nil {
				return exit.Faultf(exit.BadFile, "name a folder that exists", "cannot work in the folder: %w", err)
			}
			return serve(cmd.Context(), p, newServer(p, dir, python, wait))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&folder, "workspace", ".", "the `FOLDER` whose kernel runs the code")
	flags.StringVar(&python, "python", "", "python `INTERPRETER` of a kernel that is started")
	flags.DurationVar(&wait, "wait", wait, "the `TIME` after which running code is left to run on and the call answered")
	return cmd
}

// serve answers until the client closes the input or ctx ends.
func serve(ctx context.Context, p Program, s *server) error {
	defer s.tell.Wait()
	out := &shared{WriteCloser: p.Output()}
	err := s.mcp().Run(ctx, &mcp.IOTransport{Reader: newLines(p.Input(), out), Writer: out, MaxLineLength: maxLine})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
