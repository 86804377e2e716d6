package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// newOtherControllerWarningFunc returns a function that records warning events. The function records an event on each
// object that has no controller reference and whose namespace the function in accepts. The message of the event says
// why Millwright does not act in the namespace. Each worker records these events.
func newOtherControllerWarningFunc(
	cluster *cache.Cluster,
	events record.EventRecorder,
) func(reason, why string, in func(string) bool) {
	return func(reason, why string, in func(string) bool) {
		here := func(namespace string) bool { return cluster.IsInScope(namespace) && in(namespace) }
		recordWarnings(
			events,
			cache.AllObjects[*v1alpha1.MachineDeployment](cluster.Informer(cache.DeploymentsResource)),
			here,
			reason,
			why,
		)
		recordWarnings(
			events,
			cache.AllObjects[*v1alpha1.MachineSet](cluster.Informer(cache.SetsResource)),
			here,
			reason,
			why,
		)
		recordWarnings(
			events,
			cache.AllObjects[*v1alpha1.Machine](cluster.Informer(cache.MachinesResource)),
			here,
			reason,
			why,
		)
	}
}

func recordWarnings[O interface {
	metav1.Object
	runtime.Object
}](events record.EventRecorder, objects []O, here func(namespace string) bool, reason, why string) {
	for _, o := range objects {
		if here(o.GetNamespace()) && metav1.GetControllerOf(o) == nil {
			events.Event(o, corev1.EventTypeWarning, reason, why)
		}
	}
}
