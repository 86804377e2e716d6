package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs are the programs whose commands, flags and exit codes a version promises. With the arguments in failing, the
// program fails. The list does not contain devstack, because no version promises anything about this tool for
// developers.
var programs = []struct{ name, folder, failing string }{
	{"worker", "./worker", "--cluster-name=/"},
	{"k8sbridge", "./k8sbridge", "--cluster-name=/"},
	{"millwright", "./starter/millwright", "top --kubeconfig=/nonexistent"},
}

// buildAndReadPrograms builds the programs. buildAndReadPrograms returns their commands and flags, which the programs
// print with --help, and their exit codes.
func buildAndReadPrograms(ctx context.Context, repo string) (names []string, err error) {
	bin, err := os.MkdirTemp("", "millwright-reference-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/")
	build.Dir = repo
	for _, p := range programs {
		build.Args = append(build.Args, p.folder)
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the programs: %w: %s", err, out)
	}
	for _, p := range programs {
		program := filepath.Join(bin, p.name)
		flags, err := readHelp(ctx, program, nil)
		if err != nil {
			return nil, err
		}
		names = append(names, flags...)
		for when, arguments := range map[string]string{"success": "--help", "failure": p.failing, "wrong call": "--no-such-flag"} {
			_, code, err := runProgram(ctx, program, strings.Fields(arguments))
			if err != nil {
				return nil, err
			}
			names = append(names, fmt.Sprintf("exit code of %s after %s: %d", p.name, when, code))
		}
	}
	return names, nil
}

// runProgram runs a program, and returns its output and its exit code.
func runProgram(ctx context.Context, program string, arguments []string) (text string, code int, err error) {
	command := exec.CommandContext(ctx, program, arguments...)
	// The program runs without this computer's environment, because a variable could change a default.
	command.Env = []string{"HOME=/nonexistent"}
	out, err := command.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return "", 0, fmt.Errorf("%s %v: %w", program, arguments, err)
	}
	return string(out), command.ProcessState.ExitCode(), nil
}

// subcommandLinePattern matches a line of a help text that names a subcommand.
var subcommandLinePattern = regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)

// readHelp returns a command and its flags, and the subcommands with their flags.
func readHelp(ctx context.Context, program string, path []string) (names []string, err error) {
	text, _, err := runProgram(ctx, program, append(slices.Clip(path), "--help"))
	if err != nil {
		return nil, err
	}
	command := strings.Join(append([]string{filepath.Base(program)}, path...), " ")
	names = append(parseFlags(command, text), "command "+command)
	_, commands, _ := strings.Cut(text, "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	for _, match := range subcommandLinePattern.FindAllStringSubmatch(commands, -1) {
		if match[1] == "help" || match[1] == "completion" {
			continue
		}
		below, err := readHelp(ctx, program, append(slices.Clip(path), match[1]))
		if err != nil {
			return nil, err
		}
		names = append(names, below...)
	}
	return names, nil
}

// flagLinePattern matches a flag and its type in a help text.
var flagLinePattern = regexp.MustCompile(
	`(?m)^ +(?:-[a-zA-Z], )?--([a-z][a-z0-9-]+)(?: ([a-zA-Z]+)\b)?(?:\[=\w+\])?(?:   .*)?$`,
)

// parseFlags returns the flags in the help text of a command.
func parseFlags(command, text string) (names []string) {
	for _, match := range flagLinePattern.FindAllStringSubmatch(text, -1) {
		if match[1] == "help" {
			continue
		}
		kind := match[2]
		if kind == "" {
			kind = "bool"
		}
		names = append(names, fmt.Sprintf("flag %s --%s %s", command, match[1], kind))
	}
	return names
}
