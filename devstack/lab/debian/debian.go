// Package debian makes folders with Debian packages, for programs that are not installed on the machine.
// RootFilesystem.Make calls mmdebstrap to make a root folder with packages and their dependencies. Servers of Incus and
// container engines run in a root folder. RootFilesystem.Make needs root privileges; see CheckSupport. UnpackPackages
// unpacks packages without their dependencies and needs no root privileges. RootFilesystem.Make and UnpackPackages need
// Debian's package manager. Package debian starts no server.
package debian

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// unneededFilePatterns lists patterns of package files that are not installed. The excluded files are two fifths of the
// packages' size.
var unneededFilePatterns = []string{
	"/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*",
}

// RootFilesystem describes a root folder.
type RootFilesystem struct {
	Suite                string   // Debian release, such as trixie
	Variant              string   // mmdebstrap's variant: the set of packages that is always installed
	Packages             []string // packages to install, with their dependencies
	ExcludedFilePatterns []string // patterns of files to leave out, besides documents and translations
}

// CheckSupport returns an error with the reason if this machine cannot run a server from a folder of RootFilesystem.
// The error text begins with the parameter what, such as "container engines".
func CheckSupport(what string) error {
	switch {
	case runtime.GOOS != "linux":
		return errors.New(what + " need Linux")
	case os.Geteuid() != 0:
		return errors.New(what + " need root: containers, mounts and a bridge are made")
	}
	for _, program := range []string{"apt-get", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s need Debian's packages: %w", what, err)
		}
	}
	return nil
}

// MmdebstrapArguments returns the arguments of mmdebstrap without the target folder. Equal arguments give an equal root
// folder.
func (r RootFilesystem) MmdebstrapArguments() []string {
	arguments := []string{
		"--variant=" + r.Variant, "--include=" + strings.Join(r.Packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
	}
	for _, patterns := range [][]string{unneededFilePatterns, r.ExcludedFilePatterns} {
		for _, pattern := range patterns {
			arguments = append(arguments, "--dpkgopt=path-exclude="+pattern)
		}
	}
	return append(arguments, r.Suite)
}

// Make makes the root folder at path, or an archive if path ends with .tar. Make takes about a minute. Make installs
// Debian's mmdebstrap if the program is missing. output receives the progress.
func (r RootFilesystem) Make(ctx context.Context, path string, output io.Writer) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		_, _ = fmt.Fprintln(output, "installing Debian's mmdebstrap")
		if err := updatePackageLists(ctx, output); err != nil {
			return err
		}
		if err := runApt(ctx, output, "apt-get", "install", "-q", "-y", "--no-install-recommends", "mmdebstrap"); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(
		output,
		"making a root folder of Debian %s with %s: a minute or so, once\n",
		r.Suite,
		strings.Join(r.Packages, ", "),
	)
	return RunProgram(ctx, output, nil, "mmdebstrap", append(r.MmdebstrapArguments(), path)...)
}

// updatePackageLists updates the package lists with `apt-get update`, which needs root.
func updatePackageLists(ctx context.Context, output io.Writer) error {
	return runApt(ctx, output, "apt-get", "update", "-q")
}

// runApt runs a command that calls apt-get. runApt takes a lock that all processes of this user share, because apt-get
// fails while another apt-get runs. runApt waits at most ten minutes for the lock.
func runApt(ctx context.Context, output io.Writer, command ...string) error {
	alone := []string{"-w", "600", filepath.Join(os.TempDir(), fmt.Sprintf("millwright-apt-%d.lock", os.Geteuid()))}
	return RunProgram(ctx, output, []string{"DEBIAN_FRONTEND=noninteractive"}, "flock", append(alone, command...)...)
}

// RunProgram runs a program of this machine with additional environment variables. RunProgram forwards the output lines
// that begin with "I: " to output, because these lines report progress. An error contains the last 20 lines.
func RunProgram(
	ctx context.Context,
	output io.Writer,
	environment []string,
	program string,
	arguments ...string,
) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), environment...)
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	var tail []string
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			if after, ok := strings.CutPrefix(lines.Text(), "I: "); ok {
				_, _ = fmt.Fprintf(output, "  %s: %s\n", program, after)
			}
			const kept = 20
			tail = append(tail, lines.Text())
			tail = tail[max(0, len(tail)-kept):]
		}
		_, _ = io.Copy(io.Discard, reader)
	}()
	err := command.Run()
	_ = writer.Close()
	<-read
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, strings.Join(tail, "\n"))
	}
	return nil
}
