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

func (f *rolloutCommand) statusCommand() *cobra.Command {
	var ui kubecli.TemporalUI
	c := &cobra.Command{
		Use:   "status DEPLOYMENT",
		Short: "Show the state of a rollout, what it waits for, and the command that changes it",
		Long: `status begins with the sentence of explain, if the deployment waits for something. The next line says what the rollout does next, or
what it waits for. Then come the numbers, the sets that have machines, the machines that the rollout waits for, and the commands that
may help now. A bound that is a percentage is followed by its number of machines.

status reads the API server and decides as the workers do, but changes nothing and does not need Temporal. With --ui-address, or the
variable TEMPORAL_UI_ADDRESS, the last line has the address of the rollout's page in Temporal's UI. The exit code is 0 in every
state of the rollout.`,
		Example: `  millwright rollout status shop/web
  millwright rollout status web -n shop --target-kubeconfig nodes.yaml`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.readSnapshot(c, args)
			if err != nil {
				return err
			}
			page, err := ui.PageLine("", s.tree.operation)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), s.statusText(append(s.advice(), s.followCommands()...))+page)
			return err
		},
	}
	ui.RegisterFlag(c, "")
	return c
}

// readSnapshot reads the named deployment once.
func (f *rolloutCommand) readSnapshot(c *cobra.Command, args []string) (snapshot, error) {
	l, err := f.newDeploymentReader(c, args)
	if err != nil {
		return snapshot{}, err
	}
	return l.readSnapshot(c.Context())
}

// statusText returns the complete output of the command status, with the advice at the end.
func (s snapshot) statusText(advice []string) string {
	var out bytes.Buffer
	if waits := explain.Sentence(s.tree.kind, s.tree.object, s.tree.operation); waits != "" {
		_, _ = fmt.Fprintln(&out, waits)
	}
	_, _ = fmt.Fprintf(&out, "%s\n%s\n\n", s.statusSentence(), s.progressBar())
	_ = kubecli.WriteTable(&out, s.factRows()) // a write to a buffer never fails
	s.writeSetTable(&out)
	s.writeMachineTable(&out)
	if len(advice) > 0 {
		_, _ = fmt.Fprintf(&out, "\n%s\n", strings.Join(advice, "\n"))
	}
	return out.String()
}

// progressBarWidth is the number of characters in the progress bar. Ten characters are enough to see the progress at a
// glance.
const progressBarWidth = 10

// progressBar returns a bar that shows the share of up-to-date machines.
func (s snapshot) progressBar() string {
	done, of, c := progressBarWidth, s.facts.Replicas, s.status.Counts
	if of > 0 {
		done = min(s.countUpdatedMachines(), of) * progressBarWidth / of
	}
	picture := strings.Repeat("=", done)
	if done < progressBarWidth {
		picture += ">" + strings.Repeat(" ", progressBarWidth-done-1)
	}
	return fmt.Sprintf("[%s] %d/%d up to date, %d available", picture, s.countUpdatedMachines(), of, c.Available)
}
