package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/starter/kubecli"
)

// requestCommandsHelp returns the help of the request commands for drains, the most used commands first.
func requestCommandsHelp() []kubecli.CommandHelp {
	return []kubecli.CommandHelp{
		{
			Name:  request.Extend,
			Short: "Evict for longer before pods are deleted regardless of what blocks them",
			Long: `extend gives a drain more time than its drainTimeout. --for counts from the present deadline, or from now if there is no deadline;
--until is a time. extend never makes the time shorter, and it is refused once the drain deletes pods.`,
			Example: `  millwright drain extend shop/m-1 --for 1h --reason "the backup needs longer"
  millwright drain extend shop/m-1 --until 2026-11-21T18:00:00Z`,
		},
		{
			Name:  request.Retry,
			Short: "Try to remove every pod again at once",
			Long: `retry ends all pauses between attempts: the drain tries to remove each pod again now. In later stages the machine checks again
what it waits for.`,
			Example: `  millwright drain retry shop/m-1`,
		},
		{
			Name:  request.Hold,
			Short: "Stop a deletion in the stage in which it is",
			Long: `hold keeps a deletion in its stage: the drain evicts no more pods, and the node stays cordoned. Pods that were evicted before
still end. The hold lasts until resume.`,
			Example: `  millwright drain hold shop/m-1 --reason "looking at the node"`,
		},
		{
			Name:    request.Resume,
			Short:   "End a hold",
			Long:    `resume ends a hold, whoever set it: the deletion continues where it stopped.`,
			Example: `  millwright drain resume shop/m-1`,
		},
		{
			Name:  request.Force,
			Short: "Delete all pods of the node without a grace period, now",
			Long: `force deletes the pods of the node at once, without asking disruption budgets and without their grace periods. Work that
pods have not saved is lost.`,
			Example: `  millwright drain force shop/m-1 --reason "the node burns"`,
		},
		{
			Name:  request.Skip,
			Short: "Do not drain the node, or not any more",
			Long: `skip continues without a drain: no pod is evicted, and the remaining pods end with the instance. A running drain stops. The
deletion does not wait for a cluster that does not answer.`,
			Example: `  millwright drain skip shop/m-1 --reason "test cluster, nothing to save"`,
		},
		{
			Name:  request.AbandonInstance,
			Short: "Remove the Machine object and leave its instance running, as the last resort",
			Long: `abandon-instance removes the Machine object without a request to the provider to delete the instance, and without an answer of
the node's cluster. An existing instance keeps running, and what cannot be removed in that cluster stays. Only a sweep for
orphans of its MachineClass deletes the instance later; without the class, nothing deletes it: delete it yourself first. The
command asks before it writes, unless --yes is given.`,
			Example: `  millwright drain abandon-instance shop/m-1 --reason "the account is closed, instances are gone"`,
		},
	}
}

// expectedEffectText describes the effect of a request, and its time if the effect is not immediate.
func expectedEffectText(r kubecli.Request, m *v1alpha1.Machine, now time.Time, d request.Decision) string {
	text := immediateEffectText(r, m, now, d)
	switch {
	case r.Command == request.Preserve || r.Command == request.Unpreserve:
		return text
	case isDrainedWithoutDeletion(m) && (r.Command == request.Force || r.Command == request.Skip):
		text += "; the request stays on the machine, for its later drains and its deletion, until somebody removes it"
	case isDrainedWithoutDeletion(m):
	case m.DeletionTimestamp == nil && r.Command == request.Resume:
		return "nothing: the machine is not being deleted, and its deletion would not stop any more"
	case m.DeletionTimestamp == nil:
		return "nothing, until the machine is deleted; then " + text
	}
	if isHeld(m) && r.Command != request.Resume && r.Command != request.Hold {
		return "nothing, while the " + heldOperation(
			m,
		) + " is held (millwright drain resume " + kubecli.KeyOfObject(
			m,
		) + "); then " + text
	}
	return text
}

