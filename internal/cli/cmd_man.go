package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) cmdMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write the man pages into a folder",
		Long:  "man writes one page for each command, soma-run.1 and so on, into a folder, such as ~/.local/share/man/man1.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return faultf(exitBadFile, "", "cannot write the man pages: %w", err)
			}
			for _, c := range documented(cmd.Root()) {
				name := filepath.Join(args[0], pageName(c)+".1")
				if err := os.WriteFile(name, []byte(manPage(c)), 0o644); err != nil {
					return faultf(exitBadFile, "", "cannot write the man pages: %w", err)
				}
			}
			return nil
		},
	}
}

// documented lists root and its commands, in order of their names.
func documented(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, c)
		}
	}
	return all
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// synopses are the forms of a command, each as it is typed.
func synopses(c *cobra.Command) []string {
	forms := strings.Split(c.Use, " | ")
	if c.HasParent() {
		for i, form := range forms {
			forms[i] = c.Parent().Name() + " " + form
		}
	}
	return forms
}

// describe is a command's text in one paragraph for each of its own.
func describe(c *cobra.Command) string {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// eachFlag visits the flags of a command that are shown, with the words in front of the usage.
func eachFlag(c *cobra.Command, fn func(names, usage string)) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if value == "string" {
			value = "VALUE"
		}
		if value != "" {
			names += " " + value
		}
		fn(names, usage)
	})
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// manPage is a command's page in roff. It holds no date, so that it is the same for the same program.
func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"Soma\" \"Soma\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
		strings.ToUpper(pageName(c)), roff.Replace(pageName(c)), roff.Replace(c.Short))
	for _, s := range synopses(c) {
		fmt.Fprintf(&b, ".B %s\n.br\n", roff.Replace(s))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff.Replace(describe(c)), "\n\n", "\n.PP\n"))
	b.WriteString(".SH OPTIONS\n")
	eachFlag(c, func(names, usage string) {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(names), roff.Replace(usage))
	})
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff.Replace(c.Example))
	}
	if !c.HasParent() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range documented(c)[1:] {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff.Replace(pageName(sub)), roff.Replace(sub.Short))
		}
		b.WriteString(".SH EXIT STATUS\n")
		for _, e := range exitCodes {
			fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.code, roff.Replace(e.means))
		}
		return b.String()
	}
	b.WriteString(".SH SEE ALSO\n.BR soma (1)\n")
	return b.String()
}
