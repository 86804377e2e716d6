package drain

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/starter/kubecli"
)

// PreserveCommand returns the command preserve.
func PreserveCommand(d kubecli.Environment) *cobra.Command {
	f := &kubecli.ObjectFlags{Environment: d, Kind: request.KindMachine}
	r, stop := kubecli.NewRequest(request.KindMachine, request.Preserve), false
	c := &cobra.Command{
		Use:   "preserve MACHINE",
		Short: "Keep a machine for inspection, or no longer",
		Long: `preserve keeps a machine from now on: its set does not replace it when it fails, and the cluster autoscaler does not remove its node. The
machine is preserved for its machinePreserveTimeout, 96 hours by default; a second request does not move the end. --stop ends the
preservation, and keeps the machine's set from preserving the machine by itself.

With --when-failed the machine is preserved when it fails, and not before: until then the cluster autoscaler may remove it. It counts for
every failure, until --stop.

It writes an annotation on the Machine, and an event with actor and reason, which the annotation cannot hold. A machine is given as
NAMESPACE/NAME, or as NAME with --namespace.`,
		Example: `  millwright preserve shop/m-1 --reason "what is in its memory?"
  millwright preserve shop/m-1 --when-failed --reason "it restarts each night"
  millwright preserve shop/m-1 --stop`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			if stop {
				r.Command = request.Unpreserve
			}
			return f.SendRequest(c, args, r, readSubject)
		},
	}
	f.RegisterFlags(c)
	c.Flags().BoolVar(&stop, "stop", false, "keep it no longer")
	c.Flags().BoolVar(&r.WhenFailed, "when-failed", false, "keep it when it fails, and not before")
	c.MarkFlagsMutuallyExclusive("stop", "when-failed")
	r.RegisterActorFlags(c)
	return c
}

// preserveEffect describes the effect of preserve and unpreserve.
func preserveEffect(r kubecli.Request, m *v1alpha1.Machine, now time.Time) string {
	end := m.Status.CurrentStatus.PreserveExpiryTime
	switch {
	case r.Command == request.Unpreserve && end == nil:
		return "nothing, as the machine is not preserved; when it fails, its set does not preserve it either"
	case r.Command == request.Unpreserve:
		return "the machine is kept no longer: if it has failed, it is replaced"
	case r.WhenFailed && m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed:
		return phrase.TextIf(end != nil, "the present preservation ends, because the machine has not failed; ") + fmt.Sprintf(
			"when the machine fails, it is preserved for %s from then on, and not replaced",
			phrase.DurationText(m.Spec.EffectivePreserveTimeout()),
		)
	case end != nil:
		return "the machine stays preserved until " + phrase.TimeText(end.Time, now) + ", which does not move"
	default:
		return fmt.Sprintf(
			"the machine is preserved for %s: neither its set nor the cluster autoscaler removes it",
			phrase.DurationText(m.Spec.EffectivePreserveTimeout()),
		)
	}
}
