package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"millwright/decide/drain"
	"millwright/observe"
)

// mostLookups is how often in a row the volumes of a pod are looked up in vain. Source: MCM tries three times.
const mostLookups = 3

// findVolumes looks up, for each pod that is new, which persistent volumes of it are attached to the node. Volumes that
// several pods of the node share move with the last of them, and nobody waits for them. A pod whose volumes cannot be looked
// up stays for a while; then it goes like one without.
func (e *emptying) findVolumes(ctx context.Context) {
	if e.in.Means != drain.Evict {
		return // everything goes now, whatever it leaves behind
	}
	attached := map[string]bool{}
	for _, attachment := range e.Cluster.AttachmentsOf(e.in.NodeName) {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil {
			attached[*name] = true
		}
	}
	if len(attached) == 0 {
		return
	}
	users := map[string]int{}
	for uid, pod := range e.pods {
		if _, known := e.volumes[uid]; known {
			continue
		}
		if e.tries[uid].Next.After(time.Now()) {
			continue
		}
		names, err := volumesOf(ctx, e.client, pod)
		if err != nil && e.tries[uid].Failures < mostLookups {
			e.tries[uid] = drain.After(e.tries[uid], drain.Answer{Means: e.in.Means, Result: drain.Failed, Message: brief(err.Error())}, time.Now())
			continue
		}
		e.volumes[uid] = slices.DeleteFunc(names, func(name string) bool { return !attached[name] })
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

// volumesOf returns the names of a pod's persistent volumes, sorted. A claim that is not there, or not bound, has none.
func volumesOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]string, error) {
	var names []string
	for _, claim := range observe.ClaimsOf(pod) {
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
