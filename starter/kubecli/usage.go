package kubecli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is an error of the command line itself.
type usageError struct {
	error

	usage string // how the command is called
}

func (e usageError) Error() string { return e.error.Error() + "\nusage: " + e.usage }

func (e usageError) Unwrap() error { return e.error }

// ExitCode returns the exit code of a command that failed: 2 if it was called in a wrong way, else 1.
func ExitCode(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return 2
	}
	return 1
}

// Strict makes a command and all below it refuse unknown subcommands and wrong arguments with an error that says how they are called.
func Strict(c *cobra.Command) {
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{err, c.UseLine()} })
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

// unknown is run for a group of commands without one of them. Without arguments it prints the help.
func unknown(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	text := fmt.Sprintf("%q has no command %q", c.CommandPath(), args[0])
	if likely := c.SuggestionsFor(args[0]); len(likely) > 0 {
		text += "; did you mean " + strings.Join(likely, " or ") + "?"
	}
	return usageError{errors.New(text), c.CommandPath() + " COMMAND; see --help"}
}
