package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"soma/internal/chaos"
	"soma/internal/store/postgres/postgrestest"
)

// settings are what the command line says.
type settings struct {
	kills, agents, daemons int
	seed                   uint64
	engine                 string
	length                 time.Duration
	cuts                   bool
}

func main() {
	var s settings
	flag.IntVar(&s.kills, "kills", 200, "kills of daemons and python kernels; 0: as many as fit into -for")
	flag.IntVar(&s.agents, "agents", 4, "agents that work at once")
	flag.IntVar(&s.daemons, "daemons", 1, "daemons that share the store")
	flag.StringVar(&s.engine, "engine", "sqlite", "sqlite or postgres, whose server is started for it")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random kills")
	flag.DurationVar(&s.length, "for", 5*time.Minute, "how long the size is watched; with -kills 0 or -engine postgres, how long is killed")
	flag.BoolVar(&s.cuts, "cuts", false, "pauses of daemons and cuts of connections, too; always with -engine postgres")
	what := flag.String("what", "kills", "kills: of daemons and python kernels; size: whether the store stops growing under constant work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// go run, once it is killed, would leave this program behind.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "soak: cannot end with who has started it:", err)
		os.Exit(1)
	}
	var clean bool
	var err error
	switch *what {
	case "kills":
		clean, err = kills(ctx, s)
	case "size":
		clean, err = sizes(ctx, s.length, 4*s.agents)
	default:
		err = fmt.Errorf("there is no soak %q", *what)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if !clean {
		os.Exit(1)
	}
}

// lease is short, so that many takeovers fit into a soak.
const lease = 3 * time.Second

// build makes the program in a folder.
func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "soma")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/soma").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build: %w\n%s", err, out)
	}
	return bin, nil
}

// kills runs the chaos and prints its verdict. The folder is kept where something was wrong.
func kills(ctx context.Context, s settings) (clean bool, err error) {
	dir, err := os.MkdirTemp("", "soma-soak-")
	if err != nil {
		return false, err
	}
	defer func() {
		if clean {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	bin, err := build(ctx, dir)
	if err != nil {
		return false, err
	}
	o := chaos.Options{
		Program: bin, Dir: dir, Seed: s.seed, Kills: s.kills, Agents: s.agents, Daemons: s.daemons, Environ: os.Environ(), Gentle: !s.cuts,
	}
	if s.kills == 0 {
		o.For = s.length
	}
	if s.engine == "postgres" {
		o.For, o.Kills, o.Lease, o.Gentle = s.length, 0, lease, false
		server, err := postgrestest.Start(ctx, os.TempDir())
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		name, err := server.Create(ctx, "")
		if err != nil {
			return false, err
		}
		o.Store = server.DSN(name)
	}
	fmt.Printf("soak: %s, %d daemons, %d agents, seed %d, folder %s\n", s.engine, s.daemons, s.agents, s.seed, dir)
	var last int64
	o.Progress = func(p chaos.Progress) {
		if p.Kills-last >= 20 {
			last = p.Kills
			fmt.Printf("soak: %d kills, %d sessions, %d cells\n", p.Kills, p.Sessions, p.Cells)
		}
	}
	v, err := chaos.Run(ctx, o)
	if err != nil {
		return false, err
	}
	for _, text := range append(append(v.Lost, v.Doubled...), v.Left...) {
		fmt.Println("soak:", text)
	}
	fmt.Printf("soak: kills %d (daemon %d, python kernels %d), pauses %d, cuts %d, sessions %d, cells %d, wakes %d, results unknown %d, crash loops resumed %d, slowest recovery %d ms\n",
		v.DaemonKills+v.KernelKills, v.DaemonKills, v.KernelKills, v.Pauses, v.Cuts, v.Sessions, v.Cells, v.Wakes, v.Unknown, v.Resumed, v.SlowestMS)
	fmt.Printf("soak: lost %d, doubled %d, left over %d\n", len(v.Lost), len(v.Doubled), len(v.Left))
	return v.Passed, nil
}
