// Package commandline contains the common parts of all command lines: usage errors with suggestions, signals, and exit
// codes.
package commandline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError means that the arguments or flags of a command are wrong.
type usageError struct {
	error

	usage string // usage line of the command
}

func (e usageError) Error() string { return e.error.Error() + "\nusage: " + e.usage }

func (e usageError) Unwrap() error { return e.error }

// Main is the main function of a program: it runs the command with the arguments of the process. SIGINT or SIGTERM
// cancels the context of the command. If the command fails, Main prints the error, and the process exits with ExitCode.
func Main(c *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	RefuseUnknownArguments(c)
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
		os.Exit(ExitCode(err))
	}
}

// Version returns the version of the program's module, and the commit if it is known. The go command records version
// and commit in the program.
func Version() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return "unknown"
	}
	text := cmp.Or(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text
}

// ExitCode returns the exit code of a failed command: 2 for a usage error, 1 for any other error.
func ExitCode(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return 2
	}
	return 1
}

// RefuseUnknownArguments makes a command and its subcommands refuse unknown subcommands, unknown flags and wrong
// arguments. The error has the usage line of the command. The caller must print the error: cobra does not.
func RefuseUnknownArguments(c *cobra.Command) {
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{addFlagSuggestions(c, err), c.UseLine()}
	})
	if args := c.Args; args != nil {
		c.Args = func(c *cobra.Command, given []string) error {
			if err := args(c, given); err != nil {
				return usageError{argumentError(c, given, err), c.UseLine()}
			}
			return nil
		}
	}
	if !c.Runnable() { // the command only groups subcommands
		c.Args = cobra.ArbitraryArgs
		c.RunE = refuseUnknownCommand
	}
	for _, below := range c.Commands() {
		RefuseUnknownArguments(below)
	}
}

// argumentError names the argument that is missing or not expected, with the first example of the command. For any
// other error argumentError returns err.
func argumentError(c *cobra.Command, given []string, err error) error {
	wanted := strings.Fields(c.Use)[1:]
	example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
	if example != "" {
		example = ", for example: " + example
	}
	switch {
	case len(given) < len(wanted):
		return fmt.Errorf("%s is missing%s", wanted[len(given)], example)
	case len(given) > len(wanted):
		return fmt.Errorf("%q is one argument too many%s", given[len(wanted)], example)
	default:
		return err
	}
}

// addFlagSuggestions adds the flags with similar names to an error about an unknown flag.
func addFlagSuggestions(c *cobra.Command, err error) error {
	absent, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	flags := &cobra.Command{} // SuggestionsFor finds only commands, so make a command for each flag
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	given := absent.GetSpecifiedShortnames() // pflag parses -cluster-name, with one dash, as a group of short names
	if given == "" {
		given = absent.GetSpecifiedName()
	}
	return fmt.Errorf("%w%s", err, suggestCommands(flags, "--"+given))
}

// refuseUnknownCommand runs for a group command without a valid subcommand. Without arguments, refuseUnknownCommand
// prints the help.
func refuseUnknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	err := fmt.Errorf("%q has no command %q%s", c.CommandPath(), args[0], suggestCommands(c, args[0]))
	return usageError{err, c.CommandPath() + " COMMAND; see --help"}
}

// maxWrongLetters is the maximum number of wrong letters in a word that still gets a suggestion. Source: cobra's
// default for commands.
const maxWrongLetters = 2

// suggestCommands returns a question with the commands that begin with word or have similar names. suggestCommands
// returns "" if no command matches.
func suggestCommands(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = maxWrongLetters
	likely := c.SuggestionsFor(word)
	if len(likely) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(likely, " or ") + "?"
}
