package stores

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"soma/internal/cli/exit"
	"soma/internal/cli/plain"
	"soma/internal/store/archive"
)

func cmdCopy(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "copy FROM TO",
		Short: "copy a store into an empty one, also to and from PostgreSQL",
		Long: "copy takes all of a store into another that is empty: conversations, processes with what is under way, journals, ledgers. FROM\n" +
			"and TO are the folder of a home, a SQLite file, the URL of a PostgreSQL database without a password (postgres://host/name), the\n" +
			"word home for the SQLite file of this home, or the word store for what the settings name. No daemon may run on either. Each\n" +
			"table is read back and compared. A copy that did not end says so: no daemon takes it for a store, and the next copy begins anew.\n\n" +
			"Python kernels that live do not come along: end them with soma stop --kernels first. The copy has a generation of its own, so\n" +
			"that whoever follows by a cursor of the old store is told to begin anew. FROM stays as it was. Do not go on with both: the same\n" +
			"processes are in both.",
		Example: "  soma store copy home postgres://db.example/soma\n  soma store copy store /tmp/home",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := place(p, args[0])
			if err != nil {
				return err
			}
			to, err := place(p, args[1])
			if err != nil {
				return err
			}
			o, done := options(p, "copying")
			r, err := archive.Copy(cmd.Context(), from, to, o)
			done()
			if err != nil {
				return fault(cmd.Context(), "copy the store", "", err)
			}
			if p.JSON() {
				return p.PrintJSON(r)
			}
			text := fmt.Sprintf("copied %s and %s, %s of %s in all, from %s to %s in %s; each table was read back and is the same\n",
				count(r.Sessions, "session"), count(r.Messages, "message"), count(r.Rows, "row"), plain.Size(r.Bytes), r.From, r.To, took(r.Took))
			text += under(r.Facts, "the copy") + goOn(p, to)
			_, err = io.WriteString(p.Output(), text)
			return err
		},
	}
}

// goOn says how to use a copy.
func goOn(p Program, to archive.Place) string {
	switch {
	case to.Database != "":
		return "to go on with it: set store: " + to.Database.Shown() + " in config.yaml, or SOMA_STORE; do not go on with both\n"
	case to.Home != "" && to.Home != p.Home().Dir():
		return "to go on with it: SOMA_HOME=" + to.Home + "; do not go on with both\n"
	}
	return ""
}

func cmdBackup(p Program) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "write the whole store as of one moment into a file",
		Long: "backup writes all that was committed up to one moment into a new file, a SQLite database that soma restore reads. The daemon\n" +
			"may run and work meanwhile. The file has its name only when it is whole and on the disk; one that exists is not overwritten.\n" +
			"What it holds is as private as the home. The settings, the token, agents and hooks of the home are files: copy them yourself.\n" +
			"The names in python kernels are not in it.",
		Example: "  soma backup /mnt/backups/soma-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := configured(p)
			if err != nil {
				return err
			}
			if at, err := archive.Named(args[0]); err != nil || at.Database != "" {
				return exit.Faultf(exit.Usage, "name a file; soma store copy fills a database", "cannot back up into a database")
			}
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			o, done := options(p, "backing up")
			r, err := archive.Backup(cmd.Context(), from, file, o)
			done()
			if err != nil {
				return fault(cmd.Context(), "back up", "", err)
			}
			if p.JSON() {
				return p.PrintJSON(r)
			}
			size := int64(0)
			if info, err := os.Stat(file); err == nil {
				size = info.Size()
			}
			text := fmt.Sprintf("wrote %s (%s): %s, %s, %s, in %s\n", plain.Clean(file), plain.Size(size), count(r.Sessions, "session"),
				count(r.Messages, "message"), count(r.Rows, "row"), took(r.Took))
			_, err = io.WriteString(p.Output(), text)
			return err
		},
	}
}

func cmdRestore(p Program) *cobra.Command {
	var replace bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "make the store of this home from a backup",
		Long: "restore puts the store of a backup into this home, or into the empty PostgreSQL database that the settings name. The daemon must\n" +
			"not run. The file is checked first, whole. A home that holds a store already needs --replace; its old store is kept beside the\n" +
			"new one. The home has its old store or the new one, whenever restore is interrupted.\n\n" +
			"What came after the backup is lost. Processes that had not ended go on from where they were then, as after a crash: calls of\n" +
			"models that were under way are made again, and cells that ran end with result unknown, for their python kernels are gone. The store\n" +
			"has a new generation: whoever follows by an old cursor is told to begin anew.",
		Example: "  soma stop --kernels\n  soma restore --replace /mnt/backups/soma-monday",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return restore(cmd.Context(), p, args[0], replace)
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "take the place of the store that the home holds, and keep that one beside it")
	return cmd
}

func restore(ctx context.Context, p Program, file string, replace bool) error {
	to, err := configured(p)
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	o, done := options(p, "restoring")
	r, err := archive.Restore(ctx, file, to, replace, o)
	done()
	if err != nil {
		return fault(ctx, "restore", file, err)
	}
	if p.JSON() {
		return p.PrintJSON(r)
	}
	text := fmt.Sprintf("restored %s and %s as of %s into %s in %s\n", count(r.Sessions, "session"), count(r.Messages, "message"),
		r.At.Local().Format("2006-01-02 15:04:05"), r.To, took(r.Took))
	text += under(r.Facts, "it")
	if r.Kept != "" {
		text += "the old store"
		if r.Replaced != nil {
			text += fmt.Sprintf(" (%s, %s", count(r.Replaced.Sessions, "session"), count(r.Replaced.Messages, "message"))
			if r.Replaced.LastAt > 0 {
				text += ", last used " + time.UnixMicro(r.Replaced.LastAt).Local().Format("2006-01-02 15:04:05")
			}
			text += ")"
		}
		text += " is kept as " + r.Kept + "; what is in it and came after the backup is not in the new one; remove the file when you do not need it\n"
	}
	_, err = io.WriteString(p.Output(), text)
	return err
}
