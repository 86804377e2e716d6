// Package commandline is what the command lines of all programs have in common: errors of wrong calls with a
// suggestion, signals and exit codes.
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

// usageError is an error of the command line itself.
type usageError struct {
	error

	usage string // how the command is called
}

func (e usageError) Error() string { return e.error.Error() + "\nusage: " + e.usage }

func (e usageError) Unwrap() error { return e.error }

// Main is the main function of a program: it runs the command with the arguments of the process. Its context ends with
// SIGINT or SIGTERM. After an error, which it prints, the process exits with ExitCode.
func Main(c *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	Strict(c)
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
		os.Exit(ExitCode(err))
	}
}

// Version returns the version of the module that the program was built from, and the commit if it is known, as the go
// command has recorded them in the program.
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

// ExitCode returns the exit code of a command that failed: 2 if it was called in a wrong way, else 1.
func ExitCode(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return 2
	}
	return 1
}

// Strict makes a command and all below it refuse unknown subcommands and flags and wrong arguments with an error that
// says how they are called. The caller has to print the error: cobra does not.
func Strict(c *cobra.Command) {
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{suggest(c, err), c.UseLine()} })
	if args := c.Args; args != nil {
		c.Args = func(c *cobra.Command, given []string) error {
			if err := args(c, given); err != nil {
				return usageError{err, c.UseLine()}
			}
			return nil
		}
	}
	if !c.Runnable() { // it only groups others
		c.Args = cobra.ArbitraryArgs
		c.RunE = unknown
	}
	for _, below := range c.Commands() {
		Strict(below)
	}
}

// suggest adds the flags of a command to an error that says that a flag does not exist, if their names are nearly the
// same.
func suggest(c *cobra.Command, err error) error {
	absent, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	flags := &cobra.Command{} // SuggestionsFor knows only commands: one for each flag
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: "--" + f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	given := absent.GetSpecifiedShortnames() // -cluster-name: one dash begins a group of short names
	if given == "" {
		given = absent.GetSpecifiedName()
	}
	return fmt.Errorf("%w%s", err, didYouMean(flags, "--"+given))
}

// unknown is run for a group of commands without one of them. Without arguments it prints the help.
func unknown(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	err := fmt.Errorf("%q has no command %q%s", c.CommandPath(), args[0], didYouMean(c, args[0]))
	return usageError{err, c.CommandPath() + " COMMAND; see --help"}
}

// mistakes is the largest number of wrong letters in a word that still gets a suggestion. Source: the default of cobra
// for commands.
const mistakes = 2

// didYouMean returns a question that suggests the commands whose names begin with a word or are nearly the same; empty
// if there are none.
func didYouMean(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = mistakes
	likely := c.SuggestionsFor(word)
	if len(likely) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(likely, " or ") + "?"
}
