package main

import (
	"errors"

	"github.com/spf13/cobra"

	"millwright/decide/steer"
	"millwright/decide/verb"
)

// steering is how a verb of a rollout is explained to people.
type steering struct {
	name    steer.Verb
	short   string
	long    string
	example string
}

// steerings are all verbs of a rollout, in the order in which people reach for them.
func steerings() []steering {
	return []steering{
		{
			name:  steer.Start,
			short: "Make all machines anew, although the template stays",
			long: `start writes a time into the template, and nothing else: that makes another revision of it, which is rolled out as any other.
It is refused while the deployment is paused or its rollout is held.`,
			example: `  starter rollout start shop/web --reason "certificates of the nodes expire"`,
		},
		{
			name:  steer.Pause,
			short: "Roll no new template out until resume",
			long: `pause sets spec.paused. A rollout stops where it is, and neither a new template nor a former one is rolled out. A new number of
replicas is followed, and machines that fail are replaced.`,
			example: `  starter rollout pause shop/web --reason "until Monday"`,
		},
		{
			name:    steer.Resume,
			short:   "Take a pause off, and a hold",
			long:    `resume clears spec.paused and takes off what cancel wrote: the rollout goes on where it stopped.`,
			example: `  starter rollout resume shop/web`,
		},
		{
			name:  steer.Cancel,
			short: "Stop the rollout of this revision, or go back",
			long: `cancel holds the rollout that is under way where it is: machines of both templates stay. That lasts until resume, or until
there is another revision: a new template, or an undo. With --back the deployment returns to the revision before at once.`,
			example: `  starter rollout cancel shop/web --reason "machines do not join"
  starter rollout cancel shop/web --back --reason "the image is bad"`,
		},
		{
			name:  steer.Undo,
			short: "Go back to a former revision",
			long: `undo sets spec.rollbackTo: the template of a former revision comes back and is rolled out as any other. Without
--to-revision that is the one before. It is refused while the deployment is paused.`,
			example: `  starter rollout undo shop/web
  starter rollout undo shop/web --to-revision 5 --reason "6 leaks"`,
		},
		{
			name:  steer.Approve,
			short: "Pass the stage at which a rollout waits",
			long: `approve ends the stage that a rollout has reached, also one that would end by the clock. With --stages it passes that many
stages of this revision in all, reached or not.`,
			example: `  starter rollout approve shop/web --reason "looks well"
  starter rollout approve shop/web --stages 3`,
		},
	}
}

// turn is one verb of a rollout as somebody gave it on the command line.
type turn struct{ steer.Order }

func (f *rollouts) verbCommand(s steering) *cobra.Command {
	o, to := turn{steer.Order{Verb: s.name, Door: verb.CommandLine}}, int64(0)
	c := &cobra.Command{
		Use: string(s.name) + " DEPLOYMENT", Short: s.short, Long: s.long, Example: s.example, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("to-revision") {
				o.Revision = &to
			}
			key, err := f.key(c, args[0])
			if err != nil {
				return err
			}
			if refused := steer.Check(o.Order); refused != "" {
				return errors.New(refused)
			}
			machines, err := f.machines(f.kubeconfig)
			if err != nil {
				return err
			}
			return o.carryOut(c.Context(), clerk{machines: machines, now: f.now, out: c.OutOrStdout()}, key)
		},
	}
	signed(c, &o.Reason, &o.Actor)
	switch s.name {
	case steer.Cancel:
		c.Flags().BoolVar(&o.Back, "back", false, "do not hold the rollout, but return to the revision before")
	case steer.Undo:
		c.Flags().Int64Var(&to, "to-revision", 0, "revision to return to; 0: the one before")
	case steer.Approve:
		c.Flags().IntVar(&o.Stages, "stages", 0, "how many stages are passed in all; 0: up to the one at which the rollout waits")
	default:
	}
	return c
}
