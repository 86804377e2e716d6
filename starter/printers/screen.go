// Package printers prints what the commands have read: tables, JSON and YAML, lines of the width of the terminal, colours
// and watches.
package printers

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen is a terminal as the output of a command. Screen breaks lines at spaces where they are longer than the terminal
// is wide. A command in backquotes stays in one piece, so that a person can copy it. Output that does not go to a
// terminal needs no Screen: its lines stay as they are.
type Screen struct {
	file    *os.File
	pending []byte // an unfinished line
}

// NewScreen returns a Screen for a terminal, and the file itself if the file is not a terminal. Before the program ends,
// the caller must call FlushScreen.
func NewScreen(file *os.File) io.Writer {
	if !IsTerminal(file) {
		return file
	}
	return &Screen{file: file}
}

// FlushScreen writes an unfinished line, such as a question. FlushScreen does nothing for other outputs.
func FlushScreen(out io.Writer) {
	if s, is := out.(*Screen); is && len(s.pending) > 0 {
		_, _ = s.file.Write(s.pending)
		s.pending = nil
	}
}

// UnwrappedOutput returns the output without line breaks of its own, for JSON, YAML and scripts.
func UnwrappedOutput(out io.Writer) io.Writer {
	if s, is := out.(*Screen); is {
		FlushScreen(s)
		return s.file
	}
	return out
}

// Write implements io.Writer. Write keeps an unfinished line until its end is written, or until FlushScreen.
func (s *Screen) Write(data []byte) (int, error) {
	s.pending = append(s.pending, data...)
	end := bytes.LastIndexByte(s.pending, '\n') + 1
	if end == 0 {
		return len(data), nil
	}
	lines := string(s.pending[:end])
	s.pending = append([]byte(nil), s.pending[end:]...)
	width, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		width = 0
	}
	if _, err := io.WriteString(s.file, wrapLines(lines, width)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// wrapLines breaks the lines of a text that are longer than the width, in characters. A width of zero or less changes
// nothing.
func wrapLines(text string, width int) string {
	if width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = wrapLine(line, width)
	}
	return strings.Join(lines, "\n")
}

// Shapes of a line.
var (
	escapeSequence = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	// a word, or a command in backquotes with the characters beside it; then the spaces that follow
	wordPattern = regexp.MustCompile("((?:[^ `]|`[^`]*`)+|`) *")
	// the gap before the last column of a table
	lastColumnPattern = regexp.MustCompile(`^.*\S {3,}`)
	indentPattern     = regexp.MustCompile(`^ *`)
)

// minLastColumnWidth is the narrowest last column of a table, in characters. If less is left, the text of the last column
// continues at the left of the table.
const minLastColumnWidth = 24

// wrapLine breaks a line. The continuation of the last column of a table begins below this column; any other
// continuation has the indent of its line.
func wrapLine(line string, width int) string {
	if visibleLength(line) <= width {
		return line
	}
	indent := len(indentPattern.FindString(line))
	hang, start := indent, indent
	if gap := lastColumnPattern.FindString(line); gap != "" {
		start = len(gap)
		if hang = visibleLength(gap); width-hang < minLastColumnWidth {
			hang, start = indent+2, indent
		}
	}
	var out strings.Builder
	out.WriteString(line[:start])
	column := visibleLength(line[:start])
	for _, word := range wordPattern.FindAllString(line[start:], -1) {
		bare := strings.TrimRight(word, " ")
		if column > hang && column+visibleLength(bare) > width {
			out.WriteString("\n" + strings.Repeat(" ", hang))
			column = hang
		}
		out.WriteString(word)
		column += visibleLength(word)
	}
	broken := strings.Split(out.String(), "\n")
	for i := range broken {
		broken[i] = strings.TrimRight(broken[i], " ")
	}
	return strings.Join(broken, "\n")
}

// visibleLength returns the number of characters that a text takes on a terminal.
func visibleLength(text string) int {
	return utf8.RuneCountInString(escapeSequence.ReplaceAllString(text, ""))
}
