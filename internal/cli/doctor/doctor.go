package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/config"
	"soma/internal/pypath"
	"soma/internal/store/postgres"
	"soma/wire"
)

// Free space in bytes of the home's file system below which doctor warns, and below which it fails.
const (
	lowSpace = 1 << 30
	noSpace  = 64 << 20
)

// grade is the outcome of one check.
type grade string

const (
	gradeOK   grade = "ok"
	gradeWarn grade = "warn"
	gradeFail grade = "fail"
)

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Result grade  `json:"result"`
	Text   string `json:"text"`
	Do     string `json:"do,omitempty"`
}

// healthWait bounds one question whether a daemon, or a database, answers.
const healthWait = 5 * time.Second

// Program is what the command needs of the program that it is a part of.
type Program interface {
	Home() config.Home
	// Config reads the settings; Env the environment.
	Config() (*config.Config, error)
	Env() config.Env
	Client() *client.Client
	// JSON reports whether JSON was asked for; PrintJSON writes a value as one line of it.
	JSON() bool
	PrintJSON(v any) error
	Output() io.Writer
	// Workspace is the folder one stands in.
	Workspace() (string, error)
	// FindPython returns the interpreter of python kernels in a folder; configured is that of the settings.
	FindPython(ctx context.Context, configured, folder string) (pypath.Interpreter, error)
	// UnitFile is where the system would look for a unit of the daemon.
	UnitFile() (string, error)
	// Reachable adds to the names of models what the daemon's variables give access to.
	Reachable(names, variables []string) []string
}

// checks look at one program's surroundings.
type checks struct{ Program }

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Command returns the command `doctor`.
func Command(p Program) *cobra.Command {
	a := checks{p}
	return &cobra.Command{
		Use:   "doctor",
		Short: "check everything that Soma needs here",
		Long:  "doctor looks and changes nothing; it starts no daemon. The exit code is 1 when a check failed.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.examine(cmd.Context())
			failed := false
			rows := [][]string{}
			for _, f := range findings {
				failed = failed || f.Result == gradeFail
				text := f.Text
				if f.Do != "" {
					text += "; " + f.Do
				}
				rows = append(rows, []string{string(f.Result), f.Check, plain.Clean(strings.ReplaceAll(text, "\n", "; "))})
			}
			var err error
			if a.JSON() {
				err = a.PrintJSON(map[string]any{"ok": !failed, "checks": findings})
			} else {
				_, err = io.WriteString(a.Output(), plain.Table(rows, nil))
			}
			if err == nil && failed {
				return exit.Quiet(exit.Failed)
			}
			return err
		},
	}
}

func (a checks) examine(ctx context.Context) []finding {
	cfg, configFinding := a.checkConfig()
	status, daemonFinding := a.checkDaemon(ctx)
	findings := []finding{a.checkHome(), a.checkToken(), configFinding, daemonFinding}
	if cfg != nil {
		findings = append(findings, a.checkPython(ctx, cfg), a.checkModels(ctx, cfg, status))
	}
	return append(findings, a.checkStore(ctx, cfg, status), a.checkSpace(), a.checkUnit())
}

func found(check string, result grade, do, format string, args ...any) finding {
	return finding{check, result, fmt.Sprintf(format, args...), do}
}

// blamed is the finding of an error, with its own way out.
func blamed(check string, err error) finding {
	f := exit.As(err)
	return finding{check, gradeFail, f.Err.Error(), f.Do}
}

// noToken reports whether the home has no token yet.
func (a checks) noToken() bool {
	_, err := a.Home().ReadToken()
	return isMissing(err)
}

func (a checks) checkHome() finding {
	info, err := os.Stat(a.Home().Dir())
	switch {
	case isMissing(err):
		return found("home", gradeWarn, "the first soma run makes it", "%s is not there yet", a.Home().Dir())
	case err != nil:
		return blamed("home", err)
	case info.Mode().Perm() != 0o700:
		return found("home", gradeFail, "run chmod 700 "+a.Home().Dir(), "%s has mode %04o: others may look into it", a.Home().Dir(), info.Mode().Perm())
	}
	if err := unix.Access(a.Home().Dir(), unix.W_OK); err != nil {
		return found("home", gradeFail, "make it writable, or set SOMA_HOME", "%s cannot be written: %v", a.Home().Dir(), err)
	}
	return found("home", gradeOK, "", "%s, mode 0700, writable", a.Home().Dir())
}

func (a checks) checkToken() finding {
	_, err := a.Home().ReadToken()
	switch {
	case isMissing(err):
		return found("token", gradeWarn, "the first daemon makes it", "there is none yet")
	case err != nil:
		return blamed("token", err)
	}
	return found("token", gradeOK, "", "there, mode 0600")
}

func (a checks) checkConfig() (*config.Config, finding) {
	cfg, err := a.Config()
	if err != nil {
		return nil, blamed("config", err)
	}
	if _, err := os.Stat(a.Home().ConfigFile()); isMissing(err) {
		return cfg, found("config", gradeOK, "", "no %s: the defaults hold", a.Home().ConfigFile())
	}
	return cfg, found("config", gradeOK, "", "%s is good", a.Home().ConfigFile())
}

