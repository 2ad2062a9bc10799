package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/chaos"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/config"
)

// Program is what the command needs of the program that it is a part of.
type Program interface {
	// Config reads the settings.
	Config() (*config.Config, error)
	// JSON reports whether JSON was asked for; PrintJSON writes a value as one line of it.
	JSON() bool
	PrintJSON(v any) error
	Output() io.Writer
	// Errors is where a person is told what goes on; Terminal reports whether it is one.
	Errors() io.Writer
	Terminal() bool
}

const (
	// leastTime is how long it takes to see anything.
	leastTime = 5 * time.Second
	maxAgents = 64
	// lineTime is the time between two words on the progress off a terminal.
	lineTime = 30 * time.Second
	// maxShown is how many findings are shown; the folder has them all.
	maxShown = 20
)

// Commands returns the command of this room.
func Commands(p Program) []*cobra.Command {
	var o chaos.Options
	var dir string
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "kill daemons on this disk at random, and see that nothing is lost",
		Long: "chaos starts a daemon of its own, in a new folder, and lets scripted agents run code in python kernels, without a model. It kills\n" +
			"the daemon and its python kernels with kill -9 at random moments, pauses it, cuts its connections, and starts it again. Each cell\n" +
			"leaves a mark on the disk. In the end it compares the marks with what the transcripts say: lost is what was said to have happened\n" +
			"and did not, or did not come to its end; doubled is what ran twice; left over is an OS process that outlived the stop. All three\n" +
			"must be 0. A cell that a kill has cut off is told as unknown and is neither.\n\n" +
			"Your own home, daemon and models are not touched. Ctrl-C ends it in order, without a verdict. The folder is removed, unless something was wrong: then\n" +
			"it is kept and named. The exit code is 0 when it passed, else 1. A session that was begun is followed to its end, so that it takes a\n" +
			"little longer than --for.",
		Example: "  soma chaos --for 10m\n  soma chaos --for 1m --seed 42 --dir /mnt/disk -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.For < leastTime || o.Agents < 1 || o.Agents > maxAgents {
				return exit.Faultf(exit.Usage, "", "cannot try that: --for is %s at least, --agents 1 to %d", leastTime, maxAgents)
			}
			return run(cmd.Context(), p, o, dir)
		},
	}
	cmd.Flags().DurationVar(&o.For, "for", time.Minute, "how `LONG` to disturb, such as 10m")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "seed `N` of what is done when; a new one without it")
	cmd.Flags().IntVar(&o.Agents, "agents", 4, "`N` agents that work at once")
	cmd.Flags().StringVar(&dir, "dir", "", "folder `DIR` on the disk that is to be tried (default: your cache folder)")
	return []*cobra.Command{cmd}
}

// result is what is printed as JSON.
type result struct {
	chaos.Verdict
	Kept string `json:"kept,omitempty"` // the folder, where something was wrong
}

