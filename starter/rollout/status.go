package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/starter/explain"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *rolloutCommand) statusCommand() *cobra.Command {
	var ui kubecli.TemporalUI
	var w waiting
	var output printers.OutputFormat
	c := &cobra.Command{
		Use:   "status DEPLOYMENT",
		Short: "Show the state of a rollout, what it waits for, and the command that changes it",
		Long: `status begins with the sentence of explain, if the deployment waits for something. The next line says what the rollout does next, or
what it waits for. Then come the numbers, the sets that have machines, the machines that the rollout waits for, and the commands that
may help now. A bound that is a percentage is followed by its number of machines.

status reads the API server and decides as the workers do, but changes nothing and does not need Temporal. The exit code is 0 in every
state of the rollout. With --ui-address, or the variable TEMPORAL_UI_ADDRESS, the last line has the address of the rollout's page in
Temporal's UI.

With --wait, status waits until the rollout is complete, and shows the status then; each change is a line on standard error. The exit code says
how the wait ended: 0 complete; 1 the progress deadline or --timeout has passed, or the deployment is gone or invalid; 3 rolled back; 4 a person
must act: a step waits for approval, or somebody has paused or holds the rollout. 130 and 143 mean that a signal ended the wait.`,
		Example: `  millwright rollout status shop/web
  millwright rollout status web -n shop --target-kubeconfig nodes.yaml
  millwright rollout status shop/web --wait --timeout 10m
  millwright rollout status shop/web -o json`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			l, err := f.newDeploymentReader(c, args)
			switch {
			case err != nil:
				return err
			case !w.isWanted && c.Flags().Changed("timeout"):
				return errors.New("--timeout is for --wait")
			case !w.isWanted:
				s, err := l.readSnapshot(c.Context())
				if err != nil {
					return err
				}
				return s.writeStatus(c.OutOrStdout(), output, ui)
			}
			s, err := l.waitForRollout(c.Context(), c.ErrOrStderr(), w)
			if s.source != nil {
				err = errors.Join(err, s.writeStatus(c.OutOrStdout(), output, ui))
			}
			return err
		},
	}
	c.Flags().BoolVar(&w.isWanted, "wait", false, "wait until the rollout is complete")
	c.Flags().DurationVar(&w.timeout, "timeout", 0, "how long --wait waits; 0: without a limit")
	c.Flags().DurationVar(&w.interval, "interval", 2*time.Second, "time between two reads of --wait")
	output.RegisterTextFlag(c)
	ui.RegisterFlag(c, "")
	return c
}

// writeStatus writes the status in a format.
func (s snapshot) writeStatus(out io.Writer, output printers.OutputFormat, ui kubecli.TemporalUI) error {
	advice := append(s.advice(), s.followCommands()...)
	if output != printers.OutputText {
		return output.Encode(out, s.answer(advice))
	}
	page, err := ui.PageLine("", s.tree.operation)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, s.statusText(advice)+page)
	return err
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
	_ = printers.WriteTable(&out, s.factRows()) // a write to a buffer never fails
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
