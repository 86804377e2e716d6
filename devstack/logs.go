package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func logsCommand(p *stackFlags) *cobra.Command {
	var follow bool
	lines := 40
	command := &cobra.Command{
		Use:   "logs [component]",
		Short: "Show the logs of a component, or of all",
		Long: `logs shows the end of one log, or of all logs but "audit", then with the log's name before each line. A log has the
name of its component; "supervisor" is that of the supervisor, and "audit" has our identities' requests to the API
server. Logs stay after down.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			dir, err := p.stackFolder()
			if err != nil {
				return err
			}
			all, err := logFileNames(filepath.Join(dir, "logs"))
			if err != nil {
				return err
			}
			prefix := len(names) == 0
			if prefix {
				names = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "audit" })
			} else if !slices.Contains(all, names[0]) {
				return fmt.Errorf("no log of %q: have %s", names[0], strings.Join(all, ", "))
			}
			return printLogs(c.Context(), c.OutOrStdout(), filepath.Join(dir, "logs"), names, prefix, lines, follow)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new lines until Ctrl-C")
	command.Flags().IntVarP(&lines, "lines", "n", lines, "how many lines of each log")
	return command
}

// logFileNames returns the names of the log files in dir.
func logFileNames(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("list logs: %s holds none: run `devstack up`", dir)
	}
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".log"))
	}
	return names, nil
}

// printLogs prints the last lines of each log. If follow is true, printLogs also prints new lines until ctx ends.
func printLogs(
	ctx context.Context,
	out io.Writer,
	dir string,
	names []string,
	prefix bool,
	lines int,
	follow bool,
) error {
	var readers []*logPrinter
	for _, name := range names {
		file, err := os.Open(filepath.Join(dir, name+".log"))
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		defer func() { _ = file.Close() }()
		r := &logPrinter{lines: bufio.NewReader(file)}
		if prefix {
			r.prefix = name + ": "
		}
		if err := r.skipToLastLines(file, lines); err != nil {
			return err
		}
		readers = append(readers, r)
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		for _, r := range readers {
			if err := r.printLines(out); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// logPrinter prints one log, line by line.
type logPrinter struct {
	lines          *bufio.Reader
	prefix         string
	incompleteLine string // start of a line that has no line break yet
}

// skipToLastLines moves the reader to the last n lines.
func (r *logPrinter) skipToLastLines(file *os.File, n int) error {
	total := 0
	for {
		_, err := r.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		total++
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	r.lines.Reset(file)
	for range max(0, total-n) {
		if _, err := r.lines.ReadString('\n'); err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	return nil
}

// printLines prints all complete lines.
func (r *logPrinter) printLines(out io.Writer) error {
	for {
		text, err := r.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			r.incompleteLine += text
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if _, err := io.WriteString(out, r.prefix+r.incompleteLine+text); err != nil {
			return err
		}
		r.incompleteLine = ""
	}
}
