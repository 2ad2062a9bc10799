package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/ident"
	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/internal/pypath"
	"soma/wire"
)

// maxInput bounds the text of an input in bytes: what the API takes, less room for its JSON.
const maxInput = wire.MaxBody - 1<<10

func (a *app) cmdRun() *cobra.Command {
	var file string
	var open wire.OpenSession
	var detach, wait bool
	cmd := &cobra.Command{
		Use:   "run [flags] TASK | run -f FILE | run -",
		Short: "give an agent a task and watch it work",
		Long: "run starts an agent in this folder and gives it the task. The transcript streams; Ctrl-C detaches and the agent works\n" +
			"on. Its last line tells steps, cells, tokens, cost and seconds. The exit code is the process's.\n\n" +
			"Models come from the environment (OPENAI_API_KEY, OLLAMA_HOST) or from models: in the config; script:tour is built in\n" +
			"and needs none.",
		Example: "  soma run --model script:tour \"study this folder\"\n  git log | soma run -\n  soma run --detach -f task.md",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.inputText(args, file)
			if err != nil {
				return err
			}
			if detach && wait && cmd.Flags().Changed("wait") {
				return exit.Faultf(exit.Usage, "", "cannot both --wait and --detach")
			}
			return a.runTask(cmd.Context(), open, text, detach || !wait)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "read the task from `FILE`")
	flags.StringVar(&open.Model, "model", "", "`NAME` of a model: one of the config, openai:MODEL, ollama:MODEL, script:tour or script:FILE")
	flags.StringVar(&open.Agent, "agent", "", "`NAME` of the agent")
	flags.StringVar(&open.Python, "python", "", "python `INTERPRETER` for the agent's cells")
	flags.BoolVar(&open.Keep, "keep", false, "leave the process waiting for more input when the task is worked through")
	flags.BoolVar(&detach, "detach", false, "return at once and print the pid")
	flags.BoolVar(&wait, "wait", true, "stay until the task is worked through")
	return cmd
}

// inputText is the text that a person gives: as arguments, in a file, or with "-" on the standard input.
func (a *app) inputText(args []string, file string) (string, error) {
	var text []byte
	var err error
	switch {
	case file != "" && len(args) > 0:
		return "", exit.Faultf(exit.Usage, "", "cannot take both a text and a file")
	case file != "":
		text, err = readUpTo(file, maxInput+1)
	case len(args) == 1 && args[0] == "-":
		text, err = io.ReadAll(io.LimitReader(a.In, maxInput+1))
	case len(args) == 0:
		return "", exit.Faultf(exit.Usage, "give it as \"TEXT\", with -f FILE, or with - on the standard input", "cannot go on without a text")
	default:
		text = []byte(strings.Join(args, " "))
	}
	if err != nil {
		return "", exit.Faultf(exit.BadFile, "", "cannot read the text: %w", err)
	}
	return string(text), checkText(string(text), maxInput)
}

func checkText(text string, most int) error {
	switch {
	case len(text) > most:
		return exit.Faultf(exit.BadFile, "give the name of a file in it instead", "cannot take the text: it is longer than %d bytes", most)
	case !utf8.ValidString(text):
		return exit.Faultf(exit.BadFile, "convert it to UTF-8", "cannot take the text: it is not UTF-8")
	case strings.TrimSpace(text) == "":
		return exit.Faultf(exit.Usage, "", "cannot take the text: it is empty")
	}
	return nil
}

// readUpTo reads at most the first n bytes of a file.
func readUpTo(name string, n int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

func (a *app) runTask(ctx context.Context, open wire.OpenSession, text string, detach bool) error {
	cfg, err := a.config(nil)
	if err != nil {
		return err
	}
	if open.Workspace, err = a.workspace(); err != nil {
		return err
	}
	open.Model = config.AbsoluteModel(open.Model, open.Workspace)
	if open.Python, err = a.python(ctx, open.Python, cfg.Python, open.Workspace); err != nil {
		return err
	}
	if err := a.refuseModel(ctx, cfg, open.Model); err != nil {
		return err
	}
	if err := a.ensure(ctx); err != nil {
		return err
	}
	missing, err := a.missingKeys(ctx, cfg)
	if err != nil {
		return err
	}
	session, input := ident.New(time.Now()).String(), ident.New(time.Now()).String()
	err = a.keep(ctx, func() error { _, err := a.client.OpenSession(ctx, session, open); return err })
	if missing != "" {
		const restart = "run soma stop, and the next command starts it with what is set here"
		var refusal *wire.Error
		if errors.As(err, &refusal) && refusal.Code == wire.NoModel {
			return exit.Faultf(exit.Config, restart, "cannot find a model: the daemon was started without %s", missing)
		}
		a.say("the daemon was started without %s; %s", missing, restart)
	}
	if err != nil {
		return err
	}
	var in wire.InputState
	err = a.keep(ctx, func() (err error) {
		in, err = a.client.Admit(ctx, session, input, wire.Input{Text: text})
		return err
	})
	if ctx.Err() != nil {
		a.say("left before the daemon had answered; soma ps tells whether the task is worked on")
	}
	if err != nil {
		return err
	}
	if detach {
		if a.asJSON {
			return a.printJSON(in)
		}
		_, err := fmt.Fprintf(a.Out, "process %d runs; soma attach %d shows it\n", in.PID, in.PID)
		return err
	}
	if isTerminal(a.Err) && !a.asJSON {
		a.say("process %d works; Ctrl-C detaches, soma send %d \"TEXT\" steers it", in.PID, in.PID)
	}
	e := &ending{keep: open.Keep, input: input}
	return a.watch(ctx, in.PID, session, wire.Cursor{Seq: in.Event}, e)
}

// refuseModel is the error of a model that a daemon started now would not find: none is started for that. The environment of
// one that runs counts, so then it is asked.
func (a *app) refuseModel(ctx context.Context, cfg *config.Config, name string) error {
	_, err := cfg.Resolve(name, a.env)
	var choose *config.ChooseModelError // the daemon knows which ones there are
	if err == nil || errors.As(err, &choose) || !errors.Is(a.health(ctx), client.ErrLost) {
		return nil
	}
	return err
}

// missingKeys names the provider variables that this client has and the daemon has not: the daemon reads them at its start.
func (a *app) missingKeys(ctx context.Context, cfg *config.Config) (string, error) {
	mine := cfg.ProviderVariables(a.env)
	if len(mine) == 0 {
		return "", nil
	}
	var status wire.Status
	err := a.keep(ctx, func() (err error) { status, err = a.client.Status(ctx); return err })
	if err != nil {
		return "", err
	}
	missing := slices.DeleteFunc(mine, func(name string) bool { return slices.Contains(status.ProviderEnv, name) })
	return strings.Join(missing, ", "), nil
}

// python finds the interpreter for a session's cells.
func (a *app) python(ctx context.Context, flag, configured, dir string) (string, error) {
	py, err := a.findPython(ctx, flag, configured, dir)
	return py.Path, err
}

func (a *app) findPython(ctx context.Context, flag, configured, dir string) (pypath.Interpreter, error) {
	venv, _ := a.env("VIRTUAL_ENV")
	path, _ := a.env("PATH")
	return pypath.Find(ctx, pypath.Choice{
		Flag: flag, Config: configured, VirtualEnv: venv, SearchPath: path, Dir: dir, Env: os.Environ(),
		CacheFile: filepath.Join(a.home.Cache(), "python.json"),
	})
}
