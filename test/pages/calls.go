package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CommandCall is a command of one of Millwright's programs in a text: in a block, in a sentence or in a table.
type CommandCall struct {
	Page       string // path from the root of the repository, or another name of the text
	Line       int
	Words      []string // words of the command without the program's name
	IsComplete bool     // the call is in a block and has all arguments; in a sentence, arguments may be missing
}

func (c CommandCall) String() string {
	return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, strings.Join(c.Words, " "))
}

// CallsInDocuments returns the calls of a program in the documents, including the ADRs. A program may have several
// names.
func CallsInDocuments(repo string, program ...string) ([]CommandCall, error) {
	names, err := ListPages(repo)
	if err != nil {
		return nil, err
	}
	decisions, err := filepath.Glob(filepath.Join(repo, "docs", "adr", "*.md"))
	if err != nil {
		return nil, fmt.Errorf("find the ADRs: %w", err)
	}
	for _, path := range decisions {
		names = append(names, "docs/adr/"+filepath.Base(path))
	}
	var calls []CommandCall
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(repo, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("read the page: %w", err)
		}
		blocks, err := parsePage(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", name, err)
		}
		for _, b := range blocks {
			for _, c := range b.Commands {
				calls = append(calls, CallsInScript(name, c.Line, c.Text, true, program...)...)
			}
		}
		for _, span := range codeSpans(string(text)) {
			calls = append(calls, CallsInScript(name, span.line, span.text, false, program...)...)
		}
	}
	return calls, nil
}

// codeSpan is a text in backticks.
type codeSpan struct {
	line int
	text string
}

var (
	codeBlockPattern = regexp.MustCompile("(?ms)^( *)```.*?^ *```$")
	codeSpanPattern  = regexp.MustCompile("`([^`]+)`")
)

// codeSpans returns the texts in backticks outside of blocks.
func codeSpans(text string) (found []codeSpan) {
	// replace each block by its line breaks, to keep the line numbers
	text = codeBlockPattern.ReplaceAllStringFunc(
		text,
		func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) },
	)
	for _, at := range codeSpanPattern.FindAllStringSubmatchIndex(text, -1) {
		found = append(
			found,
			codeSpan{1 + strings.Count(text[:at[0]], "\n"), strings.ReplaceAll(text[at[2]:at[3]], "\n", " ")},
		)
	}
	return found
}

// commandPrefixPattern matches text that may precede the name of a program: the start of a command, shell keywords,
// variables, and a program such as xargs that runs another program.
const commandPrefixPattern = `(?m)(?:^|[;&|(])[ \t]*(?:(?:if|then|do|while|until|!|exec|time|sudo) )*(?:\w+=\S* )*(?:xargs (?:-\S+ (?:\d+ )?)*)?(?:bin/)?`

// CallsInScript returns the calls of a program in a script. The argument line is the number of the script's first line
// in its page. The argument whole is the value for the field IsComplete of the calls.
func CallsInScript(page string, line int, script string, whole bool, program ...string) (calls []CommandCall) {
	begin := regexp.MustCompile(commandPrefixPattern + `(?:` + strings.Join(program, "|") + `)(\s|$)`)
	for at := 0; ; {
		found := begin.FindStringSubmatchIndex(script[at:])
		if found == nil {
			return calls
		}
		start := at + found[2]
		completed := strings.Contains(script[at+found[0]:start], "xargs ") // xargs adds arguments
		call := CommandCall{
			page,
			line + strings.Count(script[:start], "\n"),
			splitShellWords(script[start:]),
			whole && !completed,
		}
		// `millwright COMMAND --help` means any command
		general := !whole && len(call.Words) > 0 && strings.ToUpper(call.Words[0]) == call.Words[0]
		if !commentPattern.MatchString(script[strings.LastIndex(script[:start], "\n")+1:start]) && !general {
			calls = append(calls, call)
		}
		at = start
	}
}

// commentPattern matches the start of a shell comment in a line.
var commentPattern = regexp.MustCompile(`(^|\s)#`)

// placeholderPattern matches a placeholder for a value, such as <machine>.
var placeholderPattern = regexp.MustCompile(`^<[a-z][^<>|&;\n]*>`)

