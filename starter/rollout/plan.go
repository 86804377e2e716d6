package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
	"millwright/observe/cache"
)

// proposal is the input of a plan besides the deployment.
type proposal struct {
	file     string // path of a file with another spec; empty: none
	replicas *int32 // nil: spec.replicas of the deployment
	create   time.Duration
	remove   time.Duration
	timed    bool // create and remove are given
}

func (f *rollouts) planCommand() *cobra.Command {
	var w proposal
	var replicas int32
	c := &cobra.Command{
		Use:   "plan DEPLOYMENT",
		Short: "Show the steps that a rollout would take, and take none",
		Long: `plan shows step by step which size each set would get, as if machines appeared and disappeared at once and people approved
every step that waits for them. It ignores pause and hold.

--file plans as if a file were applied: plan reads the deployment's spec and RolloutPolicies from it. The file may have policies
alone. If the file does not set spec.replicas, the number of replicas stays as it is. --replicas sets another number of replicas.
--create is the time until a new machine is available, and --delete the time until a deleted machine is gone. With both, plan also
shows the minimum time of the rollout: under the same bounds, no system can be faster.`,
		Example: `  millwright rollout plan shop/web
  millwright rollout plan shop/web -f pool.yaml --create 2m --delete 30s`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("replicas") {
				w.replicas = &replicas
			}
			w.timed = c.Flags().Changed("create")
			if w.timed != c.Flags().Changed("delete") {
				return errors.New("--create or --delete alone does not say how long a rollout takes: give both")
			}
			if err := w.check(); err != nil {
				return err
			}
			s, err := f.status(c, args[0])
			if err != nil {
				return err
			}
			text, err := s.plan(w)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), text)
			return err
		},
	}
	flags := c.Flags()
	flags.StringVarP(&w.file, "file", "f", "", "file with another spec of the deployment, with RolloutPolicies, or both")
	flags.Int32Var(&replicas, "replicas", 0, "plan with this number of replicas instead of spec.replicas")
	flags.DurationVar(&w.create, "create", 0, "time from the creation of a machine until it is available")
	flags.DurationVar(&w.remove, "delete", 0, "time from the deletion of a machine until it is gone")
	return c
}

// check refuses flags that are invalid for every deployment.
func (w proposal) check() error {
	switch {
	case w.create < 0 || w.remove < 0:
		return errors.New("--create and --delete must not be negative")
	case w.replicas != nil && *w.replicas < 0:
		return fmt.Errorf("--replicas %d is negative", *w.replicas)
	default:
		return nil
	}
}

// suppose returns the snapshot as it would be if the proposal were applied.
func (s snapshot) suppose(w proposal) (snapshot, error) {
	from := s.source
	if w.file != "" {
		policies, err := readPolicies(w.file, s.tree.object.GetNamespace())
		if err != nil {
			return snapshot{}, err
		}
		changed, err := from.applied(w.file)
		switch {
		case err != nil && (!errors.Is(err, errNotInFile) || len(policies) == 0):
			return snapshot{}, err
		case err == nil:
			from = changed
		}
		from = from.under(cache.FirstPolicy(applied(s.policies, policies), s.tree.object))
	}
	if w.replicas != nil {
		from = from.sized(*w.replicas)
	}
	return judge(from, s.now), nil
}

// applied returns the policies of a namespace after those of a file are applied.
func applied(present, file []*v1alpha1.RolloutPolicy) []*v1alpha1.RolloutPolicy {
	kept := slices.DeleteFunc(slices.Clone(present), func(p *v1alpha1.RolloutPolicy) bool {
		return slices.ContainsFunc(file, func(f *v1alpha1.RolloutPolicy) bool { return f.Name == p.Name })
	})
	return append(kept, file...)
}

// running returns the snapshot without pause, hold and automatic rollback.
func (s snapshot) running() snapshot {
	from := s.source.running()
	if policy := s.tree.policy; policy != nil {
		policy = policy.DeepCopy()
		policy.Spec.AutomaticRollback = nil
		from = from.under(policy)
	}
	return judge(from, s.now)
}

// undone returns the snapshot after the requested undo, if there is one.
func (s snapshot) undone() snapshot {
	if s.next.Rollback == nil {
		return s
	}
	i := -1
	if to := s.next.Rollback.Set; to != nil {
		i = slices.IndexFunc(s.facts.Sets, func(set rollout.Set) bool { return set.UID == to.UID })
	}
	return judge(s.source.returned(i, s.now), s.now)
}

// plan is the plan in words. It begins with what keeps the first step from being taken.
func (s snapshot) plan(w proposal) (string, error) {
	s, err := s.suppose(w)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	switch o := s.facts; {
	case o.Deleting || o.Invalid != "":
		return s.sentence() + "\n", nil
	case o.Paused:
		_, _ = fmt.Fprintln(&out, "It is paused: these steps follow when it resumes.")
	case o.Held != "":
		_, _ = fmt.Fprintf(&out, "It is held%s: these steps follow when it resumes.\n", phrase.By(o.Held))
	}
	if policy := s.policy(); policy != "" {
		_, _ = fmt.Fprintf(&out, "%s applies.\n", policy)
	}
	s = s.running()
	if s.next.Rollback != nil {
		_, _ = fmt.Fprintf(&out, "An undo comes first: %s.\n", s.next.Why)
	}
	s = s.undone()
	if steps := simulate.Plan(s.facts); len(steps) > 0 {
		s.stepTable(&out, steps)
	} else {
		_, _ = fmt.Fprintf(&out, "%s: nothing to do: %s.\n", s.key(), s.numbers())
	}
	_, _ = out.WriteString(s.ends(w))
	return out.String(), nil
}

// ends says why the plan does not complete the rollout, or how long the rollout takes if --create and --delete are
// given; otherwise it is empty.
func (s snapshot) ends(w proposal) string {
	takes, ends := simulate.Ideal(s.facts, w.create, w.remove)
	switch {
	case ends && w.timed:
		return fmt.Sprintf(
			"With %s until a machine is available and %s until one is gone, the rollout takes at least %s.\n",
			phrase.Length(w.create),
			phrase.Length(w.remove),
			phrase.Length(takes),
		)
	case ends:
		return ""
	case s.facts.Strategy == rollout.OnDelete:
		return "The plan ends here: old machines stay until somebody deletes them.\n"
	case s.blind():
		return "The plan ends here, because nodes were not read (--target-kubeconfig).\n"
	case s.facts.Strategy == rollout.InPlaceManual:
		return "The plan ends here: a person selects the nodes.\n"
	default:
		return "The plan ends here, and the rollout is not complete.\n"
	}
}
