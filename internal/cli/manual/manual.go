package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands lists root and its commands, in order of their names, each before its own.
func Commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, Commands(c)...)
		}
	}
	return all
}

// PageName is the name of a command's page, such as soma-run.
func PageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// Synopses are the forms of a command, each as it is typed.
func Synopses(c *cobra.Command) []string {
	forms := strings.Split(c.Use, " | ")
	if c.HasParent() {
		for i, form := range forms {
			forms[i] = c.Parent().CommandPath() + " " + form
		}
	}
	return forms
}

// Text is a command's text in one paragraph for each of its own.
func Text(c *cobra.Command) string {
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

// EachFlag visits the flags of a command that are shown, with the words in front of the usage.
func EachFlag(c *cobra.Command, fn func(names, usage string)) {
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

// Exit is one exit code and what it means.
type Exit struct {
	Code  int
	Means string
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// Page is a command's page in roff; that of the root lists the exit codes. It holds no date, so that it is the same for the same program.
func Page(c *cobra.Command, exits []Exit) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"Soma\" \"Soma\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n",
		strings.ToUpper(PageName(c)), roff.Replace(PageName(c)), roff.Replace(c.Short))
	for _, s := range Synopses(c) {
		fmt.Fprintf(&b, ".B %s\n.br\n", roff.Replace(s))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", strings.ReplaceAll(roff.Replace(Text(c)), "\n\n", "\n.PP\n"))
	b.WriteString(".SH OPTIONS\n")
	EachFlag(c, func(names, usage string) {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(names), roff.Replace(usage))
	})
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff.Replace(c.Example))
	}
	if !c.HasParent() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range Commands(c)[1:] {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff.Replace(PageName(sub)), roff.Replace(sub.Short))
		}
		b.WriteString(".SH EXIT STATUS\n")
		for _, e := range exits {
			fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff.Replace(e.Means))
		}
		return b.String()
	}
	b.WriteString(".SH SEE ALSO\n.BR soma (1)\n")
	return b.String()
}
