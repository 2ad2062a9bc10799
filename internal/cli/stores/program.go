package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/config"
	"soma/internal/neuron"
	"soma/internal/store/archive"
	"soma/internal/store/postgres"
	"soma/internal/store/schema"
	"soma/internal/store/transfer"
)

// Program is what the commands need of the program that they are a part of.
type Program interface {
	Home() config.Home
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

// Commands returns the commands of this room.
func Commands(p Program) []*cobra.Command {
	store := &cobra.Command{
		Use:   "store",
		Short: "move whole stores",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	store.AddCommand(cmdCopy(p))
	return []*cobra.Command{store, cmdBackup(p), cmdRestore(p)}
}

// configured is the store that the settings name.
func configured(p Program) (archive.Place, error) {
	cfg, err := p.Config()
	if err != nil {
		return archive.Place{}, err
	}
	if cfg.Store != "" {
		return archive.Place{Database: cfg.Store}, nil
	}
	return archive.Place{Home: p.Home().Dir()}, nil
}

// place is what a person means by an end of a copy.
func place(p Program, text string) (archive.Place, error) {
	switch text {
	case "home":
		return archive.Place{Home: p.Home().Dir()}, nil
	case "store":
		at, err := configured(p)
		if err == nil && at.Database == "" {
			err = exit.Faultf(exit.Usage, "set store: in config.yaml or SOMA_STORE, or write home", "cannot tell which database is meant: the settings name none")
		}
		return at, err
	}
	at, err := archive.Named(text)
	if err != nil {
		return at, exit.Faultf(exit.Usage, "", "cannot use %s: %w", archive.Place{Database: config.Database(text)}, err)
	}
	return at, nil
}

// progressGap is the time between two words on the progress.
const progressGap = 200 * time.Millisecond

// options are those of all work here; done takes the line of the progress away.
func options(p Program, doing string) (o archive.Options, done func()) {
	o.Now = time.Now
	if !p.Terminal() || p.JSON() {
		return o, func() {}
	}
	var last time.Time
	shown := false
	o.Progress = func(now transfer.Progress) {
		if time.Since(last) < progressGap {
			return
		}
		last, shown = time.Now(), true
		fmt.Fprintf(p.Errors(), "\r\x1b[K%s: table %d of %d (%s), %d rows, %s", doing, min(now.Done+1, now.Tables), now.Tables, now.Table, now.Rows, plain.Size(now.Bytes))
	}
	return o, func() {
		if shown {
			fmt.Fprint(p.Errors(), "\r\x1b[K")
		}
	}
}

// fault gives an error its exit code and says what to do. file is what was read from, empty for no file.
func fault(ctx context.Context, doing, file string, err error) error {
	var (
		locked   *config.LockedError
		home     *config.HomeError
		alive    *postgres.AliveError
		exists   *archive.ExistsError
		notEmpty *archive.NotEmptyError
		sealed   *schema.SealedError
		other    *schema.Error
	)
	// What was interrupted is not done: it must not look like a detached client.
	if err != nil && ctx.Err() != nil {
		return exit.Faultf(exit.Failed, "run it again", "cannot %s: it was interrupted, and nothing has changed", doing)
	}
	switch {
	case err == nil, errors.As(err, &locked):
		return err
	case errors.As(err, &other) && file != "":
		if other.Foreign() {
			return exit.Faultf(exit.BadFile, "", "cannot %s: %s is no backup that soma backup has made", doing, file)
		}
		return exit.Faultf(exit.BadFile, "use the build that made it", "cannot %s: %s has schema %s, this build knows up to %d", doing, file, other.Found, other.Known)
	case errors.As(err, &alive):
		return exit.Faultf(exit.Busy, "", "cannot %s: %w", doing, err)
	case errors.As(err, &exists):
		return exit.Faultf(exit.Refused, "name another file, or remove it", "cannot %s: %w", doing, err)
	case errors.As(err, &notEmpty):
		do := "copy into an empty one: a home of its own, or a new database"
		if file != "" {
			do = "with --replace the backup takes its place"
			if notEmpty.Place.Database != "" {
				do = "make an empty database for it"
			}
		}
		return exit.Faultf(exit.Refused, do, "cannot %s: %w", doing, err)
	case errors.As(err, &sealed):
		return exit.Faultf(exit.Refused, "", "cannot %s: %w", doing, err)
	case errors.Is(err, syscall.ENOSPC), strings.Contains(err.Error(), "database or disk is full"):
		return exit.Faultf(exit.Failed, "make room, and run it again", "cannot %s: the disk is full: %w", doing, err)
	case errors.As(err, &home):
		return err
	case errors.Is(err, archive.ErrNoStore):
		do := "if its daemon works on a database, name that in SOMA_STORE or in config.yaml"
		return exit.Faultf(exit.NotFound, do, "cannot %s: %w", doing, err)
	case errors.Is(err, neuron.ErrStoreAway):
		return exit.Faultf(exit.Busy, "see whether its server runs and the address is right", "cannot %s: %w", doing, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), file != "":
		return exit.Faultf(exit.BadFile, "", "cannot %s: %w", doing, err)
	}
	return exit.Faultf(exit.Failed, "", "cannot %s: %w", doing, err)
}

// count is a number with its noun.
func count(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// under tells what was under way, one line each.
func under(f transfer.Facts, where string) string {
	var b strings.Builder
	if f.Processes > 0 {
		fmt.Fprintf(&b, "%s not ended: what is under way there goes on when a daemon starts on %s", have(f.Processes, "process", "has", "have"), where)
		if f.Inferences > 0 {
			fmt.Fprintf(&b, "; %s made again", have(f.Inferences, "call of a model", "is", "are"))
		}
		b.WriteString("\n")
	}
	if f.Kernels > 0 {
		fmt.Fprintf(&b, "%s are lost", have(f.Kernels, "python kernel", "does not come along: the names in it", "do not come along: the names in them"))
		if f.Cells > 0 {
			fmt.Fprintf(&b, ", and the result of %s is unknown", count(f.Cells, "running cell"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func have(n int64, noun, one, more string) string {
	if n == 1 {
		return count(n, noun) + " " + one
	}
	if noun == "call of a model" {
		return fmt.Sprintf("%d calls of models %s", n, more)
	}
	return count(n, noun) + " " + more
}

func took(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
