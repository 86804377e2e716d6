// Package drain derives facts for decide from pods, volumes, disruption budgets and the record of a drain.
package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	observecache "millwright/observe/cache"
)

// VolumeFacts returns for each persistent volume whether it is attached to this node, and whether it is attached to
// another node.
func VolumeFacts(t *observecache.Target, node string, names []string) map[string]drain.VolumeState {
	facts := make(map[string]drain.VolumeState, len(names))
	for _, name := range names {
		var v drain.VolumeState
		for _, attachment := range t.AttachmentsOfVolume(name) {
			if attachment.Spec.NodeName == node {
				v.AttachedHere = true
			} else if attachment.Status.Attached && attachment.DeletionTimestamp == nil {
				v.AttachedElsewhere = true
			}
		}
		facts[name] = v
	}
	return facts
}

// BudgetsOfPod returns the disruption budgets that select a pod, sorted by name.
func BudgetsOfPod(t *observecache.Target, pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var result []*policyv1.PodDisruptionBudget
	for _, b := range observecache.IndexedObjects[*policyv1.PodDisruptionBudget](t.Informer(observecache.DisruptionBudgetsResource), cache.NamespaceIndex, pod.Namespace) {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector) // in the policy API, a nil selector selects no pods
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			result = append(result, b)
		}
	}
	slices.SortFunc(result, func(x, y *policyv1.PodDisruptionBudget) int { return cmp.Compare(x.Name, y.Name) })
	return result
}

// BudgetFacts returns the facts about a disruption budget.
func BudgetFacts(b *policyv1.PodDisruptionBudget) drain.DisruptionBudget {
	always := b.Spec.UnhealthyPodEvictionPolicy
	return drain.DisruptionBudget{
		Key:                   b.Namespace + "/" + b.Name,
		DisruptionsAllowed:    int(b.Status.DisruptionsAllowed),
		CurrentHealthy:        int(b.Status.CurrentHealthy),
		DesiredHealthy:        int(b.Status.DesiredHealthy),
		ExpectedPods:          int(b.Status.ExpectedPods),
		DisruptedCount:        len(b.Status.DisruptedPods),
		IsUpToDate:            b.Status.ObservedGeneration == b.Generation,
		AlwaysAllowsUnhealthy: always != nil && *always == policyv1.AlwaysAllow,
	}
}

// PodFacts returns the facts that the pod object contains. The caller adds the attempts, budgets, volumes and rule.
func PodFacts(pod *corev1.Pod) drain.Pod {
	f := drain.Pod{
		UID:       string(pod.UID),
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Grace:     gracePeriodOfPod(pod),
		Finished:  pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Pending:   pod.Status.Phase == corev1.PodPending,
		Label:     pod.Labels[v1alpha1.LabelDrain],
		Protected: pod.Annotations[v1alpha1.AnnotationDoNotDisrupt],
		DeletedAt: observecache.TimeOrZero(pod.DeletionTimestamp),
		Started:   observecache.TimeOrZero(pod.Status.StartTime),
	}
	_, f.Mirror = pod.Annotations[corev1.MirrorPodAnnotationKey]
	if pod.Spec.Priority != nil {
		f.Priority = *pod.Spec.Priority
	}
	f.Ready = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if owner := metav1.GetControllerOf(pod); owner != nil {
		switch owner.Kind {
		case "DaemonSet":
			f.DaemonSet = true
		case "StatefulSet":
			f.StatefulSet = pod.Namespace + "/" + owner.Name
		}
	}
	return f
}

// ToleratesCordon reports whether the scheduler may place a pod on a cordoned node.
func ToleratesCordon(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == "" || t.Key == corev1.TaintNodeUnschedulable) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) &&
			t.Value == ""
	})
}

