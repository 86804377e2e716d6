package set

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/scale"
	"millwright/observe/cache"
)

// MachineCreation is a batch of machines to create for a set.
type MachineCreation struct {
	Set     kube.Ref
	Version string // resourceVersion of the set that the decision saw
	Names   []string
}

// WriteResult is the result of a batch.
type WriteResult struct {
	Versions kube.MinVersions   // resource versions of the written machines
	Failure  scale.WriteFailure // the first rejected write; zero: all writes succeeded
	// the version of a write may be unknown, so only a live read is sure to include the write
	Unseen bool
}

// CreateMachines creates the machines of a batch from the set's template: one machine, then two, then four in parallel.
// After the first rejection, no further machine is created, so that one cause does not fail all machines. If the set's
// spec changes during the activity, no further machine is created. An existing machine of the set with a wanted name
// counts as created, so the activity is idempotent. A set that changed since the decision causes a Conflict.
func (a *Activities) CreateMachines(ctx context.Context, in MachineCreation) (WriteResult, error) {
	set, err := kube.ReadLiveAtVersion(ctx, a.Kube.Sets(in.Set.Namespace), "set", in.Set, in.Version)
	if err != nil {
		return WriteResult{}, err
	}
	wanted := func() bool {
		now, found := a.Kube.Cluster.MachineSet(in.Set.Key())
		return !found || MayStillCreateMachines(now, set)
	}
	return CreateWithSlowStart(
		ctx,
		a.Kube,
		set,
		in,
		cache.MachinesResource,
		wanted,
		func(name string) (string, error) { return a.createMachine(ctx, set, name) },
	)
}

// MayStillCreateMachines reports whether the machines of a decision may still be created. It returns false if the set
// is being deleted, or if its spec is newer than the spec that the decision saw.
func MayStillCreateMachines(now, decided metav1.Object) bool {
	return now.GetUID() == decided.GetUID() && now.GetGeneration() <= decided.GetGeneration() &&
		now.GetDeletionTimestamp() == nil
}

// maxCreationStartTime is the time after which a run of the activity starts no more creations. Source: half of the
// activity's StartToCloseTimeout, which leaves time for the last creations to end.
const maxCreationStartTime = 10 * time.Second

// CreateWithSlowStart creates the machines of a batch: one machine, then two, then four in parallel.
// CreateWithSlowStart stops after the first rejection. The function create creates one machine, and returns the
// machine's resource version. An event on the set reports a rejection. CreateWithSlowStart ends early and without an
// error after 10 s, or once wanted returns false. The next decision lists the machines that are still missing.
func CreateWithSlowStart(
	ctx context.Context,
	k *kube.Kube,
	set runtime.Object,
	in MachineCreation,
	machines kube.Resource,
	wanted func() bool,
	create func(name string) (version string, err error),
) (WriteResult, error) {
	done := WriteResult{Versions: kube.MinVersions{}}
	names, start := in.Names, time.Now()
	for i, size := range scale.BatchSizes(len(names)) {
		if i > 0 && (time.Since(start) > maxCreationStartTime || !wanted()) {
			done.Unseen = true // an earlier attempt may have created further machines
			break
		}
		written, err := kube.WriteInParallel(machines, size, func(i int) (string, error) { return create(names[i]) })
		names = names[size:]
		done.Versions.RaiseVersion(machines, written[machines])
		if err == nil {
			continue
		}
		refused := kube.RefusalMessage(ctx, err)
		if refused == "" {
			return WriteResult{}, kube.ClassifyWriteError(ctx, in.Set, err)
		}
		done.Failure = scale.WriteFailure{Message: refused}
		done.Unseen = true // after an internal error, the machine may exist or not
		k.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedCreate, "Error creating: "+refused)
		break
	}
	return done, nil
}

// createMachine creates one machine with Millwright's finalizer, and returns the machine's resource version.
func (a *Activities) createMachine(ctx context.Context, set *v1alpha1.MachineSet, name string) (string, error) {
	template := set.Spec.Template
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   set.Namespace,
			Labels:      maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations),
			Finalizers:  append(kube.WithoutItem(template.Finalizers, v1alpha1.FinalizerMachine), v1alpha1.FinalizerMachine),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet")),
			},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	// a template that was copied from a machine may contain a provider ID, which all machines would share
	m.Spec.ProviderID = ""
	if timeout, set := set.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]; set {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationEffectiveCreationTimeout, timeout)
	}
	machines := a.Kube.Machines(set.Namespace)
	made, err := machines.Create(ctx, m, metav1.CreateOptions{})
	if err == nil {
		a.Kube.Recorder.Event(set, corev1.EventTypeNormal, vocabulary.ReasonSuccessfulCreate, "Created Machine: "+name)
		return made.ResourceVersion, nil
	}
	if apierrors.IsAlreadyExists(err) {
		made, err = machines.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && !metav1.IsControlledBy(made, set)) {
			// the machine was deleted, or another set owns the machine
			return "", kube.ConflictError(kube.Ref{Namespace: set.Namespace, Name: name})
		}
	}
	if err != nil {
		return "", fmt.Errorf("create machine %s: %w", name, err)
	}
	return made.ResourceVersion, nil
}
