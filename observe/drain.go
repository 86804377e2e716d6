package observe

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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"millwright/api/generated/informers/externalversions"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// The resources of the target that only drains read.
const (
	Budgets     Resource = "poddisruptionbudgets"
	Attachments Resource = "volumeattachments"
	Rules       Resource = "machinedrainrules" // of the control cluster
)

// byVolume is the index of attachments by the name of their persistent volume.
const byVolume = "volume"

// WatchDrains makes the target's disruption budgets and volume attachments known, too, and the drain rules: only who drains
// needs them. Call it once, before Start. Without a target it does nothing.
func (c *Cluster) WatchDrains() error {
	if c.target == nil {
		return nil
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c.target, 0, informers.WithTransform(strip))
	rules := externalversions.NewSharedInformerFactoryWithOptions(c.client, 0, externalversions.WithTransform(strip))
	c.factories = append(c.factories, factory, rules)
	c.informers[Rules] = rules.Machine().V1alpha1().MachineDrainRules().Informer()
	c.informers[Budgets] = factory.Policy().V1().PodDisruptionBudgets().Informer()
	c.attaching = &link{}
	c.informers[Attachments] = factory.InformerFor(&storagev1.VolumeAttachment{}, c.attaching.attachments)
	err := c.informers[Attachments].AddIndexers(cache.Indexers{
		byNode: func(object any) ([]string, error) {
			return []string{object.(*storagev1.VolumeAttachment).Spec.NodeName}, nil
		},
		byVolume: func(object any) ([]string, error) {
			if name := object.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
				return []string{*name}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		return fmt.Errorf("index volume attachments: %w", err)
	}
	return nil
}

// AttachmentsOf returns the volume attachments of a node, in no order.
func (c *Cluster) AttachmentsOf(node string) []*storagev1.VolumeAttachment {
	return indexed[*storagev1.VolumeAttachment](c.informers[Attachments], byNode, node)
}

// Attached returns how many volumes are attached to a node, or about to be. While nobody knows, because the watch of
// them is cut off, it is one at least: who takes none for an answer does not wait.
func (c *Cluster) Attached(node string) int {
	n := len(c.AttachmentsOf(node))
	if n == 0 && !c.KnowsAttachments() {
		return 1
	}
	return n
}

// KnowsAttachments reports whether the cache hears of changes of volume attachments. It is true when they are not watched.
func (c *Cluster) KnowsAttachments() bool { return c.attaching == nil || c.attaching.up() }

// AttachedTo returns what is attached to a node, or about to be, sorted: the names of persistent volumes, and those of
// attachments that have none.
func (c *Cluster) AttachedTo(node string) []string {
	var names []string
	for _, attachment := range c.AttachmentsOf(node) {
		name := attachment.Name
		if volume := attachment.Spec.Source.PersistentVolumeName; volume != nil {
			name = *volume
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// VolumeFacts says where persistent volumes are attached, as seen from a node.
func (c *Cluster) VolumeFacts(node string, names []string) map[string]drain.Volume {
	facts := make(map[string]drain.Volume, len(names))
	for _, name := range names {
		var v drain.Volume
		for _, attachment := range indexed[*storagev1.VolumeAttachment](c.informers[Attachments], byVolume, name) {
			if attachment.Spec.NodeName == node {
				v.Here = true
			} else if attachment.Status.Attached && attachment.DeletionTimestamp == nil {
				v.Elsewhere = true
			}
		}
		facts[name] = v
	}
	return facts
}

// BudgetsOf returns the disruption budgets that select a pod, by name.
func (c *Cluster) BudgetsOf(pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var result []*policyv1.PodDisruptionBudget
	for _, b := range indexed[*policyv1.PodDisruptionBudget](c.informers[Budgets], cache.NamespaceIndex, pod.Namespace) {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector) // of nil, one that selects nothing: so the API has it
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			result = append(result, b)
		}
	}
	slices.SortFunc(result, func(x, y *policyv1.PodDisruptionBudget) int { return cmp.Compare(x.Name, y.Name) })
	return result
}

// BudgetFacts turns a disruption budget into what decide/drain asks for.
func BudgetFacts(b *policyv1.PodDisruptionBudget) drain.Budget {
	always := b.Spec.UnhealthyPodEvictionPolicy
	return drain.Budget{
		Key:       b.Namespace + "/" + b.Name,
		Allowed:   int(b.Status.DisruptionsAllowed),
		Healthy:   int(b.Status.CurrentHealthy),
		Desired:   int(b.Status.DesiredHealthy),
		Expected:  int(b.Status.ExpectedPods),
		Disrupted: len(b.Status.DisruptedPods),
		Current:   b.Status.ObservedGeneration == b.Generation,
		Unhealthy: always != nil && *always == policyv1.AlwaysAllow,
	}
}

// PodFacts turns a pod into what decide/drain asks for; what was tried with it, its volumes and its rule are for the caller
// to add.
func PodFacts(pod *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) drain.Pod {
	f := drain.Pod{
		UID:       string(pod.UID),
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Grace:     grace(pod),
		Finished:  pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Pending:   pod.Status.Phase == corev1.PodPending,
		Label:     pod.Labels[v1alpha1.LabelDrain],
		Protected: pod.Annotations[v1alpha1.AnnotationDoNotDisrupt],
	}
	_, f.Mirror = pod.Annotations[corev1.MirrorPodAnnotationKey]
	if pod.Spec.Priority != nil {
		f.Priority = *pod.Spec.Priority
	}
	if pod.DeletionTimestamp != nil {
		f.DeletedAt = pod.DeletionTimestamp.Time
	}
	if pod.Status.StartTime != nil {
		f.Started = pod.Status.StartTime.Time
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
	for _, b := range budgets {
		f.Budgets = append(f.Budgets, b.Namespace+"/"+b.Name)
	}
	return f
}

// ToleratesCordon reports whether a pod may come to a node that is cordoned.
func ToleratesCordon(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == "" || t.Key == corev1.TaintNodeUnschedulable) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) && t.Value == ""
	})
}

