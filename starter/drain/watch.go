package drain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	observe "millwright/observe/drain"
	"millwright/process/commandline"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *drainCommand) watchCommand() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:   "watch MACHINE",
		Short: "Follow a machine until it is gone, or a drain until it has ended",
		Long: `watch shows what explain shows, again and again, until the machine is gone. For a machine that is not being deleted, it ends
with the drain. If the output is not a terminal, it prints a line for each change. A signal
such as Ctrl-C ends it with exit code 130 or 143, because the end of the drain is not known.`,
		Example: `  millwright drain watch shop/m-1
  millwright drain watch m-1 -n shop --interval 10s`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.newMachineReader(c, args)
			if err != nil {
				return err
			}
			defer r.temporal.Close()
			return r.watchDrain(c.Context(), c.OutOrStdout(), interval)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two reads")
	return c
}

// watchDrain reads the machine repeatedly. watchDrain stops when the machine no longer exists, when ctx is done, or
// when the drain of a machine that is not being deleted has ended. watchDrain returns an error of the first read, and
// only prints later errors.
func (e machineReader) watchDrain(ctx context.Context, out io.Writer, interval time.Duration) error {
	w := printers.WatchPrinter{Out: out, IsTerminal: printers.IsTerminal(out)}
	var uid types.UID
	ended := false
	err := printers.FollowObject(ctx, interval, e.readSnapshot, func(s snapshot, err error) (over bool, _ error) {
		defer func() { ended = ended || over }()
		switch {
		case uid == "" && err != nil:
			return true, err
		case apierrors.IsNotFound(err) || uid != "" && s.machine != nil && s.machine.UID != uid:
			w.PrintLine(e.now(), e.key.String()+" is gone")
			return true, nil
		case err != nil && s.machine != nil: // the machine is neither being deleted nor drained any more
			w.PrintLine(e.now(), fmt.Sprintf("the drain of %s is over: %s", e.key, drainOutcome(s.machine)))
			return true, nil
		case err != nil:
			w.PrintChange(e.now(), err.Error())
		default:
			uid = s.machine.UID
			w.DrawFrame(s.now, s.explanation(), s.summaryLine())
		}
		return false, nil
	})
	if err == nil && !ended {
		return commandline.InterruptedError(ctx, fmt.Sprintf("the drain of %s is not known to be over", e.key))
	}
	return err
}

// drainOutcome describes how the last drain of a machine that is not being deleted ended.
func drainOutcome(m *v1alpha1.Machine) string {
	if d := m.Status.Drain; d != nil && d.Result != "" {
		return d.Result
	}
	return "it is not wanted any more"
}

// summaryLine returns one line that changes only if a fact changes, not with time.
func (s snapshot) summaryLine() string {
	text := kubecli.KeyOfObject(s.machine) + "  " + cmp.Or(stageText(s.machine), "-")
	if how := observe.CurrentRemovalMeans(s.machine); how != "" {
		text += " " + string(how)
	}
	if s.podOverview != nil {
		text += "  " + podCountsText(s.podOverview.Counts)
	}
	switch {
	case isHeld(s.machine):
		return text + "  held"
	case isDrainingOrQueued(s.machine):
		return text + "  " + s.waitText()
	}
	if code, message := deletionError(s.machine); code != "" {
		text += "  " + code + ": " + message
	}
	return text
}
