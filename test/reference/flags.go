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

// connectionFlagPattern matches a flag that the help of a command names, and the command options describes.
var connectionFlagPattern = regexp.MustCompile(`--[a-z][a-z0-9-]+`)

// readConnectionFlags returns the lines of the command options about the flags of the connection in a help text.
func readConnectionFlags(ctx context.Context, program, help string) (lines string, err error) {
	_, named, has := strings.Cut(help, "\nFlags of the connection (")
	if !has {
		return "", nil
	}
	text, _, err := runProgram(ctx, program, []string{"options"})
	if err != nil {
		return "", err
	}
	for _, flag := range connectionFlagPattern.FindAllString(named, -1) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimSpace(line), flag+" ") {
				lines += line
			}
		}
	}
	return lines, nil
}

// commandSectionPattern matches a list of commands in a help text.
var commandSectionPattern = regexp.MustCompile(`(?m)^.*[Cc]ommands.*:\n(?:  .*\n)+`)

// subcommandsInHelp returns the subcommands in the help text of a command.
func subcommandsInHelp(text string) (names []string) {
	for _, section := range commandSectionPattern.FindAllString(text, -1) {
		for _, match := range subcommandLinePattern.FindAllStringSubmatch(section, -1) {
			names = append(names, match[1])
		}
	}
	return names
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
	shared, err := readConnectionFlags(ctx, program, text)
	if err != nil {
		return nil, err
	}
	names = append(parseFlags(command, text+shared), "command "+command)
	for _, name := range subcommandsInHelp(text) {
		if name == "help" || name == "completion" {
			continue
		}
		below, err := readHelp(ctx, program, append(slices.Clip(path), name))
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
