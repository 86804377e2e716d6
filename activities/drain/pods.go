package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"millwright/activities/kube"
	"millwright/decide/drain"
	"millwright/observe/cache"
	observedrain "millwright/observe/drain"
)

// podListOptions selects the pods of one node on the API server, so that no worker caches all pods of a cluster.
func podListOptions(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
}

// listPods returns the pods of a node, and the resourceVersion from which to watch them.
func listPods(
	ctx context.Context,
	client kubernetes.Interface,
	node string,
) (pods []*corev1.Pod, version string, err error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, podListOptions(node))
	if err != nil {
		return nil, "", kube.ClassifyTargetError(ctx, fmt.Errorf("list pods of node %s: %w", node, err))
	}
	return cache.PointersToItems(list.Items), list.ResourceVersion, nil
}

// labelsByNamespace holds the labels of the namespaces that were read, by name.
type labelsByNamespace map[string]map[string]string

// podFacts returns the facts about pods, without their budgets. The facts of a pod include the drain rule that applies
// to the machine and selects the pod. podFacts reads the labels of a namespace live, once, and only if a rule needs
// them. If a rule cannot be read, Evict and DeleteInOrder fail, because the rule may protect any pod. Delete and Kill
// ignore the rule.
func (p NodeLocation) podFacts(
	ctx context.Context,
	pods []*corev1.Pod,
	known labelsByNamespace,
	means drain.RemovalMeans,
) ([]drain.Pod, error) {
	rules, err := p.Rules()
	if err != nil && means.KeepsPodOrder() {
		return nil, err
	}
	facts := make([]drain.Pod, 0, len(pods))
	for _, pod := range pods {
		if _, read := known[pod.Namespace]; !read && rules.UsesNamespaceLabels() {
			ns, err := p.client().CoreV1().Namespaces().Get(ctx, pod.Namespace, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err): // the namespace was deleted with its pods
				known[pod.Namespace] = nil
			case err != nil:
				return nil, fmt.Errorf("get namespace %s, for a drain rule: %w", pod.Namespace, err)
			default:
				known[pod.Namespace] = ns.Labels
			}
		}
		f := observedrain.PodFacts(pod)
		f.Rule = rules.RuleForPod(pod, known[pod.Namespace])
		facts = append(facts, f)
	}
	return facts, nil
}

// mustPodLeave reports whether a drain removes a pod or waits for its end.
func mustPodLeave(pod drain.Pod) bool {
	return drain.TreatmentOfPod(pod).Behavior != drain.BehaviorSkip
}

// maxVolumeLookupFailures is how often in a row the lookup of a pod's volumes may fail. Source: MCM tries three times.
const maxVolumeLookupFailures = 3

// findAttachedVolumes looks up, for each new pod, which of its persistent volumes are attached to the node. The drain
// does not wait for a volume that several pods of the node share, because the volume moves with the last of these pods.
// A pod is not evicted until the lookup of its volumes succeeds or has failed maxVolumeLookupFailures times. After
// maxVolumeLookupFailures failures, the pod counts as a pod without volumes.
func (e *evictionLoop) findAttachedVolumes(ctx context.Context) {
	if !e.input.Means.KeepsPodOrder() {
		return // Delete and Kill do not wait for volumes
	}
	attached := sets.New(e.Target.AttachedVolumeNames(e.input.NodeName)...)
	if len(attached) == 0 {
		return
	}
	users := map[string]int{}
	for uid, pod := range e.pods {
		if _, known := e.volumesByPod[uid]; known || e.triesByPod[uid].Next.After(e.clock.Now()) {
			continue
		}
		names, err := volumesOfPod(ctx, e.client, pod)
		if err != nil && e.triesByPod[uid].Failures < maxVolumeLookupFailures {
			e.triesByPod[uid] = drain.RequestRecordAfterAnswer(
				e.triesByPod[uid],
				drain.RequestAnswer{Means: e.input.Means, Result: drain.ResultFailed, Message: kube.ShortenMessage(err.Error())},
				e.clock.Now(),
			)
			continue
		}
		e.volumesByPod[uid] = slices.DeleteFunc(names, func(name string) bool { return !attached.Has(name) })
	}
	for _, names := range e.volumesByPod {
		for _, name := range names {
			users[name]++
		}
	}
	for uid, names := range e.volumesByPod {
		e.volumesByPod[uid] = slices.DeleteFunc(names, func(name string) bool { return users[name] > 1 })
	}
}

// volumesOfPod returns the names of a pod's persistent volumes, sorted. A claim that does not exist or is not bound has
// no persistent volume.
func volumesOfPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]string, error) {
	var names []string
	for _, claim := range observedrain.VolumeClaimsOfPod(pod) {
		pvc, err := client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get claim %s/%s: %w", pod.Namespace, claim, err)
		case pvc.Spec.VolumeName != "":
			names = append(names, pvc.Spec.VolumeName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