// gracePeriodOfPod returns the termination grace period of a pod. The grace period in a pod's deletion may differ from
// the grace period in its spec, which the API server always sets.
func gracePeriodOfPod(pod *corev1.Pod) time.Duration {
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// VolumeClaimsOfPod returns the names of a pod's persistent volume claims, including the claims of ephemeral volumes.
func VolumeClaimsOfPod(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// ChangeFilter selects the objects of the target cluster whose changes matter to a drain. SubscribeToChanges calls both
// functions concurrently.
type ChangeFilter struct {
	BudgetMatters     func(namespace string) bool    // nil: changes of budgets do not matter
	AttachmentMatters func(node, volume string) bool // volume is empty if the attachment names no persistent volume
}

// ChangeSources contains the caches whose changes matter to a drain; a nil cache means that the resource is not
// watched.
type ChangeSources map[observecache.Resource]cache.SharedIndexInformer

// NewChangeSources returns the caches of machines, of drain rules, and of a target.
func NewChangeSources(machines, rules cache.SharedIndexInformer, t *observecache.Target) ChangeSources {
	return ChangeSources{
		observecache.MachinesResource:          machines,
		observecache.DrainRulesResource:        rules,
		observecache.DisruptionBudgetsResource: t.Informer(observecache.DisruptionBudgetsResource),
		observecache.VolumeAttachmentsResource: t.Informer(observecache.VolumeAttachmentsResource),
	}
}

// SubscribeToChanges notifies a drain of changes to any drain rule, to the machine with this UID, and to the disruption
// budgets and volume attachments that the filter selects. A notification does not name the changed object. After a
// change of the filter, the caller must read the caches, because SubscribeToChanges has sent no notification for
// objects that the old filter left out. The caller must call stop.
func SubscribeToChanges(
	sources ChangeSources,
	machineUID string,
	of ChangeFilter,
) (changed <-chan struct{}, stop func(), err error) {
	pending := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case pending <- struct{}{}:
		default: // the channel still has an unread notification
		}
	}
	matters := map[observecache.Resource]func(object any) bool{
		observecache.DrainRulesResource: func(any) bool { return true },
		observecache.MachinesResource:   func(object any) bool { return string(object.(metav1.Object).GetUID()) == machineUID },
		observecache.DisruptionBudgetsResource: func(object any) bool {
			return of.BudgetMatters != nil && of.BudgetMatters(object.(*policyv1.PodDisruptionBudget).Namespace)
		},
		observecache.VolumeAttachmentsResource: func(object any) bool {
			a := object.(*storagev1.VolumeAttachment)
			return of.AttachmentMatters(a.Spec.NodeName, observecache.VolumeNameOfAttachment(a))
		},
	}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for resource, matters := range matters {
		informer := sources[resource]
		if informer == nil {
			continue
		}
		registration, err := informer.AddEventHandler(cache.FilteringResourceEventHandler{
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    notify,
				UpdateFunc: func(_, object any) { notify(object) },
				DeleteFunc: notify,
			},
			FilterFunc: func(object any) bool {
				if gone, unseen := object.(cache.DeletedFinalStateUnknown); unseen {
					object = gone.Obj
				}
				return object == nil || matters(object) // object is nil if the deleted object's last state is unknown
			},
		})
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("follow %s for the drain of machine %s: %w", resource, machineUID, err)
		}
		// RemoveEventHandler fails only if the handler was removed before.
		stops = append(stops, func() { _ = informer.RemoveEventHandler(registration) })
	}
	return pending, stop, nil
}

// MachineRules contains the drain rules of a machine, sorted by name. The zero value is an empty list.
type MachineRules []Rule

// Rule is a drain rule with parsed selectors.
type Rule struct {
	ruleFacts    *drain.Rule
	podSelectors []parsedPodSelector
}

type parsedPodSelector struct {
	podLabelSelector, namespaceLabelSelector labels.Selector // a nil selector selects all pods or namespaces
}

