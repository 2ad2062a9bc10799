package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/config"
	"soma/internal/daemonlog"
	"soma/wire"
)

// How long a stop may take: with python kernels it ends them too.
const (
	stopTime        = 5 * time.Second
	stopKernelsTime = 30 * time.Second
)

// settingFlags gives cmd a flag for each setting, and returns what was given on the command line.
func settingFlags(cmd *cobra.Command) func() map[string]string {
	for _, s := range config.Settings() {
		cmd.Flags().String(s.Flag(), "", s.Usage)
	}
	return func() map[string]string {
		given := map[string]string{}
		for _, s := range config.Settings() {
			if f := cmd.Flags().Lookup(s.Flag()); f.Changed {
				given[s.Key] = f.Value.String()
			}
		}
		return given
	}
}

func (a *app) cmdServe() *cobra.Command {
	var background, install bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the daemon in the foreground",
		Long: "serve runs the daemon of this home until it is told to stop. Other commands start one in the background when it is\n" +
			"needed. Its log goes to daemon.log in the home, and here. Nothing listens but the socket in the home, unless --listen or\n" +
			"--store says so: daemons that share a PostgreSQL database take part of the work each, and any of them takes any request.",
		Args: cobra.NoArgs,
	}
	flags := settingFlags(cmd)
	cmd.Flags().BoolVar(&background, "background", false, "log to the file alone")
	_ = cmd.Flags().MarkHidden("background")
	cmd.Flags().BoolVar(&install, "install", false, "write a systemd user unit that keeps a daemon running, and say how to start it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if install {
			return a.install()
		}
		return a.serve(cmd.Context(), flags(), background)
	}
	return cmd
}

func (a *app) serve(ctx context.Context, flags map[string]string, background bool) error {
	cfg, err := a.config(flags)
	if err != nil {
		return err
	}
	if err := a.home.Create(); err != nil {
		return err
	}
	log, err := daemonlog.Open(a.home.DaemonLog(), background, a.Err)
	if err != nil {
		return &config.HomeError{Home: a.home.Dir(), Err: err}
	}
	defer log.Close()
	return a.hooks.Serve(ctx, a.home, cfg, ServeOptions{Build: Build(), Log: log})
}

// install writes a systemd unit of the person's own.
func (a *app) install() error {
	self, err := os.Executable()
	if err != nil {
		return exit.Faultf(exit.Failed, "", "cannot write the unit: %w", err)
	}
	file, err := a.unitFile()
	if err != nil {
		return err
	}
	if strings.ContainsAny(self+a.home.Dir(), "\n\"\\%") {
		return exit.Faultf(exit.Refused, "use plain paths", "cannot write the unit: systemd does not take the paths %q and %q", self, a.home.Dir())
	}
	text := fmt.Sprintf("[Unit]\nDescription=Soma daemon\n\n[Service]\nExecStart=\"%s\" serve\nEnvironment=\"SOMA_HOME=%s\"\nRestart=always\nRestartSec=2\nKillMode=process\n\n[Install]\nWantedBy=default.target\n",
		self, a.home.Dir())
	if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return exit.Faultf(exit.Failed, "", "cannot write the unit: %w", err)
	}
	const next = "systemctl --user daemon-reload && systemctl --user enable --now soma"
	if a.asJSON {
		return a.printJSON(map[string]string{"file": file, "next": next})
	}
	_, err = fmt.Fprintf(a.Out, "wrote %s; start it with\n  %s\n", file, next)
	return err
}

// unitFile is where systemd looks for the unit.
func (a *app) unitFile() (string, error) {
	dir, _ := a.env("XDG_CONFIG_HOME")
	if dir == "" {
		user, _ := a.env("HOME")
		if user == "" {
			return "", exit.Faultf(exit.Home, "set HOME", "cannot find the folder of systemd units")
		}
		dir = filepath.Join(user, ".config")
	}
	return filepath.Join(dir, "systemd", "user", "soma.service"), nil
}