func immediateEffectText(r kubecli.Request, m *v1alpha1.Machine, now time.Time, d request.Decision) string {
	node := cmp.Or(cache.NodeNameOfMachine(m), "of the machine")
	switch r.Command {
	case request.Force:
		return "all pods of node " + node + " are deleted without a grace period, regardless of disruption budgets"
	case request.Skip:
		if isDrainedWithoutDeletion(m) {
			return "no pod of node " + node + " is evicted any more; the remaining pods stay, and the " + drainPurpose(
				m,
			) + " continues"
		}
		return "no pod of node " + node + " is evicted any more; the remaining pods end with the instance"
	case request.Hold:
		return holdEffect(m, node, now)
	case request.Resume:
		if isDrainedWithoutDeletion(m) {
			return "the drain of node " + node + " continues" + expiredDeadlineText(m, now)
		}
		return fmt.Sprintf(
			"the deletion continues in stage %s%s",
			cmp.Or(string(deletionStage(m)), "PreDrainHooks"),
			expiredDeadlineText(m, now),
		)
	case request.Retry:
		if observe.IsDrainOver(m) {
			return fmt.Sprintf("the machine checks again what it waits for in stage %s", deletionStage(m))
		}
		return "every pod of node " + node + " that is not terminating is evicted again at once"
	case request.Extend:
		return extendEffect(m, now, d)
	case request.AbandonInstance:
		return abandonEffect(m)
	default:
		return preserveEffect(r, m, now)
	}
}

// holdEffect describes what a hold stops, and what continues during the hold.
func holdEffect(m *v1alpha1.Machine, node string, now time.Time) string {
	switch {
	case observe.IsDrainOver(m):
		return fmt.Sprintf(
			"the deletion goes no further than stage %s; requests to the provider that were sent before may still take effect",
			deletionStage(m),
		)
	case observe.CurrentRemovalMeans(m).KeepsPodOrder() && !observe.DeadlineFacts(m, now).NextDeadline().IsZero():
		cordon := ", and it stays cordoned"
		if isDrainedWithoutDeletion(m) {
			cordon = ""
		}
		return fmt.Sprintf(
			"no more pods of node %s are evicted%s; the drain's deadline is not moved: resumed after %s, it deletes pods",
			node,
			cordon,
			phrase.TimeText(observe.DeadlineFacts(m, now).NextDeadline(), now),
		)
	default:
		return "no more pods of node " + node + " are evicted, and nothing else is done to the node"
	}
}

// expiredDeadlineText reports that the deadline for evictions has passed during a hold; empty if the deadline has not
// passed.
func expiredDeadlineText(m *v1alpha1.Machine, now time.Time) string {
	if at := observe.DeadlineFacts(m, now).
		NextDeadline(); observe.CurrentRemovalMeans(m).KeepsPodOrder() && !at.IsZero() &&
		!at.After(now) {
		return "; its deadline has passed at " + phrase.ClockText(at, now) + ": pods are deleted"
	}
	return ""
}

func extendEffect(m *v1alpha1.Machine, now time.Time, d request.Decision) string {
	extended := m.DeepCopy()
	if d.AnnotationValue != nil {
		metav1.SetMetaDataAnnotation(&extended.ObjectMeta, v1alpha1.AnnotationExtend, *d.AnnotationValue)
	}
	stamp, _, _ := strings.Cut(extended.Annotations[v1alpha1.AnnotationExtend], " ")
	until, _ := time.Parse(time.RFC3339, stamp) // the annotation is always written in this format
	does := "evicted"
	if observe.CurrentRemovalMeans(m) == drain.MeansDeleteInOrder {
		does = "deleted in order"
	}
	text := "pods are " + does + " until " + phrase.TimeText(until, now) + ", and the remaining pods are deleted then"
	switch at, then := observe.DeadlineFacts(extended, now).EvictionDeadline(); {
	case observe.CurrentRemovalMeans(m) == "":
		text += fmt.Sprintf(
			", unless its drainTimeout of %s, which begins with the drain, ends later",
			phrase.DurationText(m.Spec.EffectiveDrainTimeout()),
		)
	case then == drain.MeansKill:
		text += "; but the node is not well, and if it stays so, they are deleted at " + phrase.TimeText(at, now)
	}
	return text
}

