package drain

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/drain"
	"millwright/starter/kubecli"
)

func (f *drains) watchCommand() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use:   "watch MACHINE",
		Short: "Follow a machine until it is gone, or a drain until it has ended",
		Long: `watch shows what explain shows, again and again, until the machine is gone. Of a machine that stays it ends with the drain. Where the output is no terminal it prints a line
for each change. Ctrl-C ends it, and is no failure.`,
		Example: `  starter drain watch shop/m-1
  starter drain watch m-1 -n shop --interval 10s`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if interval <= 0 {
				return fmt.Errorf("--interval %s is no pause", interval)
			}
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			r, err := f.open()
			if err != nil {
				return err
			}
			defer r.temporal.Close()
			return r.watch(c.Context(), c.OutOrStdout(), key, interval)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "pause between two looks")
	return c
}

// watch reads the machine until it is gone, the drain of one that stays has ended, or ctx ends. An error of the first read ends
// the watch; later ones are shown, and the next read may succeed.
func (e reader) watch(ctx context.Context, out io.Writer, key types.NamespacedName, interval time.Duration) error {
	w := kubecli.Watch{Out: out, Live: kubecli.IsTerminal(out)}
	var uid types.UID
	for {
		s, err := e.look(ctx, key)
		switch {
		case kubecli.Interrupted(ctx):
			return nil
		case uid == "" && err != nil:
			return err
		case apierrors.IsNotFound(err) || uid != "" && s.machine != nil && s.machine.UID != uid:
			w.Line(e.now(), key.String()+" is gone")
			return nil
		case err != nil && s.machine != nil: // it is neither being deleted nor drained any more
			w.Line(e.now(), fmt.Sprintf("the drain of %s is over: %s", key, outcome(s.machine)))
			return nil
		case err != nil:
			w.Fail(e.now(), err)
		default:
			uid = s.machine.UID
			w.Frame(s.now, s.text(), s.summary())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// outcome says how the last drain of a machine that stays ended.
func outcome(m *v1alpha1.Machine) string {
	if d := m.Status.Drain; d != nil && d.Result != "" {
		return d.Result
	}
	return "it is not wanted any more"
}

// summary is one line that changes only with the facts, not with the time.
func (s snapshot) summary() string {
	text := kubecli.KeyOf(s.machine) + "  " + kubecli.OrDash(stageWord(s.machine))
	if how := drain.Means(s.machine); how != "" {
		text += " " + string(how)
	}
	if s.picture != nil {
		text += "  " + counted(s.picture.Counts)
	}
	switch {
	case held(s.machine):
		return text + "  held"
	case inDrain(s.machine):
		return text + "  " + s.waits()
	}
	if code, message := problem(s.machine); code != "" {
		text += "  " + code + ": " + message
	}
	return text
}
