package commandline_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/process/commandline"
)

func TestUsageErrorsExplainTheMistake(t *testing.T) {
	root := func() *cobra.Command {
		root := &cobra.Command{Use: "millwright"}
		group := &cobra.Command{Use: "rollout"}
		status := &cobra.Command{
			Use:     "status DEPLOYMENT",
			Args:    cobra.ExactArgs(1),
			Example: "  millwright rollout status web -n shop\n  millwright rollout status shop/web",
			RunE:    func(*cobra.Command, []string) error { return errors.New("no answer") },
		}
		status.Flags().String("cluster-name", "", "")
		status.Flags().Int("cluster-size", 0, "")
		group.AddCommand(status)
		root.AddCommand(group)
		commandline.RefuseUnknownArguments(root)
		return root
	}
	for name, row := range map[string]struct {
		args []string
		says string
		code int
	}{
		"a command that is nearly right": {[]string{"rollout", "statu", "s5"}, "\"millwright rollout\" has no command \"statu\"; did you mean status?\nusage: millwright rollout COMMAND; see --help", 2},
		"a command with swapped letters": {[]string{"rollout", "sttaus"}, "\"millwright rollout\" has no command \"sttaus\"; did you mean status?\nusage: millwright rollout COMMAND; see --help", 2},
		"a command of another group":     {[]string{"status", "s5"}, "\"millwright\" has no command \"status\"; did you mean millwright rollout status?\nusage: millwright COMMAND; see --help", 2},
		"a group that is nearly right":   {[]string{"rolout", "status"}, "\"millwright\" has no command \"rolout\"; did you mean rollout?\nusage: millwright COMMAND; see --help", 2},
		"a command that does not exist":  {[]string{"nosuch"}, "\"millwright\" has no command \"nosuch\"\nusage: millwright COMMAND; see --help", 2},
		"an argument is missing":         {[]string{"rollout", "status"}, "name a deployment: millwright rollout status web -n shop\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"an argument is too much":        {[]string{"rollout", "status", "a", "b"}, "\"b\" is one argument too many, for example: millwright rollout status web -n shop\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a flag that does not exist":     {[]string{"rollout", "status", "a", "--nosuch"}, "unknown flag: --nosuch\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a flag that is nearly right":    {[]string{"rollout", "status", "a", "--cluster-nam=x"}, "unknown flag: --cluster-nam; did you mean --cluster-name?\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a flag that begins several":     {[]string{"rollout", "status", "a", "--cluster"}, "unknown flag: --cluster; did you mean --cluster-name or --cluster-size?\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a flag with one dash":           {[]string{"rollout", "status", "a", "-cluster-name=x"}, "unknown shorthand flag: 'c' in -cluster-name=x; did you mean --cluster-name?\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a bad value":                    {[]string{"rollout", "status", "a", "--cluster-size=x"}, "invalid argument \"x\" for \"--cluster-size\" flag: strconv.ParseInt: parsing \"x\": invalid syntax\nusage: millwright rollout status DEPLOYMENT [flags]", 2},
		"a failure":                      {[]string{"rollout", "status", "a"}, "no answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := root()
			c.SetArgs(row.args)
			err := c.Execute()
			require.EqualError(t, err, row.says)
			assert.Equal(t, row.code, commandline.ExitCode(err))
		})
	}
}

// The help of a group and the hint about a wrong command need no connection, although its commands need one.
func TestGroupsNeedNoConnection(t *testing.T) {
	for args, code := range map[string]int{"rollout": 0, "rollout satus": 2} {
		root, group := &cobra.Command{Use: "millwright"}, &cobra.Command{Use: "rollout"}
		group.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.New("no kubeconfig") }
		group.AddCommand(&cobra.Command{Use: "status", RunE: func(*cobra.Command, []string) error { return nil }})
		root.AddCommand(group)
		commandline.RefuseUnknownArguments(root)
		root.SetArgs(strings.Fields(args))
		root.SetOut(io.Discard)
		err := root.Execute()
		if code == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "did you mean status?")
		assert.Equal(t, code, commandline.ExitCode(err))
	}
}
