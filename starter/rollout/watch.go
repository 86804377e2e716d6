package rollout

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/starter/kubecli"
)

func (f *rolloutCommand) watchCommand() *cobra.Command {
	var interval time.Duration
	var keep bool
	c := &cobra.Command{
		Use:   "watch DEPLOYMENT",
		Short: "Follow a rollout until it is complete",
		Long: `watch shows what status shows, again and again, until the rollout is complete, and ends with the number of machines that were
replaced while it watched. If the output is not a terminal, it prints a line for each change. If the template changes again, it follows
the new revision. Ctrl-C ends it without an error.

watch fails when the progress deadline has passed, the revision was rolled back, somebody paused the deployment or holds the rollout,
or the deployment is gone or invalid. With --keep-watching it fails only if the deployment is gone or invalid. It continues while a
step waits for a person.`,
		Example: `  millwright rollout watch shop/web
  millwright rollout watch web -n shop --interval 10s --keep-watching`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			l, err := f.newDeploymentReader(c, args)
			if err != nil {
				return err
			}
			return l.watchRollout(c.Context(), c.OutOrStdout(), &watchState{continuesAfterStop: keep}, interval)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two reads")
	c.Flags().BoolVar(&keep, "keep-watching", false, "go on when the rollout is paused, held, late or rolled back")
	return c
}

// watchRollout reads the rollout repeatedly until it has ended or ctx is done. watchRollout returns an error of the
// first read, and only prints later errors.
func (l deploymentReader) watchRollout(
	ctx context.Context,
	out io.Writer,
	j *watchState,
	interval time.Duration,
) error {
	w := &kubecli.WatchPrinter{Out: out, IsTerminal: kubecli.IsTerminal(out)}
	return kubecli.FollowObject(ctx, interval, l.readSnapshot, func(s snapshot, err error) (over bool, _ error) {
		switch {
		case j.isDeploymentGone(s, err):
			return true, fmt.Errorf("deployment %s is gone, and its rollout was not complete", l.key)
		case err != nil && j.uid == "":
			return true, err
		case err != nil:
			w.PrintChange(l.now(), err.Error())
			return false, nil
		default:
			return j.showSnapshot(w, s)
		}
	})
}

// isDeploymentGone reports whether the watched deployment does not exist any more.
func (j *watchState) isDeploymentGone(s snapshot, err error) bool {
	return j.uid != "" && (apierrors.IsNotFound(err) || err == nil && s.tree.object.GetUID() != j.uid)
}

// showSnapshot prints one snapshot, and reports whether the watch is over.
func (j *watchState) showSnapshot(w *kubecli.WatchPrinter, s snapshot) (over bool, err error) {
	if change := j.recordSnapshot(&s); change != "" {
		w.PrintLine(s.now, change)
	}
	w.DrawFrame(s.now, s.statusText(s.advice()), s.summaryLine())
	last, err := j.finalLine(s)
	if last != "" {
		w.PrintLine(s.now, last)
	}
	return err != nil || last != "", err
}

// summaryLine returns one line that changes only if a fact changes, not with time.
func (s snapshot) summaryLine() string {
	return s.key() + "  " + s.progressBar() + "  " + s.sentenceWithoutName(s.formatClockTime)
}
