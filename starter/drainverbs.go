package main

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millwright/decide/verb"
	"millwright/observe"
)

// The verbs of a drain.
const (
	force   = verb.Force
	skip    = verb.Skip
	hold    = verb.Hold
	resume  = verb.Resume
	retry   = verb.Retry
	extend  = verb.Extend
	release = verb.Release
)

// wish is how a verb is explained to people.
type wish struct {
	name    verb.Verb
	short   string
	long    string
	example string
}

// wishes are those of a drain, in the order in which people reach for them.
func wishes() []wish {
	return []wish{
		{
			name:  extend,
			short: "Evict for longer, before pods are deleted whatever blocks them",
			long: `extend gives a drain more time than drainTimeout does. --for counts from the present deadline, or from now where there is
none; --until is a time. It never shortens, and it comes too late once pods are deleted.`,
			example: `  starter drain extend shop/m-1 --for 1h --reason "the backup needs longer"
  starter drain extend shop/m-1 --until 2026-11-21T18:00:00Z`,
		},
		{
			name:  retry,
			short: "Ask every pod again at once",
			long: `retry ends all pauses between attempts: the drain asks each pod again now. In later stages it makes the machine look again
at what it waits for.`,
			example: `  starter drain retry shop/m-1`,
		},
		{
			name:  hold,
			short: "Stop a deletion in the stage in which it is",
			long: `hold keeps a deletion in its stage: a drain asks no more pods, and the node stays cordoned. What was asked before still
goes. It lasts until resume.`,
			example: `  starter drain hold shop/m-1 --reason "looking at the node"`,
		},
		{
			name:    resume,
			short:   "Take a hold off",
			long:    `resume takes a hold off, whoever set it: the deletion goes on where it stopped.`,
			example: `  starter drain resume shop/m-1`,
		},
		{
			name:  force,
			short: "Delete all pods of the node without a grace period, now",
			long: `force deletes the pods of the node at once, without asking disruption budgets and without their grace periods. Work that
pods have not saved is lost.`,
			example: `  starter drain force shop/m-1 --reason "the node burns"`,
		},
		{
			name:  skip,
			short: "Do not drain the node, or not any more",
			long: `skip goes on without a drain: no pod is asked to go, and those that are left end with the instance. A drain that runs
stops. A cluster that does not answer is not waited for.`,
			example: `  starter drain skip shop/m-1 --reason "test cluster, nothing to save"`,
		},
		{
			name:  release,
			short: "Let the Machine object go without its instance, as the last resort",
			long: `release lets the Machine object go although the provider was not, or cannot be, asked to delete the instance, or although the
cluster of the node does not answer. An instance that is there is left alone, and so is what cannot be removed in that cluster:
nobody deletes it, and nobody looks for it later. See to it yourself first. It asks before it writes, unless --yes is given.`,
			example: `  starter drain release shop/m-1 --reason "the account is closed, instances are gone"`,
		},
	}
}

// order is one verb as somebody gave it on the command line.
type order struct {
	verb.Order
	annotation string
	more       time.Duration // extend
	yes        bool          // release
}

func newOrder(v verb.Verb) order {
	return order{Order: verb.Order{Verb: v, Door: verb.CommandLine}, annotation: observe.VerbAnnotation(v)}
}

func (f *drains) verbCommand(w wish) *cobra.Command {
	o := newOrder(w.name)
	c := &cobra.Command{
		Use: string(w.name) + " MACHINE", Short: w.short, Long: w.long, Example: w.example, Args: cobra.ExactArgs(1),
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
	if w.name != resume {
		signed(c, &o.Reason, &o.Actor)
	}
	if w.name.MayWait() {
		flags.BoolVar(&o.InAdvance, "in-advance", false, "write it although the machine is not being deleted yet")
	}
	if w.name == extend {
		flags.DurationVar(&o.more, "for", 0, "how much longer than the present deadline")
		flags.StringVar(&o.Until, "until", "", "until when, as an RFC 3339 time")
	}
	if w.name == release {
		flags.BoolVar(&o.yes, "yes", false, "do not ask")
	}
	return c
}

// signed lets people say who they are, and why they want it.
func signed(c *cobra.Command, reason, actor *string) {
	c.Flags().StringVar(reason, "reason", "", "why; people read it wherever the verb acts")
	c.Flags().StringVar(actor, "as-user", cmp.Or(os.Getenv("USER"), "somebody"), "who wants it")
}

// complete refuses what cannot be written whatever the machine is.
func (o *order) complete() error {
	if o.more != 0 {
		o.For = o.more.String()
	}
	if refused := verb.Check(o.Order); refused != "" {
		return errors.New(refused)
	}
	return nil
}

// oneLine makes a text that people gave fit into one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
