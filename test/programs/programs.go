// Package programs finds flags that Millwright's programs do not have. Tests of manifests and of docker-compose.yml
// import this package.
package programs

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// UnknownFlags returns the flags of a command line that the program does not have. If a subcommand precedes the flags,
// UnknownFlags checks the flags of this subcommand. UnknownFlags runs the program with --help.
func UnknownFlags(ctx context.Context, program string, arguments []string) ([]string, error) {
	isFlag := func(a string) bool { return strings.HasPrefix(a, "-") }
	first := slices.IndexFunc(arguments, isFlag)
	if first < 0 {
		first = len(arguments)
	}
	help := exec.CommandContext(ctx, program, append(slices.Clone(arguments[:first]), "--help")...)
	usage, err := help.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(help.Args, " "), err, usage)
	}
	var unknown []string
	for _, argument := range arguments[first:] {
		if !isFlag(argument) {
			continue // this argument is the value of the previous flag
		}
		name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		if !regexp.MustCompile(`(?m)^\s+(-\w, )?--?` + regexp.QuoteMeta(name) + `(\s|$)`).Match(usage) {
			unknown = append(unknown, argument)
		}
	}
	return unknown, nil
}
