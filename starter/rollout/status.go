package rollout

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"millwright/starter/explain"
	"millwright/starter/kubecli"
)

func (f *rollouts) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status DEPLOYMENT",
		Short: "Show the state of a rollout, what it waits for, and the command that changes it",
		Long: `status begins with the sentence of explain, if the deployment waits for something. The next line says what the rollout does next, or
what it waits for. Then come the numbers, the sets that have machines, the machines that the rollout waits for, and the commands that
may help now. A bound that is a percentage is followed by its number of machines.

status reads the API server and decides as the workers do, but changes nothing and does not need Temporal. The exit code is 0 in every
state of the rollout.`,
		Example: `  millwright rollout status shop/web
  millwright rollout status web -n shop --target-kubeconfig nodes.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.status(c, args[0])
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), s.text(append(s.advice(), s.follow()...)))
			return err
		},
	}
}

// status reads the named deployment once.
func (f *rollouts) status(c *cobra.Command, name string) (snapshot, error) {
	l, err := f.open(c, name)
	if err != nil {
		return snapshot{}, err
	}
	return l.look(c.Context())
}

// text is the complete output of status, with the advice at its end.
func (s snapshot) text(advice []string) string {
	var out bytes.Buffer
	if waits := explain.Sentence(s.tree.kind, s.tree.object, s.tree.operation); waits != "" {
		_, _ = fmt.Fprintln(&out, waits)
	}
	_, _ = fmt.Fprintf(&out, "%s\n%s\n\n", s.sentence(), s.bar())
	_ = kubecli.WriteTable(&out, s.lines()) // a buffer never fails
	s.setTable(&out)
	s.machineTable(&out)
	if len(advice) > 0 {
		_, _ = fmt.Fprintf(&out, "\n%s\n", strings.Join(advice, "\n"))
	}
	return out.String()
}

// barWidth is the number of characters of a complete rollout. Source: tenths are exact enough to read at a glance.
const barWidth = 10

// bar shows the share of machines that are up to date.
func (s snapshot) bar() string {
	done, of, c := barWidth, s.facts.Replicas, s.status.Counts
	if of > 0 {
		done = min(s.updated(), of) * barWidth / of
	}
	picture := strings.Repeat("=", done)
	if done < barWidth {
		picture += ">" + strings.Repeat(" ", barWidth-done-1)
	}
	return fmt.Sprintf("[%s] %d/%d up to date, %d available", picture, s.updated(), of, c.Available)
}
