// Package pages reads the commands in the pages of the documents, and the output that each command must have.
// test/integration/docs runs the commands, and docs/docs_test.go checks the commands that cannot be run. The tests of
// millwright and devstack parse all commands of these programs, also those in sentences and tables (CallsInDocuments).
// Package pages runs no command.
//
// A block of commands is fenced and has one of two languages:
//
//	sh        The block is one script for bash. The script must succeed.
//	console   A line that begins with "$ " is a command. A line that begins with "> " continues the command. The lines
//	          below a command are its expected output: the output must have all of them, in this order. In these lines
//	          "…" stands for any text, and several spaces stand for any number of spaces. A command with the comment
//	          "# repeat until you see this" is repeated until its output has the lines.
//
// A block that cannot be run on the local stack has an HTML comment on the line before the block:
//
//	<!-- not run: why -->
//
// Other blocks of commands, such as indented blocks, are not allowed. A page may need a state that the stack of the
// test does not have, such as a blocked pool. A script in an HTML comment then creates this state. The comment has the
// line "<!-- run first", the script, and the line "-->".
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a block of commands.
type Block struct {
	Line       int    // number of the line with its first fence; the first line is 1
	SkipReason string // reason why the block cannot be run on the local stack; empty if it can be run
	Commands   []Command
}

// Command is one command, or one script.
type Command struct {
	Line          int
	Text          string
	ExpectedLines []string // lines that the output must contain in this order; if empty, any output is accepted
	IsRepeated    bool     // the command is repeated until its output has the lines
}

// ReadBlocks returns the blocks of commands of a page, in the page's order. An error names the page and the line.
func ReadBlocks(path string) ([]Block, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	blocks, err := parsePage(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return blocks, nil
}

var (
	fencePattern       = regexp.MustCompile("^( *)```([a-z]*)$")
	skipCommentPattern = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
)

// setupCommentStart is the start of an HTML comment that contains a script.
const setupCommentStart = "<!-- run first"

// repeatComment is the comment of a command that is repeated until its output has the lines below the command.
const repeatComment = "# repeat until you see this"

func parsePage(text string) ([]Block, error) {
	var blocks []Block
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		switch opening := fencePattern.FindStringSubmatch(lines[i]); {
		case lines[i] == setupCommentStart:
			end := slices.Index(lines[i:], "-->")
			if end < 0 {
				return nil, fmt.Errorf("%d: this comment has no end", i+1)
			}
			blocks = append(
				blocks,
				Block{Line: i + 1, Commands: []Command{{Line: i + 2, Text: strings.Join(lines[i+1:i+end], "\n")}}},
			)
			i += end
		case opening == nil:
			if isIndentedCommand(lines[i]) {
				return nil, commandOutsideBlockError(i, lines[i])
			}
		default:
			end := slices.Index(lines[i+1:], opening[1]+"```")
			if end < 0 {
				return nil, fmt.Errorf("%d: this block has no end", i+1)
			}
			found, err := parseBlock(lines, i, end, opening[1], opening[2])
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, found...)
			i += 1 + end
		}
	}
	return blocks, nil
}

// parseBlock returns the block that starts with the fence at the index begin and has length lines. parseBlock returns
// nothing if the language of the block is not sh or console.
func parseBlock(lines []string, begin, length int, indent, language string) ([]Block, error) {
	var content []string
	for _, line := range lines[begin+1 : begin+1+length] {
		content = append(content, strings.TrimPrefix(line, indent))
	}
	b := Block{Line: begin + 1}
	if begin > 0 {
		if why := skipCommentPattern.FindStringSubmatch(lines[begin-1]); why != nil {
			b.SkipReason = why[1]
		}
	}
	switch language {
	case "sh":
		b.Commands = []Command{{Line: begin + 2, Text: strings.Join(content, "\n")}}
	case "console":
		var err error
		if b.Commands, err = consoleCommands(content, begin+2); err != nil {
			return nil, err
		}
	default:
		if i := slices.IndexFunc(content, commandLinePattern.MatchString); i >= 0 {
			return nil, commandOutsideBlockError(begin+1+i, content[i])
		}
		return nil, nil
	}
	return []Block{b}, nil
}

