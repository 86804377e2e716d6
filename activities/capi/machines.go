package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// CreateClusterAPIMachines creates the machines of a batch and their clones of the templates. The activity creates one
// machine, then two, then four in parallel, and stops after the first rejection. Existing machines and clones of the
// set count as created, so the activity is idempotent. If a machine is rejected, its clones are deleted. A set that
// changed since the decision causes a Conflict.
func (a *Activities) CreateClusterAPIMachines(ctx context.Context, in set.MachineCreation) (set.WriteResult, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, in.Version)
	if err != nil {
		return set.WriteResult{}, err
	}
	related, err := a.Cache.ReadRelatedObjectsForWrite(ctx, s)
	if err != nil {
		return set.WriteResult{}, err
	}
	if slices.ContainsFunc(related.Templates, capi.ProviderObject.IsMissing) || related.Cluster == nil ||
		related.Cluster.DeletionTimestamp != nil {
		return set.WriteResult{}, kube.ConflictError(in.Set) // a template or the Cluster was deleted since the decision
	}
	wanted := func() bool {
		now, found := a.Cache.MachineSet(in.Set.Key())
		return !found || set.MayStillCreateMachines(now, s)
	}
	return set.CreateWithSlowStart(
		ctx,
		a.Kube,
		s,
		in,
		capi.MachinesResource,
		wanted,
		func(name string) (string, error) { return a.createMachine(ctx, s, related, name) },
	)
}

// createMachine creates the machine with the given name and its clones, and returns the version of the machine.
func (a *Activities) createMachine(
	ctx context.Context,
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	name string,
) (string, error) {
	m := capiset.NewMachine(a.Cache, s, name)
	machines := a.Cache.Client().Machines(s.Namespace)
	var made []templateClone
	fail := func(err error) (string, error) {
		if kube.RefusalMessage(ctx, err) == "" {
			return "", err // Temporal retries, and the retry finds the clones
		}
		if _, absent := machines.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(absent) {
			return "", errors.Join(err, absent) // an attempt has created the machine, and the machine uses the clones
		}
		return "", errors.Join(err, a.deleteUnownedClones(ctx, s, made))
	}
	for _, template := range related.Templates {
		c, err := a.createClone(ctx, s, template, name)
		if err != nil {
			return fail(err)
		}
		made = append(made, c)
		if template.Ref == s.Spec.Template.Spec.InfrastructureRef {
			m.Spec.InfrastructureRef = c.ref
		} else {
			m.Spec.Bootstrap.ConfigRef = c.ref
		}
	}
	written, err := machines.Create(ctx, m, metav1.CreateOptions{FieldManager: capi.MachineSetFieldManager})
	switch {
	case err == nil:
		a.Kube.Recorder.Event(
			s,
			corev1.EventTypeNormal,
			vocabulary.ReasonSuccessfulCreate,
			fmt.Sprintf("Created Machine %q", name),
		)
		return written.ResourceVersion, nil
	case apierrors.IsAlreadyExists(err):
		written, err = machines.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(written, s) {
			if err := a.deleteUnownedClones(ctx, s, made); err != nil {
				return "", err
			}
			// the machine was deleted, or another set owns the machine
			return "", kube.ConflictError(kube.Ref{Namespace: s.Namespace, Name: name})
		}
		if err == nil {
			return written.ResourceVersion, nil
		}
	}
	return fail(fmt.Errorf("create machine %s: %w", name, err))
}

