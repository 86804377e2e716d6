package stack

import (
	"io"
	"os"
	"strings"
)

// logTail returns the last lines of a component's log since its last start, for error messages. If the log cannot be
// read, logTail returns the empty string.
func logTail(path string) string {
	const window, lines = 32 << 10, 20
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	}
	text, _ := io.ReadAll(file)
	_, last, found := cutBeforeLastLineWithPrefix(string(text), "=== ")
	if !found {
		last = string(text)
	}
	all := strings.Split(strings.TrimRight(last, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// cutBeforeLastLineWithPrefix cuts a text before the last line that begins with the prefix.
func cutBeforeLastLineWithPrefix(text, prefix string) (before, after string, found bool) {
	i := strings.LastIndex("\n"+text, "\n"+prefix)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i:], true
}
