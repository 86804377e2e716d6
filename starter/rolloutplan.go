package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// whatIf is what a plan is asked for beside the deployment as it stands.
type whatIf struct {
	file     string // with another spec; empty: none
	replicas *int32 // nil: as it stands
	create   time.Duration
	remove   time.Duration
	timed    bool // with both of these
}

func (f *rollouts) planCommand() *cobra.Command {
	var w whatIf
	var replicas int32
	c := &cobra.Command{
		Use:   "plan DEPLOYMENT",
		Short: "Show the steps that a rollout would take, and take none",
		Long: `plan shows which size each set would get, step by step, in a world in which machines come and go at once and people pass every
stage that waits for them. Pause and hold are looked past.

--file reads the deployment's spec from a file: what would happen if that were applied. Replicas that it leaves out stay as they are.
--replicas puts another number of machines on top. With --create and --delete, how long one machine takes to come and to go, it says
how long the rollout takes at least: no system can be faster under the same bounds.`,
		Example: `  starter rollout plan shop/web
  starter rollout plan shop/web -f pool.yaml --create 2m --delete 30s`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("replicas") {
				w.replicas = &replicas
			}
			w.timed = c.Flags().Changed("create")
			if w.timed != c.Flags().Changed("delete") {
				return errors.New("--create and --delete say together how long a rollout takes: give both")
			}
			if err := w.check(); err != nil {
				return err
			}
			s, err := f.stand(c, args[0])
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
	flags.StringVarP(&w.file, "file", "f", "", "file with the deployment as it may become")
	flags.Int32Var(&replicas, "replicas", 0, "number of machines, instead of the deployment's")
	flags.DurationVar(&w.create, "create", 0, "how long a machine takes until it is available")
	flags.DurationVar(&w.remove, "delete", 0, "how long a machine takes until it is gone")
	return c
}

// check refuses what no deployment can make good.
func (w whatIf) check() error {
	switch {
	case w.create < 0 || w.remove < 0:
		return errors.New("--create and --delete are not negative")
	case w.replicas != nil && *w.replicas < 0:
		return fmt.Errorf("--replicas %d is no number of machines", *w.replicas)
	default:
		return nil
	}
}

// suppose is the same deployment with what is asked for.
func (s stand) suppose(w whatIf) (stand, error) {
	d := s.family.Deployment.DeepCopy()
	if w.file != "" {
		spec, err := readSpec(w.file, d)
		if err != nil {
			return stand{}, err
		}
		d.Spec = *spec
	}
	if w.replicas != nil {
		d.Spec.Replicas = *w.replicas
	}
	family := s.family
	family.Deployment = d
	return judge(family, s.now), nil
}

// running is the same deployment without what keeps its rollout where it is, and without going back by itself.
func (s stand) running() stand {
	family := s.family
	d := s.family.Deployment.DeepCopy()
	d.Spec.Paused = false
	delete(d.Annotations, v1alpha1.AnnotationRolloutHold)
	if d.Spec.Rollout != nil {
		d.Spec.Rollout.AutomaticRollback = nil
	}
	family.Deployment = d
	return judge(family, s.now)
}

// undone is the same deployment with the template that it is asked to return to, where it is.
func (s stand) undone() stand {
	if s.next.Rollback == nil {
		return s
	}
	family := s.family
	d := s.family.Deployment.DeepCopy()
	d.Spec.RollbackTo = nil
	if to := s.next.Rollback.Set; to != nil {
		i := slices.IndexFunc(s.facts.Sets, func(set rollout.Set) bool { return set.UID == to.UID })
		d.Spec.Template = *asGiven(s.family.Sets[i])
	}
	family.Deployment = d
	return judge(family, s.now)
}

// plan is the steps in words. What stands in the way of the first one is said before them.
func (s stand) plan(w whatIf) (string, error) {
	s, err := s.suppose(w)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	switch o := s.facts; {
	case o.Deleting || o.Invalid != "":
		return s.sentence() + "\n", nil
	case o.Paused:
		_, _ = fmt.Fprintln(&out, "It is paused: these steps follow once it goes on.")
	case o.Held != "":
		_, _ = fmt.Fprintf(&out, "It is held (%s): these steps follow once it goes on.\n", o.Held)
	}
	s = s.running()
	if s.next.Rollback != nil {
		_, _ = fmt.Fprintf(&out, "An undo comes first: %s.\n", s.next.Why)
	}
	s = s.undone()
	if steps := rollout.Plan(s.facts); len(steps) > 0 {
		s.stepTable(&out, steps)
	} else {
		_, _ = fmt.Fprintf(&out, "%s: nothing is to be done: %s.\n", s.key(), s.numbers())
	}
	_, _ = out.WriteString(s.ends(w))
	return out.String(), nil
}

// ends says whether the plan comes to its end, and how long that takes where that is asked.
func (s stand) ends(w whatIf) string {
	takes, ends := rollout.Ideal(s.facts, w.create, w.remove)
	switch {
	case ends && w.timed:
		return fmt.Sprintf("With %s for a machine to come and %s for one to go, it takes %s at least.\n", w.create, w.remove, takes)
	case ends:
		return ""
	case s.facts.Strategy == rollout.OnDelete:
		return "It ends there: old machines stay until somebody deletes them.\n"
	case s.blind():
		return "It ends there as far as is known: nodes were not read (--target-kubeconfig).\n"
	case s.facts.Strategy == rollout.InPlaceManual:
		return "It ends there: a person is to select the nodes.\n"
	default:
		return "It ends there, and is not complete.\n"
	}
}
