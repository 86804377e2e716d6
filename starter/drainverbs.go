package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/api/v1alpha1"
)

// The verbs.
const (
	force   = "force"
	skip    = "skip"
	hold    = "hold"
	resume  = "resume"
	retry   = "retry"
	extend  = "extend"
	release = "release"
)

// verb is one wish that an operator can write on a machine.
type verb struct {
	name       string
	short      string
	long       string
	example    string
	annotation string
	reasoned   bool // it needs a reason
	early      bool // it may be written before the machine is deleted
	pods       bool // it means nothing when the drain is over
}

// verbs are all of them, in the order in which people reach for them.
func verbs() []verb {
	return []verb{
		{
			name: extend, annotation: v1alpha1.AnnotationExtend, early: true, pods: true,
			short: "Evict for longer, before pods are deleted whatever blocks them",
			long: `extend gives a drain more time than drainTimeout does. --for counts from the present deadline, or from now where there is
none; --until is a time. It never shortens, and it comes too late once pods are deleted.`,
			example: `  starter drain extend shop/m-1 --for 1h --reason "the backup needs longer"
  starter drain extend shop/m-1 --until 2026-11-21T18:00:00Z`,
		},
		{
			name: retry, annotation: v1alpha1.AnnotationRetry,
			short: "Ask every pod again at once",
			long: `retry ends all pauses between attempts: the drain asks each pod again now. In later stages it makes the machine look again
at what it waits for.`,
			example: `  starter drain retry shop/m-1`,
		},
		{
			name: hold, annotation: v1alpha1.AnnotationHold, reasoned: true, early: true,
			short: "Stop a deletion in the stage in which it is",
			long: `hold keeps a deletion in its stage: a drain asks no more pods, and the node stays cordoned. What was asked before still
goes. It lasts until resume.`,
			example: `  starter drain hold shop/m-1 --reason "looking at the node"`,
		},
		{
			name: resume, annotation: v1alpha1.AnnotationHold, early: true,
			short:   "Take a hold off",
			long:    `resume takes a hold off, whoever set it: the deletion goes on where it stopped.`,
			example: `  starter drain resume shop/m-1`,
		},
		{
			name: force, annotation: v1alpha1.AnnotationForce, reasoned: true, early: true, pods: true,
			short: "Delete all pods of the node without a grace period, now",
			long: `force deletes the pods of the node at once, without asking disruption budgets and without their grace periods. Work that
pods have not saved is lost.`,
			example: `  starter drain force shop/m-1 --reason "the node burns"`,
		},
		{
			name: skip, annotation: v1alpha1.AnnotationSkipDrain, reasoned: true, early: true, pods: true,
			short: "Do not drain the node, or not any more",
			long: `skip goes on without a drain: no pod is asked to go, and those that are left end with the instance. A drain that runs
stops.`,
			example: `  starter drain skip shop/m-1 --reason "test cluster, nothing to save"`,
		},
		{
			name: release, annotation: v1alpha1.AnnotationRelease, reasoned: true,
			short: "Let the Machine object go without its instance, as the last resort",
			long: `release lets the Machine object go although the provider was not, or cannot be, asked to delete the instance. The instance
is left alone: nobody deletes it, and nobody looks for it later. See to it yourself first. It asks before it writes, unless
--yes is given.`,
			example: `  starter drain release shop/m-1 --reason "the account is closed, instances are gone"`,
		},
	}
}

// order is one verb as somebody gave it.
type order struct {
	verb
	user      string
	reason    string
	inAdvance bool
	more      time.Duration // extend
	until     string        // extend
	yes       bool          // release
}

func (f *drains) verbCommand(v verb) *cobra.Command {
	o := order{verb: v}
	c := &cobra.Command{
		Use: v.name + " MACHINE", Short: v.short, Long: v.long, Example: v.example, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			if err := o.complete(); err != nil {
				return err
			}
			machines, err := f.machines(f.kubeconfig)
			if err != nil {
				return err
			}
			return o.carryOut(c.Context(), clerk{machines: machines, now: f.now, in: c.InOrStdin(), out: c.OutOrStdout()}, key)
		},
	}
	flags := c.Flags()
	if v.name != resume {
		flags.StringVar(&o.reason, "reason", "", "why; people read it wherever the verb acts")
		flags.StringVar(&o.user, "as-user", cmp.Or(os.Getenv("USER"), "somebody"), "who wants it")
	}
	if v.early && v.name != resume {
		flags.BoolVar(&o.inAdvance, "in-advance", false, "write it although the machine is not being deleted yet")
	}
	if v.name == extend {
		flags.DurationVar(&o.more, "for", 0, "how much longer than the present deadline")
		flags.StringVar(&o.until, "until", "", "until when, as an RFC 3339 time")
	}
	if v.name == release {
		flags.BoolVar(&o.yes, "yes", false, "do not ask")
	}
	return c
}

// complete refuses what cannot be written whatever the machine is.
func (o *order) complete() error {
	o.reason, o.user = oneLine(o.reason), oneLine(o.user)
	switch {
	case o.reasoned && o.reason == "":
		return fmt.Errorf("%s needs a reason for those who come after you: --reason TEXT", o.name)
	case o.name != extend:
		return nil
	case (o.more == 0) == (o.until == ""):
		return fmt.Errorf("extend needs either --for DURATION or --until TIME")
	case o.more < 0:
		return fmt.Errorf("--for %s would shorten; extend only gives more time", o.more)
	case o.until == "":
		return nil
	}
	if _, err := time.Parse(time.RFC3339, o.until); err != nil {
		return fmt.Errorf("--until is no RFC 3339 time, such as 2026-11-21T18:00:00Z: %w", err)
	}
	return nil
}

// oneLine makes a text that people gave fit into one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
