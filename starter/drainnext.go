package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/verb"
	"millwright/observe"
)

// tell says what was written, what happens next, and how that is seen.
func (o order) tell(c clerk, m *v1alpha1.Machine, d verb.Decision) error {
	written := fmt.Sprintf("machine %s: %s", keyOf(m), d.Written(o.annotation, m.Annotations[o.annotation]))
	if _, err := fmt.Fprintf(c.out, "%s\nNext: %s.\n", written, o.next(m, c.now(), d)); err != nil {
		return err
	}
	if undo := o.undo(m); undo != "" {
		_, _ = fmt.Fprintf(c.out, "To take it back: %s\n", undo)
	}
	if m.DeletionTimestamp != nil || staying(m) {
		_, _ = fmt.Fprintf(c.out, "To follow it: starter drain watch %s\n", keyOf(m))
	}
	return nil
}

// next is what the order brings about, in words.
func (o order) next(m *v1alpha1.Machine, now time.Time, d verb.Decision) string {
	text := o.effect(m, now, d)
	switch {
	case o.Verb == verb.Preserve || o.Verb == verb.Unpreserve:
		return text
	case staying(m) && (o.Verb == force || o.Verb == skip):
		text += "; the wish stays on the machine, for its later drains and its deletion, until somebody takes it off"
	case staying(m):
	case m.DeletionTimestamp == nil && o.Verb == resume:
		return "nothing: the machine is not being deleted, and its deletion would not stop any more"
	case m.DeletionTimestamp == nil:
		return "nothing, until the machine is deleted; then " + text
	}
	if held(m) && o.Verb != resume && o.Verb != hold {
		return "nothing, while the " + whole(m) + " is held (starter drain resume " + keyOf(m) + "); then " + text
	}
	return text
}

func (o order) effect(m *v1alpha1.Machine, now time.Time, d verb.Decision) string {
	node := cmp.Or(m.Labels[v1alpha1.LabelNode], "of the machine")
	switch o.Verb {
	case force:
		return "all pods of node " + node + " are deleted without a grace period, whatever budgets say"
	case skip:
		if staying(m) {
			return "no pod of node " + node + " is asked to go any more; those that are left stay, and the " + goal(m) + " goes on"
		}
		return "no pod of node " + node + " is asked to go any more, and those that are left end with the instance"
	case hold:
		return o.stops(m, node, now)
	case resume:
		if staying(m) {
			return "the drain of node " + node + " goes on" + o.lost(m, now)
		}
		return fmt.Sprintf("the deletion goes on in stage %s%s", cmp.Or(string(stage(m)), "PreDrainHooks"), o.lost(m, now))
	case retry:
		if observe.DrainOver(m) {
			return fmt.Sprintf("the machine looks again at what it waits for in stage %s", stage(m))
		}
		return "every pod of node " + node + " that is not on its way is asked again at once"
	case extend:
		return o.extends(m, now, d.Value)
	case release:
		return o.releases(m)
	default:
		return o.keeps(m, now)
	}
}

// stops says what a hold stops, and what it does not.
func (o order) stops(m *v1alpha1.Machine, node string, now time.Time) string {
	switch {
	case observe.DrainOver(m):
		return fmt.Sprintf("the deletion goes no further than stage %s; what the provider was asked before may still happen", stage(m))
	case observe.DrainMeans(m) == drain.Evict && !observe.StepDeadline(m, now).IsZero():
		cordon := ", and it stays cordoned"
		if staying(m) {
			cordon = ""
		}
		return fmt.Sprintf("no more pods of node %s are asked to go%s; the drain's deadline is not moved: resumed after %s, it deletes pods",
			node, cordon, when(observe.StepDeadline(m, now), now))
	default:
		return "no more pods of node " + node + " are asked to go, and nothing else is done to it"
	}
}

// lost says that the time of evictions has passed meanwhile.
func (o order) lost(m *v1alpha1.Machine, now time.Time) string {
	if at := observe.StepDeadline(m, now); observe.DrainMeans(m) == drain.Evict && !at.IsZero() && !at.After(now) {
		return "; its deadline has passed at " + clock(at, now) + ": pods are deleted"
	}
	return ""
}

func (o order) extends(m *v1alpha1.Machine, now time.Time, value string) string {
	stamp, _, _ := strings.Cut(value, " ")
	until, _ := time.Parse(time.RFC3339, stamp) // so it was written
	text := "pods are evicted until " + when(until, now) + ", and those that are left are deleted then"
	extended := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&extended.ObjectMeta, o.annotation, value)
	switch at, then := observe.Evictions(extended, now); {
	case observe.DrainMeans(m) == "":
		text += fmt.Sprintf(", unless its drainTimeout of %s, which begins with the drain, ends later", m.Spec.EffectiveDrainTimeout())
	case then == drain.Kill:
		text += "; but the node is not well, and if it stays so, they are deleted at " + when(at, now)
	}
	return text
}

func (o order) releases(m *v1alpha1.Machine) string {
	switch now := deletion.Stage(stage(m)); {
	case instanceGone(m):
		return "the Machine object goes, whether its node's cluster answers or not. " + notDone(m)
	case deletion.Later(now, deletion.Instance) != now:
		return "the deletion goes on to stage Instance; there the provider is not asked, and the Node and Machine objects go. " + notDone(m)
	default:
		return "the Node and Machine objects go, and the provider is not asked any more. " + notDone(m)
	}
}

// instanceGone reports whether the deletion has come past the provider.
func instanceGone(m *v1alpha1.Machine) bool {
	return deletion.Later(deletion.Stage(stage(m)), deletion.Instance) != deletion.Instance
}

// notDone says what a release leaves to people.
func notDone(m *v1alpha1.Machine) string {
	if instanceGone(m) {
		return "The instance is gone; what cannot be removed in the cluster of node " + cmp.Or(m.Labels[v1alpha1.LabelNode], "of the machine") + " is left there, and nobody looks for it later"
	}
	what := "Whatever instance the machine has at the provider"
	if m.Spec.ProviderID != "" {
		what = "Instance " + m.Spec.ProviderID + " at the provider"
	}
	return what + " is left alone: release does not delete it, and nobody looks for it later"
}

// undo is the command that takes an order back; empty where that changes nothing any more, or where a verb does it.
func (o order) undo(m *v1alpha1.Machine) string {
	off := fmt.Sprintf("kubectl annotate machine -n %s %s %s-", m.Namespace, m.Name, o.annotation)
	switch o.Verb {
	case hold:
		return "starter drain resume " + keyOf(m)
	case extend, release:
		return off
	case verb.Preserve:
		return "starter preserve " + keyOf(m) + " --stop"
	case verb.Unpreserve:
		return "starter preserve " + keyOf(m)
	case skip, force:
		if m.DeletionTimestamp == nil || held(m) { // else it acts at once, and is of no use later
			return off
		}
	default:
	}
	return ""
}
