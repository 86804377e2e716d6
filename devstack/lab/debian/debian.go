// Package debian makes folders of Debian's packages, for programs that are not installed on the machine. Root makes a
// folder with the packages and all that they need, with mmdebstrap: servers of Incus and container engines run in it.
// Root needs root; see Supported. Unpack unpacks packages without those that they depend on, and needs no root. Root
// and Unpack need Debian's package manager. This Go package starts no server.
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

// unneededFiles are patterns of files that are left out of packages: two fifths of their size.
var unneededFiles = []string{
	"/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*",
}

// Root is the recipe of a root folder.
type Root struct {
	Suite    string   // release of Debian
	Variant  string   // variant of mmdebstrap: what is installed besides the packages
	Packages []string // packages to install; all packages that they need are installed, too
	Without  []string // patterns of files that are left out, besides documents and translations
}

// Supported returns why this machine cannot run a server from a folder of Root, or nil. The error's text begins with
// what, a noun in the plural.
func Supported(what string) error {
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

// Arguments returns the arguments of mmdebstrap without the folder: the content of the folder depends only on these.
func (r Root) Arguments() []string {
	arguments := []string{
		"--variant=" + r.Variant, "--include=" + strings.Join(r.Packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
	}
	for _, patterns := range [][]string{unneededFiles, r.Without} {
		for _, pattern := range patterns {
			arguments = append(arguments, "--dpkgopt=path-exclude="+pattern)
		}
	}
	return append(arguments, r.Suite)
}

// Make makes the root folder at path, or an archive if the path ends with .tar. It takes a minute or so. It installs
// Debian's mmdebstrap if it is missing. output receives the progress.
func (r Root) Make(ctx context.Context, path string, output io.Writer) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		_, _ = fmt.Fprintln(output, "installing Debian's mmdebstrap")
		if err := updateLists(ctx, output); err != nil {
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
	return Run(ctx, output, nil, "mmdebstrap", append(r.Arguments(), path)...)
}

// updateLists fetches the lists of packages, which only root may do.
func updateLists(ctx context.Context, output io.Writer) error {
	return runApt(ctx, output, "apt-get", "update", "-q")
}

// runApt runs, as Run does, a command that calls apt-get. A lock lets one process of this user at a time run such a
// command, because apt-get fails while another apt-get is at work. runApt waits ten minutes at most for the lock: many
// times what a package takes.
func runApt(ctx context.Context, output io.Writer, command ...string) error {
	alone := []string{"-w", "600", filepath.Join(os.TempDir(), fmt.Sprintf("millwright-apt-%d.lock", os.Geteuid()))}
	return Run(ctx, output, []string{"DEBIAN_FRONTEND=noninteractive"}, "flock", append(alone, command...)...)
}

// Run runs a program of this machine, with further environment variables. It passes lines of the program's output that
// begin with "I: " on to output, as progress. An error has the last 20 lines.
func Run(ctx context.Context, output io.Writer, environment []string, program string, arguments ...string) error {
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
