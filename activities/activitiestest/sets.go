package activitiestest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

func NewSetInput(s *v1alpha1.MachineSet) set.Input { return set.Input{ReadInput: NewReadInput(s)} }

// WithSetCounts returns a set whose status has correct counts.
func WithSetCounts(s *v1alpha1.MachineSet, replicas, ready int32) *v1alpha1.MachineSet {
	s.Status = v1alpha1.MachineSetStatus{
		ObservedGeneration:   s.Generation,
		Replicas:             replicas,
		FullyLabeledReplicas: replicas,
		ReadyReplicas:        ready,
		AvailableReplicas:    ready,
		Selector:             "app=web",
	}
	return s
}

func NewMachineCreation(s *v1alpha1.MachineSet, names ...string) set.MachineCreation {
	return set.MachineCreation{Set: NewRef(s), Version: s.ResourceVersion, Names: names}
}

// WithInstanceNotReady gives a machine the condition InstanceReady with status False, as if its provider created no
// instance.
func WithInstanceNotReady(reason, message string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		m.Status.Conditions = []corev1.NodeCondition{
			{Type: v1alpha1.MachineInstanceReady, Status: "False", Reason: reason, Message: message},
		}
	}
}

// ChangeMachineStatus applies change to the status of a machine and writes the status.
func (w *World) ChangeMachineStatus(name string, change func(*v1alpha1.Machine)) {
	w.T.Helper()
	m := w.Machine(name).DeepCopy()
	change(m)
	w.WriteStatus(m)
	w.ForgetRequests()
}

func WithVirtualCapacity(c *v1alpha1.MachineClass) {
	c.NodeTemplate = &v1alpha1.NodeTemplate{
		VirtualCapacity: corev1.ResourceList{"example.com/seat": resource.MustParse("2")},
	}
}

// CachedObjects returns the objects in the caches. Each value of the map is a cached object, and its key is a copy of
// this object.
func (w *World) CachedObjects() map[runtime.Object]runtime.Object {
	objects := map[runtime.Object]runtime.Object{}
	for _, resource := range append(
		w.cachedClusterAPIResources(),
		cache.MachinesResource, cache.SetsResource, cache.DeploymentsResource, cache.ClassesResource, cache.SecretsResource,
	) {
		for _, o := range w.Cluster.Informer(resource).GetStore().List() {
			objects[o.(runtime.Object).DeepCopyObject()] = o.(runtime.Object)
		}
	}
	for _, n := range w.Cluster.Target(TestNamespace).AllNodes() {
		objects[n.DeepCopy()] = n
	}
	return objects
}
