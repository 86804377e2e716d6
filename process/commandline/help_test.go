package commandline_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/process/commandline"
)

// newGroupedProgram returns a program with a group of commands, and with flags of the connection.
func newGroupedProgram() *cobra.Command {
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "millwright", Long: "It operates.", Example: "  millwright top"}
	drain := &cobra.Command{Use: "drain", Short: "Show drains"}
	drain.PersistentFlags().String("kubeconfig", "", "file with the cluster")
	commandline.MarkConnectionFlags(drain.PersistentFlags())
	drain.PersistentFlags().StringP("namespace", "n", "", "namespace of the machine")
	explain := &cobra.Command{
		Use:     "explain MACHINE",
		Short:   "Explain a drain",
		Example: "  millwright drain explain m-1",
		RunE:    run,
	}
	explain.Flags().Bool("yes", false, "do not ask")
	former := &cobra.Command{Use: "former", Short: "Has no place", Hidden: true, RunE: run}
	drain.AddCommand(explain, former)
	root.AddGroup(&cobra.Group{ID: "see", Title: "Commands that show:"})
	drain.GroupID = "see"
	root.AddCommand(drain, commandline.OptionsCommand())
	commandline.UseGroupedHelp(root)
	return root
}

func runProgram(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	c := newGroupedProgram()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	require.NoError(t, c.Execute())
	return out.String()
}

func TestHelpNamesFlagsOfTheConnectionApart(t *testing.T) {
	assert.Equal(t, `Usage:
  millwright drain explain MACHINE [flags]

Examples:
  millwright drain explain m-1

Flags:
  -h, --help               help for explain
  -n, --namespace string   namespace of the machine
      --yes                do not ask

Flags of the connection ("millwright options" says what they mean):
  --kubeconfig
`, strings.TrimPrefix(runProgram(t, "drain", "explain", "--help"), "Explain a drain\n\n"))
	assert.Equal(t, "      --kubeconfig string   file with the cluster\n", runProgram(t, "options"))
}

func TestHelpHasGroups(t *testing.T) {
	help := runProgram(t, "--help")
	assert.Contains(t, help, "It operates.\n\nUsage:\n  millwright COMMAND [flags]\n\nExamples:\n  millwright top\n")
	assert.Contains(t, help, "\nCommands that show:\n  drain        Show drains\n")
	assert.Contains(t, help, "\nOther commands:\n")
	assert.Contains(t, help, "  options      Describe the flags of the connection")
	assert.Contains(t, help, "\nUse \"millwright COMMAND --help\" for more about a command.\n")
	of := runProgram(t, "drain", "--help")
	assert.Contains(t, of, "\nCommands:\n  explain   Explain a drain\n")
	assert.NotContains(t, of, "former")
}