// ReadRules returns the drain rules that select a machine. A rule that does not parse is an error, because the rule may
// select this machine.
func ReadRules(c *observecache.Cluster, m *v1alpha1.Machine) (MachineRules, error) {
	var found MachineRules
	for _, r := range observecache.IndexedObjects[*v1alpha1.MachineDrainRule](c.Informers[observecache.DrainRulesResource], cache.NamespaceIndex, m.Namespace) {
		speaks, err := ruleSelectsMachine(r, m)
		if err != nil {
			return nil, fmt.Errorf("read drain rule %s/%s: %w", r.Namespace, r.Name, err)
		}
		if !speaks {
			continue
		}
		var pods []PodSelector
		for _, p := range r.Spec.Pods {
			pods = append(pods, PodSelector{p.Selector, p.NamespaceSelector})
		}
		rule, err := NewRule(r.Name, string(r.Spec.Drain.Behavior), r.Spec.Drain.Order, pods)
		if err != nil {
			return nil, fmt.Errorf("read drain rule %s/%s: %w", r.Namespace, r.Name, err)
		}
		found = append(found, rule)
	}
	return SortedRules(found), nil
}

// PodSelector selects pods by their labels and by the labels of their namespace; a nil selector selects all pods or
// namespaces.
type PodSelector struct{ PodLabelSelector, NamespaceLabelSelector *metav1.LabelSelector }

// NewRule returns a drain rule. The rule applies to pods that match at least one selector, or to all pods if there are
// no selectors. NewRule returns an error if a selector is invalid.
func NewRule(name, behavior string, order *int32, pods []PodSelector) (r Rule, err error) {
	r.ruleFacts = &drain.Rule{Name: name, Behavior: behavior}
	if order != nil {
		r.ruleFacts.Order = *order
	}
	for _, p := range pods {
		var s parsedPodSelector
		if s.podLabelSelector, err = ParseSelector(p.PodLabelSelector); err == nil {
			s.namespaceLabelSelector, err = ParseSelector(p.NamespaceLabelSelector)
		}
		if err != nil {
			return Rule{}, err
		}
		r.podSelectors = append(r.podSelectors, s)
	}
	return r, nil
}

// SortedRules sorts rules by name: the first rule that selects a pod applies.
func SortedRules(rules MachineRules) MachineRules {
	slices.SortFunc(rules, func(x, y Rule) int { return cmp.Compare(x.ruleFacts.Name, y.ruleFacts.Name) })
	return rules
}

func ruleSelectsMachine(r *v1alpha1.MachineDrainRule, m *v1alpha1.Machine) (bool, error) {
	for _, entry := range r.Spec.Machines {
		s, err := ParseSelector(entry.Selector)
		if err != nil {
			return false, err
		}
		if s == nil || s.Matches(labels.Set(m.Labels)) {
			return true, nil
		}
	}
	return len(r.Spec.Machines) == 0, nil
}

// ParseSelector parses a label selector; a nil selector gives nil.
func ParseSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// UsesNamespaceLabels reports whether any rule selects by the labels of namespaces.
func (d MachineRules) UsesNamespaceLabels() bool {
	return slices.ContainsFunc(d, func(r Rule) bool {
		return slices.ContainsFunc(r.podSelectors, func(s parsedPodSelector) bool { return s.namespaceLabelSelector != nil })
	})
}

// RuleForPod returns the first rule that selects a pod in a namespace with these labels; nil if no rule selects the
// pod.
func (d MachineRules) RuleForPod(pod *corev1.Pod, namespace map[string]string) *drain.Rule {
	for _, r := range d {
		matches := func(s parsedPodSelector) bool {
			return (s.podLabelSelector == nil || s.podLabelSelector.Matches(labels.Set(pod.Labels))) &&
				(s.namespaceLabelSelector == nil || s.namespaceLabelSelector.Matches(labels.Set(namespace)))
		}
		if len(r.podSelectors) == 0 || slices.ContainsFunc(r.podSelectors, matches) {
			return r.ruleFacts
		}
	}
	return nil
}
