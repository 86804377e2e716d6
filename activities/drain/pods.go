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

// podsOn selects the pods of a node on the API server, so that no worker caches all pods of a cluster.
func podsOn(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
}

// listPods returns the pods of a node, and the version to watch them from.
func listPods(
	ctx context.Context,
	client kubernetes.Interface,
	node string,
) (pods []*corev1.Pod, version string, err error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, podsOn(node))
	if err != nil {
		return nil, "", kube.Answered(ctx, fmt.Errorf("list pods of node %s: %w", node, err))
	}
	return cache.Pointers(list.Items), list.ResourceVersion, nil
}

// namespaces holds the labels of the namespaces that were read.
type namespaces map[string]map[string]string

// podFacts returns the facts about pods, without their budgets. The facts of a pod include the drain rule of the
// machine that selects the pod. Labels of namespaces are read live, once each, and only if a rule needs them. A rule
// that cannot be read is an error as long as pods go in order, because it may protect any pod; for other means it is
// ignored.
func (p Place) podFacts(
	ctx context.Context,
	pods []*corev1.Pod,
	known namespaces,
	means drain.Means,
) ([]drain.Pod, error) {
	rules, err := p.Rules()
	if err != nil && means.Ordered() {
		return nil, err
	}
	facts := make([]drain.Pod, 0, len(pods))
	for _, pod := range pods {
		if _, read := known[pod.Namespace]; !read && rules.Namespaces() {
			ns, err := p.client().CoreV1().Namespaces().Get(ctx, pod.Namespace, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err): // deleted, with its pods
				known[pod.Namespace] = nil
			case err != nil:
				return nil, fmt.Errorf("get namespace %s, for a drain rule: %w", pod.Namespace, err)
			default:
				known[pod.Namespace] = ns.Labels
			}
		}
		f := observedrain.PodFacts(pod)
		f.Rule = rules.Of(pod, known[pod.Namespace])
		facts = append(facts, f)
	}
	return facts, nil
}

// mustLeave reports whether a drain removes a pod or waits for its end.
func mustLeave(pod drain.Pod) bool { return drain.Treat(pod).Do != drain.Skip }

// mostLookups is how often in a row a failing lookup of a pod's volumes is repeated. Source: MCM tries three times.
const mostLookups = 3

// findVolumes looks up, for each new pod, which of its persistent volumes are attached to the node. Volumes that
// several pods of the node share move with the last of them, and are not waited for. A pod whose volumes cannot be
// looked up is not evicted until it has failed mostLookups times; then it is treated as one without volumes.
func (e *evictionLoop) findVolumes(ctx context.Context) {
	if !e.in.Means.Ordered() {
		return // the other means do not wait for volumes
	}
	attached := sets.New(e.Cluster.AttachedTo(e.in.NodeName)...)
	if len(attached) == 0 {
		return
	}
	users := map[string]int{}
	for uid, pod := range e.pods {
		if _, known := e.volumes[uid]; known || e.tries[uid].Next.After(e.clock.Now()) {
			continue
		}
		names, err := volumesOf(ctx, e.client, pod)
		if err != nil && e.tries[uid].Failures < mostLookups {
			e.tries[uid] = drain.After(
				e.tries[uid],
				drain.Answer{Means: e.in.Means, Result: drain.Failed, Message: kube.Brief(err.Error())},
				e.clock.Now(),
			)
			continue
		}
		e.volumes[uid] = slices.DeleteFunc(names, func(name string) bool { return !attached.Has(name) })
	}
	for _, names := range e.volumes {
		for _, name := range names {
			users[name]++
		}
	}
	for uid, names := range e.volumes {
		e.volumes[uid] = slices.DeleteFunc(names, func(name string) bool { return users[name] > 1 })
	}
}

// volumesOf returns the names of a pod's persistent volumes, sorted. A claim that does not exist or is not bound has
// none.
func volumesOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]string, error) {
	var names []string
	for _, claim := range observedrain.ClaimsOf(pod) {
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
