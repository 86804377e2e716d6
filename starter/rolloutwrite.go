package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/steer"
	"millwright/observe"
)

// carryOut writes the verb on the deployment, if the deployment allows it, and says what happens next. The write holds only for
// the deployment as it was read. Doing it again is another order.
func (o turn) carryOut(ctx context.Context, c clerk, key types.NamespacedName) error {
	var uid types.UID
	for range 1 + writeRetries {
		family, err := (lookout{machines: c.machines}).family(ctx, key)
		if err != nil {
			return err
		}
		d := family.Deployment
		if uid != "" && d.UID != uid {
			return fmt.Errorf("deployment %s was replaced by another one of that name meanwhile: nothing was written", key)
		}
		uid = d.UID
		facts := observe.SteerFacts(family, c.now())
		decision := steer.Decide(o.Order, facts)
		switch {
		case decision.Refused != "":
			return errors.New(decision.Refused)
		case decision.Same:
			return o.tell(c, d, facts, decision)
		}
		_, err = c.machines.MachineV1alpha1().MachineDeployments(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, steerPatch(d, decision), metav1.PatchOptions{})
		switch {
		case apierrors.IsConflict(err):
		case err != nil:
			return fmt.Errorf("%s deployment %s: %w", o.Verb, key, err)
		default:
			return o.tell(c, d, facts, decision)
		}
	}
	return fmt.Errorf("%s deployment %s: others wrote it %d times meanwhile, and nothing was written: try again", o.Verb, key, 1+writeRetries)
}

// steerPatch writes what was decided, if the deployment is still the one that was read.
func steerPatch(d *v1alpha1.MachineDeployment, decision steer.Decision) []byte {
	patch := observe.SteerPatch(decision)
	metadata := patch["metadata"].(map[string]any) // it has one: each verb writes who gave it
	metadata["uid"], metadata["resourceVersion"] = d.UID, d.ResourceVersion
	text, err := json.Marshal(patch)
	if err != nil {
		panic(err) // strings and numbers in maps
	}
	return text
}

// tell says what was written, what happens next, and how that is seen.
func (o turn) tell(c clerk, d *v1alpha1.MachineDeployment, f steer.Facts, decision steer.Decision) error {
	if _, err := fmt.Fprintf(c.out, "%s\nNext: %s.\n", decision.Says, o.next(d, f)); err != nil {
		return err
	}
	if back := o.takeBack(f); back != "" {
		_, _ = fmt.Fprintf(c.out, "To take it back: starter rollout %s\n", back)
	}
	_, _ = fmt.Fprintf(c.out, "To follow it: starter rollout watch %s\n", f.Deployment)
	return nil
}

// next is what the verb brings about, in words.
func (o turn) next(d *v1alpha1.MachineDeployment, f steer.Facts) string {
	switch {
	case o.Verb == steer.Pause:
		return "no template is rolled out until somebody resumes it; a new number of replicas is followed, and machines that fail are replaced"
	case o.Verb == steer.Resume:
		return resumed(f)
	case o.Verb == steer.Cancel && !o.Back:
		return "machines of all templates stay, machines that fail are replaced, and a new number of replicas is followed, until somebody resumes it or there is another revision"
	case o.Verb == steer.Approve && (f.Paused || f.Held != ""):
		return "nothing, until somebody resumes it (starter rollout resume " + f.Deployment + ")"
	case o.Verb == steer.Approve:
		return "the rollout goes on"
	}
	text := fmt.Sprintf("the template of that revision returns, and is rolled out with the strategy %s", d.Spec.Strategy.EffectiveType())
	if o.Verb == steer.Start {
		text = fmt.Sprintf("another revision of the template is rolled out with the strategy %s", d.Spec.Strategy.EffectiveType())
	}
	if f.Stages > 0 {
		text += fmt.Sprintf(", in stages of which there are %d", f.Stages)
	}
	return text
}

// resumed says what goes on.
func resumed(f steer.Facts) string {
	switch {
	case f.RollbackTo != nil:
		return "the deployment returns to the revision that it was asked for meanwhile"
	case f.Rolling || f.Revision == 0:
		return "the rollout goes on where it stopped"
	default:
		return "the next change of the template is rolled out"
	}
}

// takeBack is the command that takes a verb back; empty where none does.
func (o turn) takeBack(f steer.Facts) string {
	switch {
	case o.Verb == steer.Start:
		return "undo " + f.Deployment
	case o.Verb == steer.Pause, o.Verb == steer.Cancel && !o.Back:
		return "resume " + f.Deployment
	case o.Verb == steer.Resume && f.Paused:
		return "pause " + f.Deployment
	case (o.Verb == steer.Undo || o.Verb == steer.Cancel) && f.Revision > 0:
		return fmt.Sprintf("undo %s --to-revision %d", f.Deployment, f.Revision)
	default:
		return ""
	}
}