// DeleteClusterAPIMachines deletes the machines of a batch. A set or a machine that changed since the decision causes a
// Conflict: the size of the set may have changed, or another controller has the set now. A machine that is gone counts
// as deleted. If a health check requested the replacement of a machine, the machine's condition OwnerRemediated first
// reports the deletion.
func (a *Activities) DeleteClusterAPIMachines(ctx context.Context, in set.MachineBatch) (set.WriteResult, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, in.Version)
	if err != nil {
		return set.WriteResult{}, err
	}
	machines := a.Cache.Client().Machines(in.Set.Namespace)
	versions, err := kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		version := target.Version
		if cached, found := a.Cache.Machine(in.Set.Namespace + "/" + target.Name); found &&
			meta.IsStatusConditionFalse(cached.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) {
			remarked, err := a.writeOwnerRemediatedCondition(
				ctx,
				in.Set,
				target,
				clusterv1.MachineSetMachineRemediationMachineDeletingReason,
				"Machine is deleting",
			)
			if err != nil || remarked == "" {
				return "", err
			}
			version = remarked
		}
		err := machines.Delete(ctx, target.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: new(types.UID(target.UID)), ResourceVersion: new(version)},
		})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err == nil {
			a.Kube.Recorder.Event(
				s,
				corev1.EventTypeNormal,
				vocabulary.ReasonSuccessfulDelete,
				fmt.Sprintf("Deleted Machine %q: %s", target.Name, target.Why),
			)
		}
		return "", err
	})
	if refused := kube.RefusalMessage(ctx, err); refused != "" {
		a.Kube.Recorder.Event(s, corev1.EventTypeWarning, v1alpha1.ReasonFailedDelete, "Error deleting: "+refused)
		return set.WriteResult{Failure: scale.WriteFailure{Deleting: true, Message: refused}, Unseen: true}, nil
	}
	// the response to a delete request has no resource version
	return set.WriteResult{Versions: versions, Unseen: true}, kube.ClassifyWriteError(ctx, in.Set, err)
}

// AdoptClusterAPIMachines makes a set the controller of machines that have no controller. The activity reads the set
// live first, because a set that is being deleted must adopt no machine. A machine that changed since the decision
// causes a Conflict. The activity is idempotent.
func (a *Activities) AdoptClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	if s.DeletionTimestamp != nil {
		return nil, kube.ConflictError(in.Set)
	}
	return a.changeMachines(ctx, in, func(m *clusterv1.Machine) bool {
		if metav1.GetControllerOf(m) != nil {
			return false
		}
		m.OwnerReferences = capi.WithOwner(
			capi.WithoutCluster(m.OwnerReferences),
			*metav1.NewControllerRef(s, clusterv1.GroupVersion.WithKind("MachineSet")),
		)
		delete(m.Annotations, v1alpha1.AnnotationReleasedBy)
		return true
	}, vocabulary.ReasonSuccessfulAdopt, "Adopted Machine ")
}

// ReleaseClusterAPIMachines removes the set's controller reference from machines, makes the Cluster their owner, and
// annotates each machine with the set's UID. Without an owner, the machine would stay when the Cluster is deleted, and
// the deletion of the Cluster would wait for the machine. With this annotation, a set can detect that it releases every
// machine that it creates. A machine that changed since the decision causes a Conflict. The activity is idempotent.
func (a *Activities) ReleaseClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	return a.changeMachines(ctx, in, func(m *clusterv1.Machine) bool {
		if !capi.HasOwner(m, in.Set.UID) {
			return false
		}
		kube.RemoveOwner(m, types.UID(in.Set.UID))
		if cluster, found := a.Cache.ClusterByKey(m.Namespace + "/" + m.Spec.ClusterName); found {
			m.OwnerReferences = capi.WithOwner(m.OwnerReferences, capi.ClusterOwnerReference(cluster))
		}
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReleasedBy, in.Set.UID)
		return true
	}, vocabulary.ReasonSuccessfulRelease, "Released Machine ")
}

// changeMachines calls change for each machine of a batch, writes the machine if change returns true, and records an
// event. A machine that is gone is skipped; a machine that changed since the decision causes a Conflict. changeMachines
// returns the new resource versions.
func (a *Activities) changeMachines(
	ctx context.Context,
	in set.MachineBatch,
	change func(*clusterv1.Machine) bool,
	reason, words string,
) (kube.MinVersions, error) {
	s, found := a.Cache.MachineSet(in.Set.Key())
	machines := a.Cache.Client().Machines(in.Set.Namespace)
	return kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		target := in.Machines[i]
		m, err := a.readMachineAtVersion(ctx, in.Set, target)
		if err != nil || m == nil {
			return "", err
		}
		changed := m.DeepCopy()
		if !change(changed) {
			return m.ResourceVersion, nil
		}
		version, err := patchMachine(ctx, in.Set, machines, m, changed)
		if found && version != "" {
			a.Kube.Recorder.Event(s, corev1.EventTypeNormal, reason, fmt.Sprintf("%s%q: %s", words, target.Name, target.Why))
		}
		return version, err
	})
}

// machinePatcher patches machines.
type machinePatcher interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*clusterv1.Machine, error)
}

