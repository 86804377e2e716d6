package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newTestCommand is a program with the commands list, drain hold MACHINE and kubectl.
func newTestCommand() *cobra.Command {
	root, run := &cobra.Command{Use: "tool", Version: "1"}, func(*cobra.Command, []string) {}
	list := &cobra.Command{Use: "list", Args: cobra.NoArgs, Run: run}
	list.Flags().BoolP("all", "A", false, "")
	drain := &cobra.Command{Use: "drain"}
	drain.PersistentFlags().StringP("namespace", "n", "", "")
	hold := &cobra.Command{Use: "hold", Args: cobra.ExactArgs(1), Run: run}
	hold.Flags().Duration("for", time.Minute, "")
	hold.Flags().String("reason", "", "")
	drain.AddCommand(hold)
	root.AddCommand(list, drain, &cobra.Command{Use: "kubectl", Run: run})
	return root
}

func TestCheckSyntaxAgreesWithTheProgram(t *testing.T) {
	for script, fails := range map[string]string{
		"tool list":                                "",
		"tool list -A | sort":                      "",
		"A=1 bin/tool list --all 2>&1 >file":       "",
		"while tool list; do sleep 1; done":        "",
		"sort file | xargs -n 1 tool drain hold m": "",
		"tool --version":                           "",
		"tool list --help":                         "",
		"tool help drain hold":                     "",
		"tool completion bash":                     "",
		"tool drain hold m --for 1h \\\n  -n shop --reason \"it's late | now\" # a comment": "",
		"tool drain hold <machine> --for <time>":                                            "",
		"tool drain hold \"$M\" --for=$FOR":                                                 "",
		"tool drain hold \"$(tool list -A)\" -n s":                                          "",
		"tool kubectl -- get nodes --watch":                                                 "",
		"tool lists":                                                                        `unknown command "lists"`,
		"tool drain holds m":                                                                `tool drain has no command "holds"`,
		"tool list -B":                                                                      "unknown shorthand flag: 'B'",
		"tool list --for 1h":                                                                "unknown flag: --for",
		"tool drain hold m --for long":                                                      `invalid argument "long" for "--for" flag`,
		"tool drain hold m --for <time> --fore":                                             "unknown flag: --fore",
		"tool drain hold m n":                                                               "accepts 1 arg(s), received 2",
		"tool list x":                                                                       `unknown command "x" for "tool list"`,
		"tool drain hold":                                                                   "accepts 1 arg(s), received 0",
		"tool drain hold m --reason":                                                        "flag needs an argument: --reason",
		"tool drain hold m --reason 'a' 'b'":                                                "accepts 1 arg(s), received 2",
		"true && tool lists":                                                                `unknown command "lists"`,
		"tool kubectl \"$(bin/tool lists)\"":                                                `unknown command "lists"`,
	} {
		calls := CallsInScript("page.md", 7, script, true, "tool")
		require.NotEmpty(t, calls, script)
		var said []string
		for _, call := range calls {
			if err := call.CheckSyntax(newTestCommand()); err != nil {
				said = append(said, err.Error())
			}
		}
		if fails == "" {
			assert.Empty(t, said, script)
			continue
		}
		if assert.Len(t, said, 1, script) {
			assert.Contains(t, said[0], fails)
			assert.Contains(t, said[0], "page.md:7: ")
		}
	}
	assert.Empty(
		t,
		CallsInScript("page.md", 1, "# tool lists\necho tool lists; a-tool lists; tools lists; x --tool lists", true, "tool"),
		"no call",
	)
}

// A sentence may omit the arguments of a command. If a sentence has arguments, the command must accept them.
func TestCallInASentenceMayOmitArguments(t *testing.T) {
	for text, fails := range map[string]string{
		"`tool drain hold`":              "",
		"`tool drain hold --reason`":     "",
		"`tool COMMAND --help`":          "",
		"`tool drain`":                   "",
		"`--for` of `tool\nlist -A`":     "",
		"| do | `tool drain holds` |":    `tool drain has no command "holds"`,
		"| do | `tool drain hold -x` |":  "unknown shorthand flag: 'x'",
		"| do | `tool drain hold m n` |": "accepts 1 arg(s), received 2",
		"'''sh\ntool drain hold\n'''":    "accepts 1 arg(s), received 0",
	} {
		repo := t.TempDir()
		require.NoError(
			t,
			os.WriteFile(filepath.Join(repo, "README.md"), []byte(pageText(strings.Split(text, "\n")...)), 0o600),
		)
		calls, err := CallsInDocuments(repo, "tool")
		require.NoError(t, err)
		if strings.Contains(text, "COMMAND") {
			assert.Empty(t, calls)
			continue
		}
		require.Len(t, calls, 1, text)
		if err := calls[0].CheckSyntax(newTestCommand()); fails == "" {
			assert.NoError(t, err, text)
		} else {
			assert.ErrorContains(t, err, fails, text)
		}
	}
}