func commandOutsideBlockError(i int, line string) error {
	return fmt.Errorf("%d: a command outside of a block of sh or console: %q", i+1, strings.TrimSpace(line))
}

// commandLinePattern matches a line that begins with a command for a shell.
var commandLinePattern = regexp.MustCompile(
	`^(\$ )?(\S+=\S+ )*(bin/|\.devstack/|make [a-z]|kubectl [a-z]|millwright [a-z]|helm [a-z]|docker |docker-compose |temporal [a-z]|devstack [a-z])`,
)

// isIndentedCommand reports whether a line is a command in a block that is indented instead of fenced. The block may be
// inside a list.
func isIndentedCommand(line string) bool {
	command := strings.TrimLeft(line, " ")
	return len(line)-len(command) >= 4 && commandLinePattern.MatchString(command)
}

// consoleCommands returns the commands of a console block. The argument number is the number of the block's first line.
func consoleCommands(content []string, number int) ([]Command, error) {
	var commands []Command
	for i, line := range content {
		if text, is := strings.CutPrefix(line, "$ "); is {
			command, repeated := strings.CutSuffix(text, repeatComment)
			commands = append(commands, Command{Line: number + i, Text: strings.TrimRight(command, " "), IsRepeated: repeated})
			continue
		}
		if len(commands) == 0 {
			return nil, fmt.Errorf("%d: the block does not begin with a command", number+i)
		}
		last := &commands[len(commands)-1]
		if more, is := strings.CutPrefix(line, "> "); is && len(last.ExpectedLines) == 0 {
			command, repeated := strings.CutSuffix(more, repeatComment)
			last.Text, last.IsRepeated = last.Text+"\n"+strings.TrimRight(command, " "), last.IsRepeated || repeated
			continue
		}
		if strings.TrimSpace(line) != "" {
			last.ExpectedLines = append(last.ExpectedLines, line)
		}
	}
	for _, c := range commands {
		if c.IsRepeated && len(c.ExpectedLines) == 0 {
			return nil, fmt.Errorf("%d: the command is repeated until it prints something, and nothing is below it", c.Line)
		}
	}
	return commands, nil
}

// MissingLine returns the first expected line that the output does not contain. The result is empty if the output
// contains all lines in their order.
func (c Command) MissingLine(output string) string {
	lines := strings.Split(output, "\n")
	for _, wanted := range c.ExpectedLines {
		if strings.TrimSpace(wanted) == "…" {
			continue
		}
		pattern, found := linePattern(wanted), false
		for len(lines) > 0 && !found {
			found, lines = pattern.MatchString(lines[0]), lines[1:]
		}
		if !found {
			return wanted
		}
	}
	return ""
}

// spacesPattern matches several spaces, as in a table.
var spacesPattern = regexp.MustCompile(`\s{2,}`)

// linePattern returns the pattern for an expected line of output.
func linePattern(wanted string) *regexp.Regexp {
	var cells []string
	for _, cell := range spacesPattern.Split(strings.TrimSpace(wanted), -1) {
		cells = append(cells, strings.ReplaceAll(regexp.QuoteMeta(cell), "…", ".*"))
	}
	return regexp.MustCompile(`^\s*` + strings.Join(cells, `\s{2,}`) + `\s*$`)
}

// ListPages returns the pages with commands in a clone of the repository, as paths from the root. The result has no
// ADRs, because ADRs describe the past.
func ListPages(repo string) ([]string, error) {
	var all []string
	for _, pattern := range []string{"README.md", "examples/README.md", "docs/*.md", "docs/tutorials/*.md", "docs/how-to/*.md"} {
		paths, err := filepath.Glob(filepath.Join(repo, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, fmt.Errorf("find the pages: %w", err)
		}
		for _, path := range paths {
			name, err := filepath.Rel(repo, path)
			if err != nil {
				return nil, fmt.Errorf("find the pages: %w", err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all, nil
}