func run(ctx context.Context, p Program, o chaos.Options, dir string) (err error) {
	cfg, err := p.Config()
	if err != nil {
		return err
	}
	o.Python, o.Environ, o.Daemons = cfg.Python, os.Environ(), 1
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano() % 1_000_000_000)
	}
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	if o.Dir, err = folder(dir); err != nil {
		return exit.Faultf(exit.BadFile, "name a folder of yours with --dir", "cannot make a folder to work in: %w", err)
	}
	keep := false
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(o.Dir))
		}
	}()
	if !p.JSON() {
		fmt.Fprintf(p.Errors(), "soma: chaos for %s in %s, seed %d; Ctrl-C ends it in order\n", o.For, o.Dir, o.Seed)
	}
	told, done := progress(p, o.For)
	o.Progress = told
	v, err := chaos.Run(ctx, o)
	done()
	if err != nil {
		keep = true
		return exit.Faultf(exit.Failed, "the folder "+o.Dir+" is kept, with the daemon's log; soma doctor checks what is needed here", "cannot try it: %s", err.Error()) // an interrupt in it must not look like a detached client
	}
	keep = !v.Passed && !clean(v)
	r := result{Verdict: v}
	if keep {
		r.Kept = o.Dir
		if err := os.WriteFile(filepath.Join(o.Dir, "found"), []byte(strings.Join(found(v), "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	if p.JSON() {
		err = p.PrintJSON(r)
	} else {
		_, err = io.WriteString(p.Output(), text(r))
	}
	if err == nil && !v.Passed {
		err = exit.Quiet(exit.Failed)
	}
	return err
}

// folder makes a new folder below dir, by default where a person's programs keep what can be made again: on his own disk, not in
// memory as /tmp may be.
func folder(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "soma-chaos-")
}

// progress returns what tells how far it is, and what takes the line away.
func progress(p Program, total time.Duration) (told func(chaos.Progress), done func()) {
	if p.JSON() {
		return nil, func() {}
	}
	line := func(now chaos.Progress) string {
		text := fmt.Sprintf("%s of %s: %d kills, %d pauses, %d cuts; %d sessions done, %d cells; %d wrong",
			now.Elapsed.Round(time.Second), total, now.Kills, now.Pauses, now.Cuts, now.Sessions, now.Cells, now.Wrong)
		if now.Ending {
			text += "; the last sessions come to their ends"
		}
		return text
	}
	if p.Terminal() {
		return func(now chaos.Progress) { fmt.Fprintf(p.Errors(), "\r\x1b[K%s", line(now)) }, func() { fmt.Fprint(p.Errors(), "\r\x1b[K") }
	}
	var last time.Duration
	return func(now chaos.Progress) {
		if now.Elapsed-last >= lineTime {
			last = now.Elapsed
			fmt.Fprintf(p.Errors(), "soma: %s\n", line(now))
		}
	}, func() {}
}

// clean reports whether nothing wrong was found.
func clean(v chaos.Verdict) bool { return len(v.Lost)+len(v.Doubled)+len(v.Left) == 0 }

func found(v chaos.Verdict) []string {
	var all []string
	for _, kind := range []struct {
		name string
		list []string
	}{{"lost", v.Lost}, {"doubled", v.Doubled}, {"left over", v.Left}} {
		for _, text := range kind.list {
			all = append(all, kind.name+": "+text)
		}
	}
	return all
}

// text is the verdict as a person reads it.
func text(r result) string {
	v := r.Verdict
	slowest := "-"
	if v.SlowestMS > 0 {
		slowest = (time.Duration(v.SlowestMS) * time.Millisecond).String()
	}
	rows := [][]string{
		{"disturbed", fmt.Sprintf("%d kills of the daemon, %d of python kernels, %d pauses, %d connections cut", v.DaemonKills, v.KernelKills, v.Pauses, v.Cuts)},
		{"worked", fmt.Sprintf("%d sessions to their end with %d cells; %d results unknown, and said to be", v.Sessions, v.Cells, v.Unknown)},
		{"lost", fmt.Sprint(len(v.Lost))},
		{"doubled", fmt.Sprint(len(v.Doubled))},
		{"left over", fmt.Sprint(len(v.Left))},
		{"slowest recovery", slowest + " from a kill to the next answer"},
	}
	out := plain.Table(rows, nil)
	switch {
	case v.Passed:
		return out + "passed: nothing was lost, nothing ran twice, nothing was left over\n"
	case clean(v) && v.Interrupted:
		return out + "interrupted: nothing wrong until then, but no verdict\n"
	case clean(v):
		return out + "failed: no session came to its end in that time, so nothing is proved; try --for 1m or longer\n"
	}
	out += "failed:\n"
	all := found(v)
	for _, f := range all[:min(len(all), maxShown)] {
		out += "  " + plain.Clean(f) + "\n"
	}
	if more := len(all) - maxShown; more > 0 {
		out += fmt.Sprintf("  and %d more\n", more)
	}
	return out + fmt.Sprintf("kept: %s with home (the store), home.log (the daemon's log) and found (all of this)\n"+
		"what to do: soma chaos --seed %d tries the same again; report it with that folder, and back your own store up with soma backup\n", r.Kept, v.Seed)
}
