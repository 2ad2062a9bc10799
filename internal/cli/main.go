package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"soma/client"
	"soma/internal/cli/evidence"
	"soma/internal/cli/exit"
	"soma/internal/cli/mcp"
	"soma/internal/cli/plain"
	"soma/internal/cli/pykernels"
	"soma/internal/cli/retention"
	"soma/internal/cli/stores"
	"soma/internal/cli/trial"
	"soma/internal/config"
	"soma/internal/lifecycle"
)

// Stdio is what the program reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// ServeOptions say how a daemon is to run.
type ServeOptions struct {
	// Build names this build, for the daemon's status and answers.
	Build string
	// Log takes the daemon's log, one line at a time; writing to it never fails for long. It is safe for concurrent use.
	Log io.Writer
}

// Hooks are what the command line runs and does not know itself.
type Hooks struct {
	// Serve runs the daemon of a home until ctx is done, and returns when it has stopped. It takes the home's lock first. A
	// *config.LockedError, *config.HomeError or *config.NoModelError in its error decides the exit code.
	Serve func(ctx context.Context, home config.Home, cfg *config.Config, o ServeOptions) error
}

// app is one run of the program.
type app struct {
	Stdio
	hooks     Hooks
	env       config.Env
	asJSON    bool
	home      config.Home
	client    *client.Client
	regaining sync.Mutex // the daemon is started by one goroutine at a time
	starts    starts
	ran       bool // the command line was understood
	ending    bool // the command ends the daemon, of whatever build it is
	terse     bool // a daemon that is started again is told of by one line
	// lostWait is the pause before a lost daemon is started again.
	lostWait time.Duration
	// healthWait bounds one question whether a daemon answers.
	healthWait time.Duration
	// endLine ends a line that the output has left open, before something is said beside it; nil while nothing is shown.
	endLine func() error
}

// Main runs the program with its arguments (without its name) and returns the exit code. Interrupts are handled here.
func Main(args []string, stdio Stdio, hooks Hooks) int {
	ctx, stop := lifecycle.SignalContext(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	a := &app{Stdio: stdio, hooks: hooks, env: os.LookupEnv, lostWait: lostWait, healthWait: healthWait}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.commands()
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if a.client != nil {
		a.client.Close()
	}
	switch {
	case err != nil && !a.ran:
		err = misused(cmd, err)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exit.OK // Ctrl-C: what runs in the daemon runs on
	}
	return exit.Report(a.Err, err, a.asJSON)
}

// commands returns the command tree.
func (a *app) commands() *cobra.Command {
	output := "text"
	asJSON := false
	root := &cobra.Command{
		Use:   "soma",
		Short: "a runtime for AI agents that must not lose their work",
		Long: "Soma runs AI agents that must not lose their work. One program is daemon and client; the commands start the\n" +
			"daemon when it is needed. Agents are processes with pids, and their code runs in python kernels that outlive the\n" +
			"daemon.",
		Example:       "  soma run --model script:tour \"study this folder\"\n  soma ps\n  soma attach",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          known,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
			case "json":
				asJSON = true
			default:
				return fmt.Errorf("--output is text or json, not %q", output)
			}
			a.asJSON, a.ran = asJSON, true
			return a.open()
		},
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&output, "output", "o", "text", "form of what is printed: text or json")
	flags.BoolVar(&asJSON, "json", false, "the same as -o json")
	add := func(commands ...*cobra.Command) {
		root.AddCommand(commands...)
		describe(root.UsageTemplate(), commands...)
	}
	add(
		a.cmdRun(), a.cmdAttach(), a.cmdPs(), a.cmdLogs(), a.cmdSend(), a.cmdWait(),
		a.cmdSignal("interrupt"), a.cmdSignal("pause"), a.cmdSignal("resume"), a.cmdSignal("kill"),
		a.cmdPy(), a.cmdStatus(), a.cmdServe(), a.cmdStop(), a.cmdDoctor(), a.cmdConfig(), a.cmdVersion(), a.cmdMan(),
		cmdCompletion(),
	)
	add(evidence.Commands(lookingBack{a})...)
	add(retention.Commands(lookingBack{a})...)
	add(pykernels.Commands(lookingBack{a})...)
	add(stores.Commands(whole{a})...)
	add(trial.Commands(whole{a})...)
	add(mcp.Command(serving{a}))
	root.SetHelpCommand(cmdHelp())
	return root
}

// open finds the home and makes the client; it connects to nothing.
func (a *app) open() error {
	home, err := config.LocateHome(a.env)
	if err != nil {
		return exit.Faultf(exit.Home, "", "%w", err)
	}
	a.home = home
	a.client, err = client.New(client.Options{
		Dial: dialer(home),
		Token: func() (string, error) {
			token, err := home.ReadToken()
			if err != nil {
				return "", exit.Faultf(exit.Refused, "", "%w", err)
			}
			return token.Reveal(), nil
		},
		Build: Build(),
		OtherBuild: func(daemon string) {
			if a.ending {
				return
			}
			a.say("this program is build %s and the daemon build %s; soma stop lets the next command start the new one", Build(), daemon)
		},
	})
	return err
}

// Build names this build: the module's version with its revision.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// say writes one line to the person, beside the output.
func (a *app) say(format string, args ...any) {
	if a.endLine != nil {
		_ = a.endLine() // who writes the output next gets the same error
	}
	fmt.Fprintf(a.Err, "soma: %s\n", plain.Clean(fmt.Sprintf(format, args...)))
}

// screen is the output for people.
func (a *app) screen() *screen {
	noColour, _ := a.env("NO_COLOR")
	term, _ := a.env("TERM")
	return newScreen(a.Out, noColour == "" && term != "dumb" && isTerminal(a.Out))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// printJSON writes a value as one line.
func (a *app) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", line)
	return err
}

// workspace is the folder one stands in, without links, so that it is the same by whatever way one came.
func (a *app) workspace() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", exit.Faultf(exit.BadFile, "go to a folder that exists", "cannot find the folder to work in: %w", err)
	}
	return dir, nil
}

// config reads the settings.
func (a *app) config(flags map[string]string) (*config.Config, error) {
	return config.Load(a.home.ConfigFile(), a.env, flags)
}
