package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const flagsHead = `# Flags

Written by ` + "`make generate`" + ` from what the programs print with ` + "`--help`" + `. [The command line](../starter.md) says what the commands of starter have
in common, and [the connection to Temporal](../temporal.md) which variables and files set its flags.
`

// programs are the folders of our programs.
var programs = []string{"worker", "k8sbridge", "starter", "devstack"}

// flagsPage builds the programs and returns the page of their help.
func flagsPage(ctx context.Context, repo string) (string, error) {
	bin, err := os.MkdirTemp("", "millwright-reference-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/")
	build.Dir = repo
	for _, name := range programs {
		build.Args = append(build.Args, "./"+name)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, out)
	}
	var page strings.Builder
	page.WriteString(flagsHead)
	for _, name := range programs {
		if err := helpOf(ctx, &page, filepath.Join(bin, name), nil); err != nil {
			return "", err
		}
	}
	if err := exitCodes(ctx, &page, bin); err != nil {
		return "", err
	}
	return page.String(), nil
}

const exitSection = "Exit codes"

// exitCodes writes with which code each program ends: when it was called well, when it fails, and when it was called in a wrong way.
func exitCodes(ctx context.Context, page *strings.Builder, bin string) error {
	page.WriteString("\n## " + exitSection + "\n\n| program | success | failure | wrong call |\n|---|---|---|---|\n")
	for _, row := range []struct{ program, failing string }{
		{"worker", "--cluster-name=/"}, {"k8sbridge", "--cluster-name=/"}, {"starter", "top --kubeconfig=/nonexistent"},
	} {
		codes := []string{}
		for _, arguments := range []string{"--help", row.failing, "--no-such-flag"} {
			command := exec.CommandContext(ctx, filepath.Join(bin, row.program), strings.Fields(arguments)...)
			command.Env = []string{"HOME=/nonexistent"}
			err := command.Run()
			if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
				return fmt.Errorf("%s %s: %w", row.program, arguments, err)
			}
			codes = append(codes, strconv.Itoa(command.ProcessState.ExitCode()))
		}
		fmt.Fprintf(page, "| `%s` | %s |\n", row.program, strings.Join(codes, " | "))
	}
	return nil
}

// exitIn returns the exit codes of a row of that table, and whether the line is one.
func exitIn(line string) (names []string, is bool) {
	row := cells(line)
	if len(row) != 4 {
		return nil, false
	}
	for i, when := range []string{"success", "failure", "wrong call"} {
		names = append(names, fmt.Sprintf("exit code of %s after %s: %s", row[0], when, row[i+1]))
	}
	return names, true
}

// subcommand matches a line of a help text that names a subcommand.
var subcommand = regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)

// helpOf writes the help of a command and of its subcommands.
func helpOf(ctx context.Context, page *strings.Builder, program string, path []string) error {
	help := exec.CommandContext(ctx, program, append(path, "--help")...)
	help.Env = []string{"HOME=/nonexistent"} // no setting of this machine is a default
	out, err := help.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v --help: %w: %s", program, path, err, out)
	}
	text := strings.ReplaceAll(strings.TrimSpace(string(out)), filepath.Dir(program)+"/", "")
	fmt.Fprintf(page, "\n## %s\n\n```\n%s\n```\n", strings.Join(append([]string{filepath.Base(program)}, path...), " "), trimmed(text))
	_, commands, has := strings.Cut(text, "Available Commands:\n")
	if !has {
		return nil
	}
	commands, _, _ = strings.Cut(commands, "\n\n")
	for _, match := range subcommand.FindAllStringSubmatch(commands, -1) {
		if match[1] == "help" || match[1] == "completion" {
			continue
		}
		if err := helpOf(ctx, page, program, append(path[:len(path):len(path)], match[1])); err != nil {
			return err
		}
	}
	return nil
}

// trimmed removes the spaces at the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Join(lines, "\n")
}
