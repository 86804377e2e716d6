package dashboard

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
)

// Kinds of Cluster API, as millwright top prints them.
const (
	kindClusterAPIDeployment = "machinedeployment.cluster.x-k8s.io"
	kindClusterAPISet        = "machineset.cluster.x-k8s.io"
	kindClusterAPIMachine    = "machine.cluster.x-k8s.io"
)

// cacheClusterAPI is the transform of the caches of Cluster API's kinds. An object that Millwright does not reconcile
// stays in the cache, because Millwright may take it over, but it has no facts.
func cacheClusterAPI(object any) (any, error) {
	switch o := object.(type) {
	case *clusterv1.Machine:
		return newCached(o, factsOfClusterAPIMachine(o)), nil
	case *clusterv1.MachineSet:
		return newCached(o, factsOfClusterAPISet(o)), nil
	case *clusterv1.MachineDeployment:
		return newCached(o, factsOfClusterAPIDeployment(o)), nil
	default: // already transformed, or a tombstone
		return object, nil
	}
}

// factsOfClusterAPIDeployment returns nil for a deployment that Millwright does not reconcile.
func factsOfClusterAPIDeployment(d *clusterv1.MachineDeployment) *deploymentFacts {
	if !capi.IsMarkedByMillwright(d) {
		return nil
	}
	return &deploymentFacts{
		id:         objectID{kindClusterAPIDeployment, sharedText(d.Namespace), d.Name},
		version:    d.ResourceVersion,
		uid:        d.UID,
		cluster:    sharedText(clusterNameOf(d, d.Spec.ClusterName)),
		desired:    int(capi.ValueOrZero(d.Spec.Replicas)),
		revision:   deployment.Revision(d),
		rollout:    deployment.RecordedRollout(d),
		operation:  sharedOperation(deployment.OperationWithBlockers(d)),
		isDeleting: d.DeletionTimestamp != nil,
	}
}

func factsOfClusterAPISet(s *clusterv1.MachineSet) *setFacts {
	owner, _ := controllerOf(s)
	return &setFacts{
		id:         objectID{kindClusterAPISet, sharedText(s.Namespace), s.Name},
		version:    s.ResourceVersion,
		uid:        s.UID,
		owner:      owner,
		cluster:    sharedText(clusterNameOf(s, s.Spec.ClusterName)),
		desired:    int(capi.ValueOrZero(s.Spec.Replicas)),
		revision:   deployment.Revision(s),
		operation:  sharedOperation(capiset.OperationOfSet(s)),
		isDeleting: s.DeletionTimestamp != nil,
		isForeign:  !capi.IsMarkedByMillwright(s),
	}
}

func factsOfClusterAPIMachine(m *clusterv1.Machine) *machineFacts {
	owner, set := controllerOf(m)
	ready := capi.ConditionOfType(m.Status.Conditions, clusterv1.ReadyCondition).Status == metav1.ConditionTrue
	return &machineFacts{
		id:         objectID{kindClusterAPIMachine, sharedText(m.Namespace), m.Name},
		version:    m.ResourceVersion,
		owner:      owner,
		setName:    set,
		cluster:    sharedText(clusterNameOf(m, m.Spec.ClusterName)),
		phase:      sharedText(cmp.Or(m.Status.Phase, "new")),
		phaseSince: m.Status.LastUpdated.Time,
		node:       m.Status.NodeRef.Name,
		class:      m.Spec.InfrastructureRef.Name,
		providerID: m.Spec.ProviderID,
		clusterAPI: stripClusterAPIMachine(m),
		created:    m.CreationTimestamp.Time,
		isReady:    ready,
		isFailed:   hasFailedHealthCheck(m),
		isDeleting: m.DeletionTimestamp != nil,
		isDrained:  capidrain.IsDrainedByMillwright(m) && m.DeletionTimestamp != nil,
	}
}

func hasFailedHealthCheck(m *clusterv1.Machine) bool {
	c := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition)
	return c.Status == metav1.ConditionFalse
}

// stripClusterAPIMachine returns a copy of a machine without the fields that no page needs.
func stripClusterAPIMachine(m *clusterv1.Machine) *clusterv1.Machine {
	short := m.DeepCopy()
	short.ManagedFields, short.Labels = nil, nil
	short.Status.NodeInfo, short.Status.Addresses, short.Status.Deprecated = nil, nil, nil
	return short
}

// clusterNameOf returns the name of an object's Cluster.
func clusterNameOf(o metav1.Object, inSpec string) string {
	return cmp.Or(o.GetLabels()[clusterv1.ClusterNameLabel], inSpec)
}
