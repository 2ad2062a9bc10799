package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/config"
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

func (a *app) cmdDoctor() *cobra.Command {
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
			if a.asJSON {
				err = a.printJSON(map[string]any{"ok": !failed, "checks": findings})
			} else {
				_, err = io.WriteString(a.Out, plain.Table(rows, nil))
			}
			if err == nil && failed {
				return exit.Quiet(exit.Failed)
			}
			return err
		},
	}
}

func (a *app) examine(ctx context.Context) []finding {
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

func (a *app) checkHome() finding {
	info, err := os.Stat(a.home.Dir())
	switch {
	case isMissing(err):
		return found("home", gradeWarn, "the first soma run makes it", "%s is not there yet", a.home.Dir())
	case err != nil:
		return blamed("home", err)
	case info.Mode().Perm() != 0o700:
		return found("home", gradeFail, "run chmod 700 "+a.home.Dir(), "%s has mode %04o: others may look into it", a.home.Dir(), info.Mode().Perm())
	}
	if err := unix.Access(a.home.Dir(), unix.W_OK); err != nil {
		return found("home", gradeFail, "make it writable, or set SOMA_HOME", "%s cannot be written: %v", a.home.Dir(), err)
	}
	return found("home", gradeOK, "", "%s, mode 0700, writable", a.home.Dir())
}

func (a *app) checkToken() finding {
	_, err := a.home.ReadToken()
	switch {
	case isMissing(err):
		return found("token", gradeWarn, "the first daemon makes it", "there is none yet")
	case err != nil:
		return blamed("token", err)
	}
	return found("token", gradeOK, "", "there, mode 0600")
}

func (a *app) checkConfig() (*config.Config, finding) {
	cfg, err := a.config(nil)
	if err != nil {
		return nil, blamed("config", err)
	}
	if _, err := os.Stat(a.home.ConfigFile()); isMissing(err) {
		return cfg, found("config", gradeOK, "", "no %s: the defaults hold", a.home.ConfigFile())
	}
	return cfg, found("config", gradeOK, "", "%s is good", a.home.ConfigFile())
}

// checkDaemon looks at lock and socket together: one without the other is a daemon that starts, ends or hangs.
func (a *app) checkDaemon(ctx context.Context) (*wire.Status, finding) {
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	status, err := a.client.Status(ctx)
	if err == nil {
		return &status, found("daemon", gradeOK, "", "pid %d answers at %s, build %s", status.PID, status.Socket, status.Version)
	}
	if _, statErr := os.Stat(a.home.Dir()); isMissing(statErr) {
		return nil, found("daemon", gradeOK, "", "none runs; the next command starts one")
	}
	if !errors.Is(err, client.ErrLost) && !a.noToken() {
		return nil, blamed("daemon", err)
	}
	if locked := a.home.Holder(); locked != nil {
		return nil, found("daemon", gradeFail, "see soma logs --daemon", "pid %d holds the home but does not answer", locked.PID)
	}
	return nil, found("daemon", gradeOK, "", "none runs; the next command starts one")
}

func (a *app) checkPython(ctx context.Context, cfg *config.Config) finding {
	dir, err := a.workspace()
	if err != nil {
		return blamed("python", err)
	}
	py, err := a.findPython(ctx, "", cfg.Python, dir)
	if err != nil {
		return blamed("python", err)
	}
	return found("python", gradeOK, "", "%s, version %s", py.Path, py.Version())
}

// checkModels asks the daemon, whose environment counts; without one it looks at what a daemon started now would have.
func (a *app) checkModels(ctx context.Context, cfg *config.Config, status *wire.Status) finding {
	if status == nil {
		model, err := cfg.Resolve("", a.env)
		if err != nil {
			return noModel(err)
		}
		if _, err := model.Key(a.env); err != nil {
			return found("models", gradeFail, "set it, or name another model", "%v", err)
		}
		return found("models", gradeOK, "", "%s", model.Name)
	}
	models, err := a.client.Models(ctx)
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
		_, err := cfg.Resolve("", a.env)
		return noModel(err)
	}
	return found("models", gradeOK, "", "%s", strings.Join(reachable(names, status.ProviderEnv), ", "))
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

func (a *app) checkStore(ctx context.Context, cfg *config.Config, status *wire.Status) finding {
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
	f, err := os.Open(a.home.Database())
	if isMissing(err) {
		return found("store", gradeOK, "", "none yet")
	}
	if err != nil {
		return blamed("store", err)
	}
	defer f.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3")) {
		return found("store", gradeFail, "restore a backup with soma restore --replace", "%s is no database", a.home.Database())
	}
	return found("store", gradeOK, "", "%s is there; the daemon checks its schema when it starts", a.home.Database())
}

func (a *app) checkSpace() finding {
	dir := a.home.Dir()
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if errors.Is(err, unix.ENOENT) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return blamed("disk", err)
		}
		return gradeSpace(int64(fs.Bavail) * fs.Bsize)
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

func (a *app) checkUnit() finding {
	file, err := a.unitFile()
	if err != nil {
		return blamed("systemd", err)
	}
	if _, err := os.Stat(file); err != nil {
		return found("systemd", gradeWarn, "soma serve --install writes one", "no user unit: after a crash or a reboot the next command starts the daemon, not the system")
	}
	return found("systemd", gradeOK, "", "%s", file)
}
