package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
	"millwright/observe/cache"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
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
	var output printers.OutputFormat
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
  millwright rollout plan shop/web -f pool.yaml --create 2m --delete 30s
  millwright rollout plan shop/web -f pool.yaml -o json`,
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
			p, err := s.plan(w)
			switch {
			case err != nil:
				return err
			case output != printers.OutputText:
				return output.Encode(c.OutOrStdout(), p.answer())
			}
			_, err = io.WriteString(c.OutOrStdout(), p.text())
			return err
		},
	}
	output.RegisterTextFlag(c)
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

// plan is the predicted rollout of a snapshot.
type plan struct {
	snapshot

	notes    []string // lines before the steps
	steps    []simulate.PredictedStep
	end      string // line after the steps; empty if there is none
	ends     bool   // the rollout is complete after the steps
	duration time.Duration
	refusal  string // why there are no steps at all; empty: steps may follow
}

// plan predicts the rollout. If the first step is not possible now, the notes start with the reason.
func (s snapshot) plan(w proposal) (plan, error) {
	s, err := s.withProposal(w)
	if err != nil {
		return plan{}, err
	}
	p := plan{snapshot: s}
	switch o := s.facts; {
	case o.Deleting || o.InvalidReason != "":
		p.refusal = s.statusSentence()
		return p, nil
	case o.Paused:
		p.notes = append(p.notes, "It is paused: these steps follow when it resumes.")
	case o.HoldReason != "":
		p.notes = append(
			p.notes,
			fmt.Sprintf("It is held%s: these steps follow when it resumes.", phrase.ActorText(o.HoldReason)),
		)
	}
	if s.decision.HoldBy == rollout.HeldByTurn {
		p.notes = append(p.notes, fmt.Sprintf("It waits for its turn: %s; these steps follow.", s.decision.Hold))
	}
	if policy := s.policyText(); policy != "" {
		p.notes = append(p.notes, policy+" applies.")
	}
	s = s.withoutPauseHoldAndRollback()
	if s.decision.Rollback != nil {
		p.notes = append(p.notes, fmt.Sprintf("An undo comes first: %s.", s.decision.Why))
	}
	p.snapshot = s.afterRollback()
	p.steps = simulate.PredictSteps(p.facts)
	p.duration, p.ends = simulate.IdealDuration(p.facts, w.createDuration, w.deleteDuration)
	if !w.hasDurations {
		p.duration = 0
	}
	p.end = p.planEndText(w)
	return p, nil
}

// text returns the plan as text.
func (p plan) text() string {
	if p.refusal != "" {
		return p.refusal + "\n"
	}
	var out bytes.Buffer
	for _, note := range p.notes {
		_, _ = fmt.Fprintln(&out, note)
	}
	if len(p.steps) > 0 {
		p.writeStepTable(&out, p.steps)
	} else {
		_, _ = fmt.Fprintf(&out, "%s: nothing to do: %s.\n", p.key(), p.machineCountsText())
	}
	_, _ = out.WriteString(p.end)
	return out.String()
}

// answer returns the fields that JSON and YAML print for the plan.
func (p plan) answer() planAnswer {
	a := planAnswer{
		Namespace: p.tree.object.GetNamespace(), Name: p.tree.object.GetName(),
		Notes: p.notes, Steps: []planStep{}, End: strings.TrimSpace(p.end), Complete: p.ends,
	}
	if p.refusal != "" {
		a.Notes = []string{p.refusal}
		return a
	}
	if p.ends {
		a.MinimumSeconds = p.duration.Seconds()
	}
	for _, set := range p.facts.Sets {
		a.Now = append(a.Now, sizeItem{set.Name, set.Replicas})
	}
	for _, step := range p.steps {
		a.Steps = append(a.Steps, planStep{step.Action, sizeItems(step.Sizes)})
	}
	return a
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

// errNoDeploymentInFile means that a file does not contain the deployment.
var errNoDeploymentInFile = errors.New("no MachineDeployment")

// readDeployment reads a changed deployment from a file that may also have other objects. The file must have exactly
// one MachineDeployment with the deployment's name and API version, in the deployment's namespace or without a
// namespace. An unknown field in the file is an error. The result sized is true if the file sets spec.replicas.
func readDeployment[D any, P interface {
	*D
	metav1.Object
}](file string, of P, api schema.GroupVersion,
) (found P, sized bool, err error) {
	documents, err := kubecli.ReadDocuments(file)
	if err != nil {
		return nil, false, err
	}
	for _, document := range documents {
		read, withSize, err := deploymentInDocument[D, P](document, of, api)
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("read %s: %w", file, err)
		case read != nil && found != nil:
			return nil, false, fmt.Errorf("%s holds MachineDeployment %s twice", file, kubecli.KeyOfObject(of))
		case read != nil:
			found, sized = read, withSize
		}
	}
	if found == nil {
		return nil, false, fmt.Errorf("%s holds %w %s", file, errNoDeploymentInFile, kubecli.KeyOfObject(of))
	}
	return found, sized, nil
}

// readPolicies returns the RolloutPolicies in a file that are in the namespace or have no namespace. An unknown field
// in a policy is an error.
func readPolicies(file, namespace string) ([]*v1alpha1.RolloutPolicy, error) {
	documents, err := kubecli.ReadDocuments(file)
	if err != nil {
		return nil, err
	}
	var policies []*v1alpha1.RolloutPolicy
	for _, document := range documents {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		other := head.GroupVersionKind().Group != v1alpha1.SchemeGroupVersion.Group || head.Kind != "RolloutPolicy"
		if other || head.Namespace != "" && head.Namespace != namespace {
			continue
		}
		policy := &v1alpha1.RolloutPolicy{}
		if err := yaml.UnmarshalStrict(document, policy); err != nil {
			return nil, fmt.Errorf("read RolloutPolicy %s in %s: %w", head.Name, file, err)
		}
		policies = append(policies, policy)
	}
	return policies, nil
}

// deploymentInDocument returns the deployment if the YAML document has it, with the checks of readDeployment; nil if
// the document has another object.
func deploymentInDocument[D any, P interface {
	*D
	metav1.Object
}](document []byte, of P, api schema.GroupVersion,
) (found P, sized bool, err error) {
	var object unstructured.Unstructured
	if err := yaml.Unmarshal(document, &object.Object); err != nil {
		return nil, false, err
	}
	kind := object.GroupVersionKind()
	if kind.Group != api.Group || kind.Kind != "MachineDeployment" || object.GetName() != of.GetName() ||
		object.GetNamespace() != "" && object.GetNamespace() != of.GetNamespace() {
		return nil, false, nil
	}
	if kind.Version != api.Version {
		return nil, false, fmt.Errorf(
			"MachineDeployment %s has version %s: give it as %s",
			object.GetName(),
			kind.Version,
			api,
		)
	}
	found = new(D)
	if err := yaml.UnmarshalStrict(document, found); err != nil {
		return nil, false, err
	}
	_, sized, _ = unstructured.NestedFieldNoCopy(object.Object, "spec", "replicas")
	return found, sized, nil
}
