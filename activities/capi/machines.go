package capi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
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
	m := capiset.DesiredMachine(a.Cache, s, name, nil)
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
		a.Kube.Recorder.Event(s, corev1.EventTypeNormal, "SuccessfulCreate", fmt.Sprintf("Created Machine %q", name))
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
				"SuccessfulDelete",
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
	}, "SuccessfulRelease", "Released Machine ")
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
		if !change(m) {
			return m.ResourceVersion, nil
		}
		m, err = machines.Update(ctx, m, metav1.UpdateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			return "", kube.ClassifyWriteError(ctx, in.Set, err)
		}
		if found {
			a.Kube.Recorder.Event(s, corev1.EventTypeNormal, reason, fmt.Sprintf("%s%q: %s", words, target.Name, target.Why))
		}
		return m.ResourceVersion, nil
	})
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
		if err != nil || m == nil ||
			!meta.RemoveStatusCondition(&m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition) {
			return "", err
		}
		return a.writeMachineStatus(ctx, in.Set, m)
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
	if !meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}) {
		return m.ResourceVersion, nil
	}
	return a.writeMachineStatus(ctx, of, m)
}

func (a *Activities) writeMachineStatus(ctx context.Context, of kube.Ref, m *clusterv1.Machine) (string, error) {
	m, err := a.Cache.Client().Machines(of.Namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, of, err)
	}
	return m.ResourceVersion, nil
}

// SyncClusterAPIMachines copies the fields that change in place from the set's template to machines and their clones,
// by server-side apply. A machine that is being deleted gets only the fields that its deletion needs. A machine that
// changed since the decision causes a Conflict.
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
		if m.DeletionTimestamp != nil {
			return a.syncDeletingMachine(ctx, s, m)
		}
		// The clones are written before the machine: while the machine still differs, the next decision repeats the
		// sync.
		if err := a.syncClones(ctx, s, m); err != nil {
			return "", err
		}
		applied, err := a.applyMachine(ctx, m, capiset.DesiredMachine(a.Cache, s, m.Name, m))
		if err != nil {
			return "", err
		}
		return applied.ResourceVersion, nil
	})
}

// applyMachine writes the desired machine by server-side apply. The UID in desired prevents the re-creation of a
// deleted machine.
func (a *Activities) applyMachine(ctx context.Context, m, desired *clusterv1.Machine) (*clusterv1.Machine, error) {
	machines := a.Cache.Client().Machines(m.Namespace)
	ref := kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(
		m,
		sets.New(capi.MachineSetFieldManager),
		capi.MachineSetFieldManager,
	)
	if err != nil {
		return nil, fmt.Errorf("convert managed fields of machine %s: %w", m.Name, err)
	}
	if len(patch) > 0 {
		if _, err := machines.Patch(ctx, m.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, kube.ClassifyWriteError(ctx, ref, err)
		}
	}
	data, err := encodeForServerSideApply(desired)
	if err != nil {
		return nil, err
	}
	written, err := machines.Patch(
		ctx,
		m.Name,
		types.ApplyPatchType,
		data,
		metav1.PatchOptions{FieldManager: capi.MachineSetFieldManager, Force: new(true)},
	)
	return written, kube.ClassifyWriteError(ctx, ref, err)
}

// encodeForServerSideApply encodes an object for server-side apply, without its status.
func encodeForServerSideApply(o any) ([]byte, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	delete(fields, "status")
	if data, err = json.Marshal(fields); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return data, nil
}

// syncDeletingMachine writes the fields that the deletion of a machine needs. For example, an operator may shorten
// timeouts to unblock the deletion.
func (a *Activities) syncDeletingMachine(
	ctx context.Context,
	s *clusterv1.MachineSet,
	m *clusterv1.Machine,
) (string, error) {
	want := s.Spec.Template.Spec
	m.Spec.ReadinessGates = want.ReadinessGates
	m.Spec.Deletion = want.Deletion
	m.Spec.MinReadySeconds = want.MinReadySeconds
	m.Spec.Taints = want.Taints
	m, err := a.Cache.Client().Machines(s.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, kube.Ref{Namespace: s.Namespace, Name: s.Name}, err)
	}
	return m.ResourceVersion, nil
}