// grace returns the termination grace period of a pod. The API server always sets one.
func grace(pod *corev1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// ClaimsOf returns the names of the persistent volume claims that a pod mounts, those made for its own lifetime included.
func ClaimsOf(pod *corev1.Pod) []string {
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

// Concerns says which objects of the target cluster matter to a drain. Both are called from several goroutines at a time.
type Concerns struct {
	Budget     func(namespace string) bool    // nil: none of any
	Attachment func(node, volume string) bool // volume is empty where the attachment names no persistent volume
}

// DrainNews tells, without saying what, whenever a disruption budget or an attachment of a volume that is of concern changes,
// a drain rule, or a machine with this UID. What becomes of concern later is to be read after that: the caches have it before
// anybody is asked. Whoever asked must call stop.
func (c *Cluster) DrainNews(machineUID string, of Concerns) (news <-chan struct{}, stop func(), err error) {
	told := make(chan struct{}, 1)
	tell := func(any) {
		select {
		case told <- struct{}{}:
		default: // it has yet to look at what was told before
		}
	}
	all := cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) }, DeleteFunc: tell}
	some := func(matters func(object any) bool) cache.ResourceEventHandler {
		return cache.FilteringResourceEventHandler{Handler: all, FilterFunc: func(object any) bool {
			if gone, unseen := object.(cache.DeletedFinalStateUnknown); unseen {
				object = gone.Obj
			}
			return object == nil || matters(object) // nobody knows what went: it may matter
		}}
	}
	budgets := some(func(object any) bool {
		return of.Budget != nil && of.Budget(object.(*policyv1.PodDisruptionBudget).Namespace)
	})
	attachments := some(func(object any) bool {
		a, volume := object.(*storagev1.VolumeAttachment), ""
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			volume = *name
		}
		return of.Attachment(a.Spec.NodeName, volume)
	})
	machines := some(func(object any) bool { return string(object.(*v1alpha1.Machine).UID) == machineUID })
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for resource, handler := range map[Resource]cache.ResourceEventHandler{Budgets: budgets, Attachments: attachments, Rules: all, Machines: machines} {
		informer := c.informers[resource]
		if informer == nil {
			continue
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("follow %s for the drain of machine %s: %w", resource, machineUID, err)
		}
		stops = append(stops, func() { _ = informer.RemoveEventHandler(registration) }) // fails only when it was removed before
	}
	return told, stop, nil
}
