package commandline

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// connectionFlag is the annotation of the flags that UseGroupedHelp does not describe in each command.
const connectionFlag = "millwright.connection"

// MarkConnectionFlags marks flags of a set as flags of the connection: every command that connects has them, so the
// help of a command only names them, and the command of OptionsCommand describes them. Without names,
// MarkConnectionFlags marks all flags that the set has now.
func MarkConnectionFlags(set *pflag.FlagSet, names ...string) {
	set.VisitAll(func(f *pflag.Flag) {
		if len(names) == 0 || slices.Contains(names, f.Name) {
			f.Annotations = map[string][]string{connectionFlag: nil}
		}
	})
}

func isConnectionFlag(f *pflag.Flag) bool {
	_, is := f.Annotations[connectionFlag]
	return is
}

// OptionsCommand returns the command options, which describes the flags of the connection of all commands of a program.
func OptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "Describe the flags of the connection, which most commands have",
		Long: `options describes the flags that say to which cluster and to which Temporal a command connects. The help of a command names those that the
command has.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			shared := pflag.NewFlagSet("", pflag.ContinueOnError)
			addConnectionFlags(shared, c.Root())
			_, err := io.WriteString(c.OutOrStdout(), shared.FlagUsages())
			return err
		},
	}
}

// addConnectionFlags adds the flags of the connection of a command and of its subcommands to a set. Of several flags
// with one name it adds the first.
func addConnectionFlags(set *pflag.FlagSet, c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if isConnectionFlag(f) && set.Lookup(f.Name) == nil {
			set.AddFlag(f)
		}
	})
	for _, below := range c.Commands() {
		addConnectionFlags(set, below)
	}
}

// UseGroupedHelp makes the help of a command and of its subcommands describe only the flags of the command itself, and
// name the flags of the connection in one line.
func UseGroupedHelp(root *cobra.Command) {
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), usageText(c))
		return err
	})
}

// usageText returns the text after the description in the help of a command.
func usageText(c *cobra.Command) string {
	var out bytes.Buffer
	_, _ = fmt.Fprintln(&out, "Usage:")
	if c.Runnable() && !c.HasAvailableSubCommands() {
		_, _ = fmt.Fprintln(&out, "  "+c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		_, _ = fmt.Fprintln(&out, "  "+c.CommandPath()+" COMMAND [flags]")
	}
	if c.HasExample() {
		_, _ = fmt.Fprintf(&out, "\nExamples:\n%s\n", c.Example)
	}
	writeCommands(&out, c)
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]bool{}
	for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			switch {
			case isConnectionFlag(f):
				shared["--"+f.Name] = true
			case own.Lookup(f.Name) == nil:
				own.AddFlag(f)
			}
		})
	}
	_, _ = fmt.Fprintf(&out, "\nFlags:\n%s", own.FlagUsages())
	if len(shared) > 0 {
		_, _ = fmt.Fprintf(&out, "\nFlags of the connection (%q says what they mean):\n", c.Root().CommandPath()+" options")
		writeWrapped(&out, slices.Sorted(maps.Keys(shared)))
	}
	if c.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(&out, "\nUse \"%s COMMAND --help\" for more about a command.\n", c.CommandPath())
	}
	return out.String()
}

// writeCommands writes the subcommands of a command: first each group with its title, then those without a group.
func writeCommands(out io.Writer, c *cobra.Command) {
	width := 0
	for _, below := range c.Commands() {
		width = max(width, len(below.Name()))
	}
	write := func(title, group string) {
		found := slices.DeleteFunc(slices.Clone(c.Commands()), func(below *cobra.Command) bool {
			return below.GroupID != group || !below.IsAvailableCommand() && below.Name() != "help"
		})
		if len(found) == 0 {
			return
		}
		_, _ = fmt.Fprintf(out, "\n%s\n", title)
		for _, below := range found {
			_, _ = fmt.Fprintf(out, "  %-*s   %s\n", width, below.Name(), below.Short)
		}
	}
	for _, g := range c.Groups() {
		write(g.Title, g.ID)
	}
	if len(c.Groups()) > 0 {
		write("Other commands:", "")
	} else {
		write("Commands:", "")
	}
}

// maxHelpWidth is the width to which the help wraps a list of words. A terminal has at least 80 columns.
const maxHelpWidth = 80

// writeWrapped writes words in lines of at most maxHelpWidth characters, unless a word is longer.
func writeWrapped(out io.Writer, words []string) {
	line := " "
	for _, word := range words {
		if len(line)+1+len(word) > maxHelpWidth && line != " " {
			_, _ = fmt.Fprintln(out, line)
			line = " "
		}
		line += " " + word
	}
	_, _ = fmt.Fprintln(out, line)
}
