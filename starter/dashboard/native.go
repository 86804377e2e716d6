package dashboard

import (
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
)

// cacheNative is the transform of the caches of Millwright's own kinds.
func cacheNative(object any) (any, error) {
	switch o := object.(type) {
	case *v1alpha1.Machine:
		return newCached(o, factsOfMachine(o)), nil
	case *v1alpha1.MachineSet:
		return newCached(o, factsOfSet(o)), nil
	case *v1alpha1.MachineDeployment:
		return newCached(o, factsOfDeployment(o)), nil
	default: // already transformed, or a tombstone
		return object, nil
	}
}

func factsOfDeployment(d *v1alpha1.MachineDeployment) *deploymentFacts {
	return &deploymentFacts{
		id:         objectID{kindDeployment, sharedText(d.Namespace), d.Name},
		version:    d.ResourceVersion,
		uid:        d.UID,
		desired:    int(d.Spec.Replicas),
		revision:   deployment.Revision(d),
		rollout:    d.Status.Rollout,
		operation:  sharedOperation(d.Status.CurrentOperation),
		isDeleting: d.DeletionTimestamp != nil,
	}
}

func factsOfSet(s *v1alpha1.MachineSet) *setFacts {
	owner, _ := controllerOf(s)
	return &setFacts{
		id:         objectID{kindSet, sharedText(s.Namespace), s.Name},
		version:    s.ResourceVersion,
		uid:        s.UID,
		owner:      owner,
		desired:    int(s.Spec.Replicas),
		revision:   deployment.Revision(s),
		operation:  sharedOperation(s.Status.CurrentOperation),
		isDeleting: s.DeletionTimestamp != nil,
	}
}

func factsOfMachine(m *v1alpha1.Machine) *machineFacts {
	owner, set := controllerOf(m)
	phase, staying := m.Status.CurrentStatus.Phase, m.Status.Drain
	return &machineFacts{
		id:            objectID{kindMachine, sharedText(m.Namespace), m.Name},
		version:       m.ResourceVersion,
		owner:         owner,
		setName:       set,
		phase:         sharedText(kubecli.PhaseText(*m)),
		phaseSince:    m.Status.CurrentStatus.LastUpdateTime.Time,
		node:          cache.NodeNameOfMachine(m),
		class:         sharedText(m.Spec.Class.Name),
		providerID:    m.Spec.ProviderID,
		lastOperation: sharedText(m.Status.LastOperation.Description),
		operation:     sharedOperation(m.Status.CurrentOperation),
		created:       m.CreationTimestamp.Time,
		isReady:       phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineInPlaceUpdateSuccessful,
		isFailed:      phase == v1alpha1.MachineFailed || phase == v1alpha1.MachineInPlaceUpdateFailed,
		isDeleting:    m.DeletionTimestamp != nil,
		isDrained:     m.DeletionTimestamp != nil || staying != nil && staying.Result == "",
	}
}
