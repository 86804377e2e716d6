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
	"millwright/starter/kubecli"
)

// proposal is the input of a plan in addition to the deployment.
type proposal struct {
	file           string // path of a file with another spec; empty if no file is given
	replicas       *int32 // nil means spec.replicas of the deployment
	createDuration time.Duration
	deleteDuration time.Duration
	hasDurations   bool // --create and --delete are given
}

func (f *rolloutCommand) planCommand() *cobra.Command {
	var w proposal
	var replicas int32
	c := &cobra.Command{
		Use:   "plan DEPLOYMENT",
		Short: "Show the steps that a rollout would take, and take none",
		Long: `plan shows step by step which size each set would get, as if machines appeared and disappeared at once and people approved
every step that waits for them. It ignores pause, hold and the turns of other deployments.

--file plans as if a file were applied: plan reads the deployment's spec and RolloutPolicies from it. The file may have policies
alone. If the file does not set spec.replicas, the number of replicas stays as it is. --replicas sets another number of replicas.
--create is the time until a new machine is available, and --delete the time until a deleted machine is gone. With both, plan also
shows the minimum time of the rollout: under the same bounds, no system can be faster.`,
		Example: `  millwright rollout plan shop/web
  millwright rollout plan shop/web -f pool.yaml --create 2m --delete 30s`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("replicas") {
				w.replicas = &replicas
			}
			w.hasDurations = c.Flags().Changed("create")
			if w.hasDurations != c.Flags().Changed("delete") {
				return errors.New("--create or --delete alone does not say how long a rollout takes: give both")
			}
			if err := w.validate(); err != nil {
				return err
			}
			s, err := f.readSnapshot(c, args)
			if err != nil {
				return err
			}
			text, err := s.planText(w)
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
	flags.DurationVar(&w.createDuration, "create", 0, "time from the creation of a machine until it is available")
	flags.DurationVar(&w.deleteDuration, "delete", 0, "time from the deletion of a machine until it is gone")
	return c
}

// validate returns an error for flags that are invalid for every deployment.
func (w proposal) validate() error {
	switch {
	case w.createDuration < 0 || w.deleteDuration < 0:
		return errors.New("--create and --delete must not be negative")
	case w.replicas != nil && *w.replicas < 0:
		return fmt.Errorf("--replicas %d is negative", *w.replicas)
	default:
		return nil
	}
}

// withProposal returns the snapshot after the proposal is applied.
func (s snapshot) withProposal(w proposal) (snapshot, error) {
	from := s.source
	if w.file != "" {
		policies, err := readPolicies(w.file, s.tree.object.GetNamespace())
		if err != nil {
			return snapshot{}, err
		}
		changed, err := from.withSpecFromFile(w.file)
		switch {
		case err != nil && (!errors.Is(err, errNoDeploymentInFile) || len(policies) == 0):
			return snapshot{}, err
		case err == nil:
			from = changed
		}
		from = from.withPolicy(cache.FirstMatchingPolicy(policiesAfterApply(s.policies, policies), s.tree.object))
	}
	if w.replicas != nil {
		from = from.withReplicas(*w.replicas)
	}
	return newSnapshot(from, s.now), nil
}

// policiesAfterApply returns the policies of a namespace after the policies of a file are applied.
func policiesAfterApply(present, file []*v1alpha1.RolloutPolicy) []*v1alpha1.RolloutPolicy {
	kept := slices.DeleteFunc(slices.Clone(present), func(p *v1alpha1.RolloutPolicy) bool {
		return slices.ContainsFunc(file, func(f *v1alpha1.RolloutPolicy) bool { return f.Name == p.Name })
	})
	return append(kept, file...)
}

// withoutPauseHoldAndRollback returns the snapshot without pause, hold, turns and automatic rollback.
func (s snapshot) withoutPauseHoldAndRollback() snapshot {
	from := s.source.withoutPauseAndHold()
	if policy := s.tree.policy; policy != nil {
		policy = policy.DeepCopy()
		policy.Spec.AutomaticRollback, policy.Spec.Turns = nil, nil
		from = from.withPolicy(policy)
	}
	return newSnapshot(from, s.now)
}

// afterRollback returns the snapshot after the requested rollback; the snapshot itself if no rollback is requested.
func (s snapshot) afterRollback() snapshot {
	if s.decision.Rollback == nil {
		return s
	}
	i := -1
	if to := s.decision.Rollback.Set; to != nil {
		i = slices.IndexFunc(s.facts.Sets, func(set rollout.MachineSet) bool { return set.UID == to.UID })
	}
	return newSnapshot(s.source.withTemplateOfSet(i, s.now), s.now)
}

// planText returns the plan as text. If the first step is not possible now, the text starts with the reason.
func (s snapshot) planText(w proposal) (string, error) {
	s, err := s.withProposal(w)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	switch o := s.facts; {
	case o.Deleting || o.InvalidReason != "":
		return s.statusSentence() + "\n", nil
	case o.Paused:
		_, _ = fmt.Fprintln(&out, "It is paused: these steps follow when it resumes.")
	case o.HoldReason != "":
		_, _ = fmt.Fprintf(&out, "It is held%s: these steps follow when it resumes.\n", phrase.ActorText(o.HoldReason))
	}
	if s.decision.HoldBy == rollout.HeldByTurn {
		_, _ = fmt.Fprintf(&out, "It waits for its turn: %s; these steps follow.\n", s.decision.Hold)
	}
	if policy := s.policyText(); policy != "" {
		_, _ = fmt.Fprintf(&out, "%s applies.\n", policy)
	}
	s = s.withoutPauseHoldAndRollback()
	if s.decision.Rollback != nil {
		_, _ = fmt.Fprintf(&out, "An undo comes first: %s.\n", s.decision.Why)
	}
	s = s.afterRollback()
	if steps := simulate.PredictSteps(s.facts); len(steps) > 0 {
		s.writeStepTable(&out, steps)
	} else {
		_, _ = fmt.Fprintf(&out, "%s: nothing to do: %s.\n", s.key(), s.machineCountsText())
	}
	_, _ = out.WriteString(s.planEndText(w))
	return out.String(), nil
}

// planEndText explains why the plan does not complete the rollout. With --create and --delete, it returns how long the
// rollout takes; otherwise the text is empty.
func (s snapshot) planEndText(w proposal) string {
	takes, ends := simulate.IdealDuration(s.facts, w.createDuration, w.deleteDuration)
	switch {
	case ends && w.hasDurations:
		return fmt.Sprintf(
			"With %s until a machine is available and %s until one is gone, the rollout takes at least %s.\n",
			phrase.DurationText(w.createDuration),
			phrase.DurationText(w.deleteDuration),
			phrase.DurationText(takes),
		)
	case ends:
		return ""
	case s.facts.Strategy == rollout.OnDelete:
		return "The plan ends here: old machines stay until somebody deletes them.\n"
	case s.lacksNodes():
		return "The plan ends here, because nodes were not read (--target-kubeconfig).\n"
	case s.facts.Strategy == rollout.InPlaceManual:
		return "The plan ends here: a person selects the nodes.\n"
	default:
		return "The plan ends here, and the rollout is not complete.\n"
	}
}
