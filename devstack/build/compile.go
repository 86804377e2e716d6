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
	progressInterval = 15 * time.Second // time between two progress lines; short enough to show that the build runs
	// A build that compiles at least minColdBuildPackages packages has a cold Go build cache.
	minColdBuildPackages = 20
	maxMessageLines      = 40 // number of lines of the compiler's output in an error
)

// runGoCommand runs the go command in dir with additional environment variables, and reports progress. If the context
// is cancelled, runGoCommand also kills the compilers.
func runGoCommand(ctx context.Context, dir, what string, environment, arguments []string, progress io.Writer) error {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir, command.Env = dir, append(os.Environ(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Cancel also kills the compilers
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer

	out := &compilerOutputParser{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		out.parseLines(reader)
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
			strings.Join(out.lastMessages, "\n"),
		)
	}
	return nil
}

// compilerOutputParser parses the output of `go build -v`. The field lastMessages may be read after parse has returned.
type compilerOutputParser struct {
	compiledPackageCount  atomic.Int64 // packages compiled so far; the go command does not print cached packages
	downloadedModuleCount atomic.Int64 // modules downloaded so far
	lastMessages          []string     // the last lines that name neither a package nor a download
}

// parseLines reads lines until the output ends. A line without a space names a package. A line with a space is a
// download or a message.
func (o *compilerOutputParser) parseLines(output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "go: downloading "):
			o.downloadedModuleCount.Add(1)
		case line != "" && !strings.ContainsAny(line, " \t"):
			o.compiledPackageCount.Add(1)
		default:
			o.lastMessages = append(o.lastMessages, line)
			if len(o.lastMessages) > maxMessageLines {
				o.lastMessages = o.lastMessages[1:]
			}
		}
	}
	_, _ = io.Copy(io.Discard, output) // a line that exceeds the buffer must not block the compiler
}

// progressLine returns one progress line. If the Go build cache is cold, the line also gives the time of a whole build.
func (o *compilerOutputParser) progressLine(what string, took time.Duration) string {
	packages := o.compiledPackageCount.Load()
	text := fmt.Sprintf(
		"  %s: %s, %d packages compiled, %d modules downloaded",
		what,
		took.Round(time.Second),
		packages,
		o.downloadedModuleCount.Load(),
	)
	if packages >= minColdBuildPackages && describeBinary(what) != what {
		text += "; all takes five minutes or so on two cores, once"
	}
	return text
}

// reportProgress writes a progress line every progressInterval until finished is closed.
func (o *compilerOutputParser) reportProgress(what string, progress io.Writer, finished <-chan struct{}) {
	began := time.Now()
	ticker := time.NewTicker(progressInterval)
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
