// Package commandline contains the common parts of all command lines: usage errors with suggestions, signals, and exit
// codes.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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
// cancels the context of the command with the cause SignalError. If the command fails, Main prints the error, and the
// process exits with ExitCode.
func Main(c *cobra.Command) {
	ctx, stop := contextWithSignals(context.Background())
	RefuseUnknownArguments(c)
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
		os.Exit(ExitCode(err))
	}
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
		c.Args = refuseUnknownCommand
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		if prepare := c.PersistentPreRunE; prepare != nil { // it is for the subcommands: the help needs no connection
			c.PersistentPreRunE = func(called *cobra.Command, args []string) error {
				if called == c {
					return nil
				}
				return prepare(called, args)
			}
		}
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
	switch {
	case len(given) < len(wanted) && example != "":
		return fmt.Errorf("name %s: %s", nounOfArgument(wanted[len(given)]), example)
	case len(given) < len(wanted):
		return fmt.Errorf("name %s", nounOfArgument(wanted[len(given)]))
	case len(given) > len(wanted) && example != "":
		return fmt.Errorf("%q is one argument too many, for example: %s", given[len(given)-1], example)
	case len(given) > len(wanted):
		return fmt.Errorf("%q is one argument too many", given[len(given)-1])
	default:
		return err
	}
}

// nounOfArgument returns the noun for an argument in a usage line, with its article: "a deployment" for DEPLOYMENT, and
// "an object" for an argument that may be of several kinds.
func nounOfArgument(argument string) string {
	noun := strings.ToLower(argument)
	if strings.Contains(argument, "/") {
		noun = "object"
	}
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
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

// refuseUnknownCommand refuses the arguments of a group command, which are no subcommand.
func refuseUnknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%q has no command %q%s", c.CommandPath(), args[0], suggestCommands(c, args[0]))
	return usageError{err, c.CommandPath() + " COMMAND; see --help"}
}

// maxWrongLetters is the maximum number of wrong letters in a word that still gets a suggestion. Source: cobra's
// default for commands.
const maxWrongLetters = 2

// suggestCommands returns a question with the commands that begin with word or have similar names. If the command has
// no such subcommand, suggestCommands finds the commands elsewhere in the program that have exactly this name.
// suggestCommands returns "" if no command matches.
func suggestCommands(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = maxWrongLetters
	likely := c.SuggestionsFor(word)
	if len(likely) == 0 {
		likely = pathsOfCommands(c.Root(), word)
	}
	if len(likely) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(likely, " or ") + "?"
}

// pathsOfCommands returns the paths of the visible commands below c that have exactly this name.
func pathsOfCommands(c *cobra.Command, name string) (paths []string) {
	for _, below := range c.Commands() {
		if below.Name() == name && below.IsAvailableCommand() {
			paths = append(paths, below.CommandPath())
		}
		paths = append(paths, pathsOfCommands(below, name)...)
	}
	return paths
}
