package cache

import (
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"millwright/api/vocabulary"
)

// guardDeploymentName is the name of the Deployment that Gardener's cluster autoscaler requires in its namespace.
// Gardener scales this Deployment to 0 while a cluster hibernates, or while the API server of a cluster is overloaded.
// guardSelector selects the Deployments of the chart's autoscalerGuard: a Deployment without this label is
// machine-controller-manager itself, which is scaled to 0 after a migration to Millwright.
const (
	guardDeploymentName = "machine-controller-manager"
	guardLabelSelector  = "app.kubernetes.io/part-of=millwright"
)

// namespaceHolds records the namespaces whose guard Deployment is scaled to 0. The zero value records none.
type namespaceHolds struct {
	mu          sync.Mutex
	startTimes  map[string]time.Time      // start of the present hold, by namespace
	formerHolds map[string]WorkerAbsences // former holds, by namespace
}

// WatchGuardDeployments watches the Deployments of the autoscaler guard. While the Deployment of a namespace is scaled
// to 0, Millwright does not act in this namespace. Call WatchGuardDeployments before Start.
func (c *Cluster) WatchGuardDeployments(control kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(
		control, 0,
		informers.WithTransform(stripGuardDeployment),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector, o.LabelSelector = "metadata.name="+guardDeploymentName, guardLabelSelector
		}),
	)
	informer := factory.Apps().V1().Deployments().Informer()
	record := func(o any) {
		guard := o.(*appsv1.Deployment)
		c.recordHold(guard.Namespace, guard.Spec.Replicas != nil && *guard.Spec.Replicas == 0)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    record,
		UpdateFunc: func(_, o any) { record(o) },
		DeleteFunc: func(o any) {
			if unknown, is := o.(cache.DeletedFinalStateUnknown); is {
				o = unknown.Obj
			}
			if guard, is := o.(*appsv1.Deployment); is {
				c.recordHold(guard.Namespace, false)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch Deployments %s: %w", guardDeploymentName, err)
	}
	c.informerFactories = append(c.informerFactories, factory)
	return nil
}

// stripGuardDeployment keeps the number of replicas of a Deployment.
func stripGuardDeployment(o any) (any, error) {
	guard, is := o.(*appsv1.Deployment)
	if !is {
		return o, nil
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: guard.Namespace, Name: guard.Name, UID: guard.UID, ResourceVersion: guard.ResourceVersion,
		},
		Spec: appsv1.DeploymentSpec{Replicas: guard.Spec.Replicas},
	}, nil
}

// IsHeld reports whether the guard Deployment of a namespace is scaled to 0.
func (c *Cluster) IsHeld(namespace string) bool {
	c.holds.mu.Lock()
	defer c.holds.mu.Unlock()
	return !c.holds.startTimes[namespace].IsZero()
}

// recordHold records whether a namespace is held.
func (c *Cluster) recordHold(namespace string, isHeld bool) {
	if !c.holds.setHeld(namespace, isHeld, time.Now()) {
		return
	}
	if !isHeld {
		c.otherControllers.notifyOwnershipChange()
		return
	}
	c.otherControllers.reportActiveControllers([]activeController{describeHold(namespace)})
}

// describeHold returns the description of a hold.
func describeHold(namespace string) activeController {
	return activeController{
		reason: vocabulary.ReasonNamespaceHeld,
		message: fmt.Sprintf(
			"Deployment %s of namespace %s is scaled to 0: Millwright leaves the objects there alone until somebody scales it up",
			guardDeploymentName,
			namespace,
		),
		actsInNamespace: func(other string) bool { return other == namespace },
	}
}

// describeHolds returns the present holds.
func (h *namespaceHolds) describeHolds() (all []activeController) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace := range h.startTimes {
		all = append(all, describeHold(namespace))
	}
	return all
}

// setHeld records whether a namespace is held, and reports whether that has changed.
func (h *namespaceHolds) setHeld(namespace string, isHeld bool, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := h.startTimes[namespace]
	switch {
	case since.IsZero() != isHeld:
		return false
	case isHeld:
		if h.startTimes == nil {
			h.startTimes, h.formerHolds = map[string]time.Time{}, map[string]WorkerAbsences{}
		}
		h.startTimes[namespace] = now
	default:
		known := slices.Concat(h.formerHolds[namespace], WorkerAbsences{{From: since, To: now}})
		h.formerHolds[namespace] = known[max(0, len(known)-maxTargetAbsences):]
		delete(h.startTimes, namespace)
	}
	return true
}

// holdAbsences returns the former holds of a namespace. They extend the timeouts of machines, as absences of the
// workers do.
func (h *namespaceHolds) holdAbsences(namespace string) WorkerAbsences {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.formerHolds[namespace]
}
