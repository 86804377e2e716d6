package stack

import (
	"io"
	"os"
	"strings"
)

// logTail returns, for error messages, the last lines of a component's log since its last start; nothing if the log
// cannot be read.
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
	_, last, found := cutAtLast(string(text), "=== ")
	if !found {
		last = string(text)
	}
	all := strings.Split(strings.TrimRight(last, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// cutAtLast cuts around the last line that begins with a prefix.
func cutAtLast(text, prefix string) (before, after string, found bool) {
	i := strings.LastIndex("\n"+text, "\n"+prefix)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i:], true
}