// splitShellWords splits the first command of a script into words, as a shell does. The command ends at a pipe, a
// redirection, a comment or the end of the script's command.
func splitShellWords(script string) (found []string) {
	word, inWord := "", false
	end := func() {
		if inWord {
			found = append(found, word)
		}
		word, inWord = "", false
	}
	for i := 0; i < len(script); i++ {
		text, length := parseQuotingOrPlaceholder(script[i:])
		switch c := script[i]; {
		case length > 0:
			word, inWord = word+text, inWord || text != "" || c != '\\'
			i += length - 1
		case c == ' ' || c == '\t':
			end()
		case c == '>' && (word == "1" || word == "2"): // the number is the file descriptor of the redirection
			return found
		case strings.IndexByte("|&;()<>\n", c) >= 0, c == '#' && !inWord:
			end()
			return found
		default:
			word, inWord = word+string(c), true
		}
	}
	end()
	return found
}

// parseQuotingOrPlaceholder parses a quoted text, a substitution or a placeholder at the start of a script. It returns
// the text and its length. The length is zero if the script begins with anything else. The text is empty if the script
// begins with a backslash at the end of a line.
func parseQuotingOrPlaceholder(script string) (text string, length int) {
	switch {
	case strings.HasPrefix(script, "\\\n"):
		return "", 2
	case strings.HasPrefix(script, `"$(`): // the substitution may contain quotes
		length = substitutionLength(script[1:])
		return script[1 : 1+length], min(length+2, len(script))
	case script[0] == '\'' || script[0] == '"':
		text, _, _ = strings.Cut(script[1:], script[:1])
		return text, min(len(text)+2, len(script))
	case strings.HasPrefix(script, "$("):
		length = substitutionLength(script)
		return script[:length], length
	default:
		text = placeholderPattern.FindString(script)
		return text, len(text)
	}
}

// substitutionLength returns the length of the text up to the end of its first $( … ).
func substitutionLength(text string) int {
	depth := 0
	for i := range text {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// CallsInExamples returns the calls of a program in the examples of its help texts.
func CallsInExamples(c *cobra.Command, program ...string) []CommandCall {
	calls := CallsInScript("the help of "+c.CommandPath(), 1, c.Example, true, program...)
	for _, below := range c.Commands() {
		calls = append(calls, CallsInExamples(below, program...)...)
	}
	return calls
}

// maxMissingArguments is the maximum number of arguments that a command in a sentence may leave out. Source: no command
// has more arguments.
const maxMissingArguments = 4

// CheckSyntax parses the call like the program, but does not run the command. CheckSyntax returns an error if the
// program would refuse the subcommand, a flag, the value of a flag or the number of arguments. Each call of CheckSyntax
// needs a new command root, because the flags of a command keep their values.
func (c CommandCall) CheckSyntax(root *cobra.Command) error {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	command, rest, err := root.Find(c.Words)
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	command.InitDefaultHelpFlag()
	command.InitDefaultVersionFlag()
	if err := c.parseFlags(command, rest); err != nil {
		return fmt.Errorf("%s: %s: %w", c, command.CommandPath(), err)
	}
	arguments := command.Flags().Args()
	if command.HasSubCommands() && len(arguments) > 0 {
		return fmt.Errorf("%s: %s has no command %q", c, command.CommandPath(), arguments[0])
	}
	err = command.ValidateArgs(arguments)
	for missing := 1; err != nil && !c.IsComplete && missing <= maxMissingArguments; missing++ {
		if command.ValidateArgs(append(slices.Clone(arguments), make([]string, missing)...)) == nil {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", c, command.CommandPath(), err)
	}
	return nil
}

// parseFlags parses the flags. In a sentence, a flag may lack its value. A value may be a placeholder or a variable.
func (c CommandCall) parseFlags(command *cobra.Command, words []string) error {
	err := command.ParseFlags(words)
	if _, valueless := errors.AsType[*pflag.ValueRequiredError](err); valueless && !c.IsComplete {
		return nil
	}
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is && strings.ContainsAny(invalid.GetValue(), "…<$") {
		valid := slices.DeleteFunc(
			slices.Clone(words),
			func(word string) bool { return strings.HasSuffix(word, invalid.GetValue()) },
		)
		return c.parseFlags(
			command,
			slices.DeleteFunc(valid, func(word string) bool { return word == "--"+invalid.GetFlag().Name }),
		)
	}
	return err
}