func abandonEffect(m *v1alpha1.Machine) string {
	switch now := deletion.Stage(deletionStage(m)); {
	case isInstanceGone(m):
		return "the Machine object is removed, even if its node's cluster does not answer. " + abandonWarning(m)
	case deletion.LaterStage(now, deletion.StageDeleteInstance) != now:
		return "the deletion continues to stage Instance; the provider gets no request, and the Node and Machine objects are removed. " +
			abandonWarning(
				m,
			)
	default:
		return "the Node and Machine objects are removed, and the provider gets no more requests. " + abandonWarning(m)
	}
}

// isInstanceGone reports whether the deletion is past stage Instance.
func isInstanceGone(m *v1alpha1.Machine) bool {
	return deletion.LaterStage(
		deletion.Stage(deletionStage(m)),
		deletion.StageDeleteInstance,
	) != deletion.StageDeleteInstance
}

// abandonWarning describes what a person has to remove after an instance is abandoned.
func abandonWarning(m *v1alpha1.Machine) string {
	if isInstanceGone(m) {
		return "The instance is gone; what cannot be removed in the cluster of node " +
			cmp.Or(cache.NodeNameOfMachine(m), "of the machine") + " is left there for good"
	}
	what := "Whatever instance the machine has at the provider"
	if m.Spec.ProviderID != "" {
		what = "Instance " + m.Spec.ProviderID + " at the provider"
	}
	return what + " is left running: only a sweep for orphans of its MachineClass deletes it later"
}

// undoCommand returns the command that undoes a request; empty if an undo would change nothing.
func undoCommand(r kubecli.Request, m *v1alpha1.Machine) string {
	off := fmt.Sprintf(
		"kubectl annotate %s -n %s %s %s-",
		kubectlResource(m),
		m.Namespace,
		m.Name,
		machine.RequestAnnotationKey(r.Kind, r.Command),
	)
	switch r.Command {
	case request.Hold:
		return "millwright drain resume " + kubecli.KeyOfObject(m)
	case request.Extend, request.AbandonInstance:
		return off
	case request.Preserve:
		return "millwright preserve " + kubecli.KeyOfObject(m) + " --stop"
	case request.Unpreserve:
		return "millwright preserve " + kubecli.KeyOfObject(m)
	case request.Skip, request.Force:
		if m.DeletionTimestamp == nil || isHeld(m) { // in any other case the request has already taken effect
			return off
		}
	default:
	}
	return ""
}

// readSubject reads the machine of a request, and the facts on which the decision about the request depends.
func readSubject(
	ctx context.Context, clients kubecli.Clients, now time.Time, key types.NamespacedName, r kubecli.Request,
) (s kubecli.Subject, err error) {
	m, err := findMachine(ctx, clients, key)
	if err != nil {
		return s, err
	}
	if why := noEffectText(m, r.Command); why != "" {
		return s, errors.New(why)
	}
	s = kubecli.Subject{
		Object:       m,
		Facts:        machine.RequestFacts(m, r.Command, now),
		ResultPrefix: fmt.Sprintf("machine %s: ", key),
	}
	switch r.Command {
	case request.AbandonInstance:
		s.ConfirmQuestion = fmt.Sprintf("%s\nAbandon the instance of machine %s?", abandonWarning(m), kubecli.KeyOfObject(m))
	case request.Force:
		s.ConfirmQuestion = fmt.Sprintf(
			"The pods of machine %s get no time to end, whatever their budgets say.\nDelete them?",
			kubecli.KeyOfObject(m),
		)
	default: // other requests need no confirmation
	}
	s.DescribeEffect = func(d request.Decision) (next, back, follow string) {
		if m.DeletionTimestamp != nil || isDrainedWithoutDeletion(m) {
			follow = "millwright drain watch " + kubecli.KeyOfObject(m)
		}
		return expectedEffectText(r, m, now, d), undoCommand(r, m), follow
	}
	s.SendPatch = func(ctx context.Context, data []byte) error { return patchMachine(ctx, clients, m, data) }
	return s, nil
}
