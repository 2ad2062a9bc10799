package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"soma/client"
	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/wire"
)

func (a *app) cmdStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "tell of the daemon: pid, socket, store, kernels, models",
		Long:  "status asks the daemon of this home and starts none: without one the exit code is 69.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthWait)
			defer cancel()
			s, err := a.client.Status(ctx)
			if err != nil {
				return a.absent(err)
			}
			if a.asJSON {
				return a.printJSON(s)
			}
			_, err = io.WriteString(a.Out, statusText(s, time.Now()))
			return err
		},
	}
}

// absent says of an error that no daemon runs, if it means that.
func (a *app) absent(err error) error {
	holder := a.home.Holder()
	switch {
	case holder == nil:
	case errors.Is(err, client.ErrLost):
		return mute(holder, "ask the daemon")
	case errors.Is(err, context.DeadlineExceeded):
		return exit.Faultf(exit.Busy, fmt.Sprintf("try again, or end it with kill -9 %d", holder.PID),
			"cannot ask the daemon: the one with pid %d has not answered within %s", holder.PID, healthWait)
	}
	if errors.Is(err, client.ErrLost) || a.noToken() {
		return exit.Faultf(exit.NoDaemon, "the next soma run starts one", "no daemon runs on %s", a.home.Dir())
	}
	return err
}

// noToken reports whether this home never had a daemon.
func (a *app) noToken() bool {
	_, err := a.home.ReadToken()
	return isMissing(err)
}

func statusText(s wire.Status, now time.Time) string {
	states := make([]string, 0, len(s.Processes))
	for state, n := range s.Processes {
		states = append(states, fmt.Sprintf("%d %s", n, state))
	}
	slices.Sort(states)
	rows := [][]string{
		{"daemon", fmt.Sprintf("pid %d, up %s, build %s, wire %d", s.PID, plain.Age(now.Sub(s.StartedAt)), s.Version, s.Wire)},
		{"home", s.Home},
		{"socket", s.Socket},
		{"store", fmt.Sprintf("%s %s, %s and %s of log", s.Store.Engine, s.Store.Path, plain.Size(s.Store.Bytes), plain.Size(s.Store.WAL))},
		{"processes", orNone(states)},
		{"models", orNone(reachable(s.Models, s.ProviderEnv))},
		{"provider keys", orNone(s.ProviderEnv)},
		{"kernels", orNone(nil)},
	}
	if s.URL != "" {
		rows = slices.Insert(rows, 3, []string{"url", s.URL})
	}
	nodes, sizes := nodeTable(s), sizeTable(s.Store)
	if len(s.Kernels) == 0 {
		return plain.Table(rows, nil) + sizes + nodes
	}
	kernels := [][]string{{"KERNEL", "PID", "STATE", "CELLS", "USED", "PYTHON", "WORKSPACE"}}
	if nodes != "" {
		kernels[0] = append(kernels[0], "NODE")
	}
	for _, k := range s.Kernels {
		row := []string{
			k.ID, fmt.Sprint(k.PID), k.State, fmt.Sprint(k.Cells), plain.Age(now.Sub(k.UsedAt)), plain.Clean(k.Python), plain.Clean(k.Workspace),
		}
		if nodes != "" {
			row = append(row, plain.Clean(k.Node))
		}
		kernels = append(kernels, row)
	}
	return plain.Table(rows[:len(rows)-1], nil) + sizes + nodes + "\n" + plain.Table(kernels, map[int]bool{1: true, 3: true, 4: true})
}

// sizeTable lists what takes how much, after an empty line; it is empty where that is not known yet.
func sizeTable(s wire.StoreStatus) string {
	if len(s.Groups) == 0 {
		return ""
	}
	rows := [][]string{{"HOLDS", "ROWS", "SIZE"}}
	for _, g := range s.Groups {
		rows = append(rows, []string{g.Name, fmt.Sprint(g.Rows), plain.Size(g.Bytes)})
	}
	if s.Free > 0 {
		rows = append(rows, []string{"free", "-", plain.Size(s.Free)})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		rows = append(rows, []string{name + " (files)", "-", plain.Size(s.Files[name])})
	}
	return "\n" + plain.Table(rows, map[int]bool{1: true, 2: true})
}

// nodeTable lists the daemons that share the store, after an empty line; it is empty where the store is the daemon's own.
func nodeTable(s wire.Status) string {
	if s.Node == "" {
		return ""
	}
	rows := [][]string{{"NODE", "PLACES", "BEAT", "STATE", "URL"}}
	for _, n := range s.Nodes {
		beat, state := "-", "lost"
		if n.BeatMS != nil {
			beat = (time.Duration(*n.BeatMS) * time.Millisecond).Round(100 * time.Millisecond).String()
		}
		switch {
		case n.ID == s.Node:
			state = "this one"
		case n.Alive:
			state = "alive"
		case n.BeatMS == nil:
			state = "left"
		}
		rows = append(rows, []string{plain.Clean(n.ID), fmt.Sprint(n.Places), beat, state, cmp.Or(plain.Clean(n.URL), "-")})
	}
	return "\n" + plain.Table(rows, map[int]bool{1: true, 2: true})
}

// reachable adds to the names of models what the daemon's variables give access to.
func reachable(names, variables []string) []string {
	names = slices.Clone(names)
	for _, v := range variables {
		switch v {
		case "OPENAI_API_KEY", "OPENAI_BASE_URL":
			names = append(names, "openai:MODEL")
		case "OLLAMA_HOST":
			names = append(names, "ollama:MODEL")
		}
	}
	return slices.Compact(names)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return plain.Clean(strings.Join(list, ", "))
}

func (a *app) cmdVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the build of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Build string `json:"build"`
				Wire  int    `json:"wire"`
				Go    string `json:"go"`
			}{Build(), wire.Version, runtime.Version()}
			if a.asJSON {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.Out, "soma %s, wire %d, %s\n", v.Build, v.Wire, v.Go)
			return err
		},
	}
}

func (a *app) cmdConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "print the settings and where each comes from",
		Long:  "config prints each setting after flags, SOMA_* variables and config.yaml were merged. Secrets are never printed.",
		Args:  cobra.NoArgs,
	}
	flags := settingFlags(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := a.config(flags())
		if err != nil {
			return err
		}
		if a.asJSON {
			return a.printJSON(map[string]any{"file": a.home.ConfigFile(), "settings": cfg.Rows()})
		}
		rows := [][]string{{"KEY", "VALUE", "SOURCE"}}
		for _, r := range cfg.Rows() {
			rows = append(rows, []string{r.Key, cmp.Or(plain.Clean(r.Value), "-"), string(r.Source)})
		}
		there := ""
		if _, err := os.Stat(a.home.ConfigFile()); isMissing(err) {
			there = " (not there)"
		}
		_, err = fmt.Fprintf(a.Out, "%s\nfile: %s%s\n", plain.Table(rows, nil), a.home.ConfigFile(), there)
		return err
	}
	return cmd
}

// stopDaemon tells the daemon to stop and waits for its end.
func (a *app) stopDaemon(ctx context.Context, kernels bool, within time.Duration) (wire.Stopped, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	stopped, err := a.client.Stop(ctx, wire.Stop{Kernels: kernels})
	if err != nil {
		return stopped, err
	}
	return stopped, awaitEnd(ctx, stopped.PID)
}