// patchMachine writes the difference between two states of a machine, and returns the version of the machine; empty if
// the machine is gone. The ref is the machine's set.
func patchMachine(
	ctx context.Context,
	of kube.Ref,
	machines machinePatcher,
	before, after *clusterv1.Machine,
	subresources ...string,
) (string, error) {
	written, err := kube.PatchChanges(ctx, machines, before, after, subresources...)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", kube.ClassifyWriteError(ctx, of, err)
	}
	return written.ResourceVersion, nil
}

// readMachineAtVersion reads a machine live; nil if the machine is gone. A machine that changed since the decision
// causes a Conflict.
func (a *Activities) readMachineAtVersion(
	ctx context.Context,
	of kube.Ref,
	target scale.MachineTarget,
) (*clusterv1.Machine, error) {
	ref := kube.Ref{Namespace: of.Namespace, Name: target.Name, UID: target.UID}
	m, err := kube.ReadLive(ctx, a.Cache.Client().Machines(of.Namespace), "machine", ref)
	if err == nil && m != nil && m.ResourceVersion != target.Version {
		return nil, kube.ConflictError(ref)
	}
	return m, err
}

// UnmarkClusterAPIMachines removes the condition OwnerRemediated from machines that are healthy again and need no
// replacement.
func (a *Activities) UnmarkClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	return kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		m, err := a.readMachineAtVersion(ctx, in.Set, in.Machines[i])
		if err != nil || m == nil {
			return "", err
		}
		unmarked := m.DeepCopy()
		if !meta.RemoveStatusCondition(&unmarked.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) {
			return "", nil
		}
		return patchMachine(ctx, in.Set, a.Cache.Client().Machines(m.Namespace), m, unmarked, "status")
	})
}

// PostponeRemediation writes into the condition OwnerRemediated of machines why their set postpones their replacement.
func (a *Activities) PostponeRemediation(ctx context.Context, in set.ExtraWritesInput) (kube.MinVersions, error) {
	return kube.WriteInParallel(capi.MachinesResource, len(in.Objects), func(i int) (string, error) {
		o := in.Objects[i]
		target := scale.MachineTarget{Name: o.Name, UID: o.UID, Version: o.Version}
		return a.writeOwnerRemediatedCondition(ctx, in.Set, target, o.Reason, o.Why)
	})
}

// writeOwnerRemediatedCondition writes the condition OwnerRemediated of a machine, and returns the machine's version;
// empty if the machine is gone. A machine that changed since the decision causes a Conflict.
func (a *Activities) writeOwnerRemediatedCondition(
	ctx context.Context,
	of kube.Ref,
	target scale.MachineTarget,
	reason, message string,
) (string, error) {
	m, err := a.readMachineAtVersion(ctx, of, target)
	if err != nil || m == nil {
		return "", err
	}
	marked := m.DeepCopy()
	meta.SetStatusCondition(&marked.Status.Conditions, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
	return patchMachine(ctx, of, a.Cache.Client().Machines(m.Namespace), m, marked, "status")
}

// SyncClusterAPIMachines copies the fields that change in place from the set's template to machines and their clones.
// See capiset.SyncedMachine. A machine that changed since the decision causes a Conflict.
func (a *Activities) SyncClusterAPIMachines(ctx context.Context, in set.MachineBatch) (kube.MinVersions, error) {
	s, err := a.readSetAtVersion(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	return kube.WriteInParallel(capi.MachinesResource, len(in.Machines), func(i int) (string, error) {
		m, err := a.readMachineAtVersion(ctx, in.Set, in.Machines[i])
		if err != nil || m == nil {
			return "", err
		}
		if m.DeletionTimestamp == nil {
			// The clones are written before the machine: while the machine still differs, the next decision repeats the
			// sync.
			if err := a.syncClones(ctx, s, m); err != nil {
				return "", err
			}
		}
		return patchMachine(ctx, in.Set, a.syncPatcher(s), m, capiset.SyncedMachine(a.Cache, s, m))
	})
}

// syncPatcher returns a client that writes the template of a set on its machines.
func (a *Activities) syncPatcher(s *clusterv1.MachineSet) machinePatcher {
	return kube.WithFieldManager(a.Cache.Client().Machines(s.Namespace), capi.MachineSetFieldManager)
}