func (a *app) cmdStop() *cobra.Command {
	var kernels bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "stop the daemon",
		Long: "stop ends the daemon of this home. Its python kernels and what they run live on, and the next daemon finds them; with\n" +
			"--kernels they end too. Their names are not kept yet.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.ending = true
			return a.stop(cmd.Context(), kernels)
		},
	}
	cmd.Flags().BoolVar(&kernels, "kernels", false, "end the python kernels too; their names are lost")
	return cmd
}

func (a *app) stop(ctx context.Context, kernels bool) error {
	within := stopTime
	if kernels {
		within = stopKernelsTime
	}
	stopped, err := a.stopDaemon(ctx, kernels, within)
	if _, tokenErr := a.home.ReadToken(); tokenErr != nil {
		if holder := a.home.Holder(); holder != nil {
			return exit.Faultf(exit.Refused, fmt.Sprintf("end it with kill %d", holder.PID), "cannot ask the daemon to stop: %w", tokenErr)
		}
	}
	if errors.Is(err, client.ErrLost) || err != nil && a.noToken() {
		if err := a.awaitHolder(ctx, within); err != nil {
			return err
		}
		return a.nothingToStop(kernels)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		do := "see soma logs --daemon"
		if holder := a.home.Holder(); holder != nil {
			do += fmt.Sprintf(", or end it with kill -9 %d", holder.PID)
		}
		return exit.Faultf(exit.Busy, do, "cannot stop the daemon within %s: it is still at it", within)
	}
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(stopped)
	}
	text := fmt.Sprintf("stopped the daemon (pid %d); python kernels live on", stopped.PID)
	if kernels && stopped.Kernels == 0 {
		text = fmt.Sprintf("stopped the daemon (pid %d); there were no python kernels", stopped.PID)
	} else if kernels {
		text = fmt.Sprintf("stopped the daemon (pid %d) and %s; their names are not kept", stopped.PID, count(stopped.Kernels, "python kernel"))
	}
	_, err = fmt.Fprintln(a.Out, text)
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// awaitHolder waits for the end of a daemon that holds the home and does not answer: one that is stopping ends soon.
func (a *app) awaitHolder(ctx context.Context, within time.Duration) error {
	holder := a.home.Holder()
	if holder == nil || holder.PID == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := awaitEnd(limited, holder.PID); err != nil && ctx.Err() != nil {
		return err
	}
	if still := a.home.Holder(); still != nil && still.PID == holder.PID {
		return mute(holder, "stop the daemon")
	}
	return nil
}

// mute says that a command cannot go on because the daemon that holds the home does not answer.
func mute(holder *config.LockedError, what string) error {
	if holder.PID == 0 {
		return exit.Faultf(exit.NoDaemon, "try again", "cannot %s: another one is starting on %s", what, holder.Home)
	}
	return exit.Faultf(exit.NoDaemon, fmt.Sprintf("wait if it starts, else end it with kill %d", holder.PID),
		"cannot %s: the one with pid %d holds %s and does not answer on its socket", what, holder.PID, holder.Home)
}

// nothingToStop is what stop says without a daemon. Kernels that have outlived theirs can be ended by a daemon only.
func (a *app) nothingToStop(kernels bool) error {
	left, _ := os.ReadDir(a.home.Run())
	if kernels && len(left) > 0 {
		return exit.Faultf(exit.NoDaemon, "run soma ps to start one, then soma stop --kernels", "cannot end python kernels: no daemon runs on %s", a.home.Dir())
	}
	if a.asJSON {
		return a.printJSON(wire.Stopped{})
	}
	_, err := fmt.Fprintf(a.Out, "no daemon runs on %s\n", a.home.Dir())
	return err
}

// awaitEnd waits until an OS process is gone.
func awaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot watch the daemon (pid %d): %w", pid, err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(10*poll/time.Millisecond))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot watch the daemon (pid %d): %w", pid, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
