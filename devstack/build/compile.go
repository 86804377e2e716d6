package build

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	reportEvery = 15 * time.Second // time between two lines of progress; short enough to show that the build runs
	// number of compiled packages that shows that the go command has no cache: with one, it compiles only changed
	// packages
	coldFrom  = 20
	tailLines = 40 // number of lines of the compiler's output that an error contains
)

// compile runs the go command in dir with additional environment variables, and reports its progress. If the context is
// cancelled, the compilers also end.
func compile(ctx context.Context, dir, what string, environment, arguments []string, progress io.Writer) error {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir, command.Env = dir, append(os.Environ(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group of its own can be ended as a whole
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer

	out := &compilerOutput{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		out.read(reader)
	}()
	finished := make(chan struct{})
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		out.reportProgress(what, progress, finished)
	}()

	err := command.Run()
	_ = writer.Close()
	close(finished)
	<-read
	<-reported
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("build %s: %w", what, ctx.Err())
	case err != nil:
		return fmt.Errorf(
			"build %s in %s: go %s: %w\n%s",
			what,
			dir,
			strings.Join(arguments, " "),
			err,
			strings.Join(out.tail, "\n"),
		)
	}
	return nil
}

// compilerOutput parses the output of `go build -v`. The field tail may be read after the method read has returned.
type compilerOutput struct {
	packages  atomic.Int64 // packages compiled so far; the go command does not print cached ones
	downloads atomic.Int64 // modules downloaded so far
	tail      []string     // the last lines that are neither packages nor downloads
}

// read reads lines until the output ends. A line without a space is a package; a line that is not a download either is
// a message.
func (o *compilerOutput) read(output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "go: downloading "):
			o.downloads.Add(1)
		case line != "" && !strings.ContainsAny(line, " \t"):
			o.packages.Add(1)
		default:
			o.tail = append(o.tail, line)
			if len(o.tail) > tailLines {
				o.tail = o.tail[1:]
			}
		}
	}
	_, _ = io.Copy(io.Discard, output) // an endless line must not block the compiler
}

// progressLine returns a line of progress. It says how long the whole build takes if the go command has no cache for
// it.
func (o *compilerOutput) progressLine(what string, took time.Duration) string {
	packages := o.packages.Load()
	text := fmt.Sprintf(
		"  %s: %s, %d packages compiled, %d modules downloaded",
		what,
		took.Round(time.Second),
		packages,
		o.downloads.Load(),
	)
	if packages >= coldFrom && describeBinary(what) != what {
		text += "; all takes five minutes or so on two cores, once"
	}
	return text
}

// reportProgress writes a line every now and then until finished is closed.
func (o *compilerOutput) reportProgress(what string, progress io.Writer, finished <-chan struct{}) {
	began := time.Now()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-finished:
			return
		case <-ticker.C:
			_, _ = fmt.Fprintln(progress, o.progressLine(what, time.Since(began)))
		}
	}
}