// checkDaemon looks at lock and socket together: one without the other is a daemon that starts, ends or hangs.
func (a checks) checkDaemon(ctx context.Context) (*wire.Status, finding) {
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	status, err := a.Client().Status(ctx)
	if err == nil {
		return &status, found("daemon", gradeOK, "", "pid %d answers at %s, build %s", status.PID, status.Socket, status.Version)
	}
	if _, statErr := os.Stat(a.Home().Dir()); isMissing(statErr) {
		return nil, found("daemon", gradeOK, "", "none runs; the next command starts one")
	}
	if !errors.Is(err, client.ErrLost) && !a.noToken() {
		return nil, blamed("daemon", err)
	}
	if locked := a.Home().Holder(); locked != nil {
		return nil, found("daemon", gradeFail, "see soma logs --daemon", "pid %d holds the home but does not answer", locked.PID)
	}
	return nil, found("daemon", gradeOK, "", "none runs; the next command starts one")
}

func (a checks) checkPython(ctx context.Context, cfg *config.Config) finding {
	dir, err := a.Workspace()
	if err != nil {
		return blamed("python", err)
	}
	py, err := a.FindPython(ctx, cfg.Python, dir)
	if err != nil {
		return blamed("python", err)
	}
	return found("python", gradeOK, "", "%s, version %s", py.Path, py.Version())
}

// checkModels asks the daemon, whose environment counts; without one it looks at what a daemon started now would have.
func (a checks) checkModels(ctx context.Context, cfg *config.Config, status *wire.Status) finding {
	if status == nil {
		model, err := cfg.Resolve("", a.Env())
		if err != nil {
			return noModel(err)
		}
		if _, err := model.Key(a.Env()); err != nil {
			return found("models", gradeFail, "set it, or name another model", "%v", err)
		}
		return found("models", gradeOK, "", "%s", model.Name)
	}
	models, err := a.Client().Models(ctx)
	if err != nil {
		return blamed("models", err)
	}
	var names, problems []string
	for _, m := range models {
		if m.Problem != "" {
			problems = append(problems, m.Name+": "+m.Problem)
		} else {
			names = append(names, m.Name)
		}
	}
	switch {
	case len(problems) > 0:
		return found("models", gradeWarn, "mend the config or the environment, then soma stop", "%s", strings.Join(problems, ", "))
	case len(names) == 0:
		_, err := cfg.Resolve("", a.Env())
		return noModel(err)
	}
	return found("models", gradeOK, "", "%s", strings.Join(a.Reachable(names, status.ProviderEnv), ", "))
}

func noModel(err error) finding {
	var choose *config.ChooseModelError
	if errors.As(err, &choose) {
		return found("models", gradeWarn, "", "%v", err)
	}
	if err == nil {
		return found("models", gradeWarn, "run soma stop: the next command starts the daemon with what is set here", "the daemon has none")
	}
	return found("models", gradeWarn, "", "%v", err)
}

func (a checks) checkStore(ctx context.Context, cfg *config.Config, status *wire.Status) finding {
	if status != nil {
		return found("store", gradeOK, "", "%s %s, %s; its schema is the daemon's", status.Store.Engine, status.Store.Path, plain.Size(status.Store.Bytes))
	}
	if cfg != nil && cfg.Store != "" {
		ctx, cancel := context.WithTimeout(ctx, healthWait)
		defer cancel()
		if err := postgres.Reach(ctx, cfg.Store.Reveal()); err != nil {
			return found("store", gradeFail, "mend store: or SOMA_STORE, or start the server", "postgres %s: %v", cfg.Store.Shown(), err)
		}
		return found("store", gradeOK, "", "postgres %s answers; the daemon checks its schema when it starts", cfg.Store.Shown())
	}
	f, err := os.Open(a.Home().Database())
	if isMissing(err) {
		return found("store", gradeOK, "", "none yet")
	}
	if err != nil {
		return blamed("store", err)
	}
	defer f.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3")) {
		return found("store", gradeFail, "restore a backup with soma restore --replace", "%s is no database", a.Home().Database())
	}
	return found("store", gradeOK, "", "%s is there; the daemon checks its schema when it starts", a.Home().Database())
}

func (a checks) checkSpace() finding {
	dir := a.Home().Dir()
	for {
		var disk unix.Statfs_t
		err := unix.Statfs(dir, &disk)
		if errors.Is(err, unix.ENOENT) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return blamed("disk", err)
		}
		return gradeSpace(int64(disk.Bavail) * disk.Bsize)
	}
}

func gradeSpace(free int64) finding {
	switch {
	case free < noSpace:
		return found("disk", gradeFail, "make room: the daemon ends when it cannot commit", "%s free", plain.Size(free))
	case free < lowSpace:
		return found("disk", gradeWarn, "make room", "%s free", plain.Size(free))
	}
	return found("disk", gradeOK, "", "%s free", plain.Size(free))
}

func (a checks) checkUnit() finding {
	file, err := a.UnitFile()
	if err != nil {
		return blamed("systemd", err)
	}
	if _, err := os.Stat(file); err != nil {
		return found("systemd", gradeWarn, "soma serve --install writes one", "no user unit: after a crash or a reboot the next command starts the daemon, not the system")
	}
	return found("systemd", gradeOK, "", "%s", file)
}
