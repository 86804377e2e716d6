package activities

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe"
)

// SetDecision is what a MachineSet needs next.
type SetDecision struct {
	Gone    bool // the object does not exist any more: nothing else is set
	Need    attention.Need
	Why     string
	Version string // resourceVersion of the set that was read
	scale.Decision
	Prepare bool // our finalizer is missing
	Release bool // no machine is left of a set that is being deleted
	Report  bool // the status does not say what was read
	Seen    Gate // what was read; a later decision must not be made of anything older
}

// parallelWrites is how many objects of one batch are written at a time. Source: MCM starts 100 at once; API servers allow
// a priority level about 16 seats of one user before they queue.
const parallelWrites = 16

// DecideScale reads a set and its machines, and says which to create or delete next.
func (a *Activities) DecideScale(ctx context.Context, in Read) (SetDecision, error) {
	set, machines, err := a.set(ctx, in)
	if err != nil {
		return SetDecision{}, err
	}
	if set == nil {
		return SetDecision{Gone: true, Why: "the object is gone"}, nil
	}
	facts := observe.SetFacts(set, machines)
	need := attention.MachineSet(facts)
	d := SetDecision{
		Need:     need.Need,
		Why:      need.Why,
		Version:  set.ResourceVersion,
		Decision: scale.Decide(observe.ScaleObserved(set, machines, nil, rand.Uint64())),
		Prepare:  !facts.Deleting && !facts.Finalizer,
		Release:  facts.Deleting && facts.Finalizer && len(machines) == 0,
		Report: facts.Actual != facts.Reported || facts.Generation != facts.ObservedGeneration ||
			(need.Calm() && set.Status.CurrentOperation != nil),
		Seen: Gate{},
	}
	d.Seen.Raise(observe.Sets, set.ResourceVersion)
	for _, m := range machines {
		d.Seen.Raise(observe.Machines, m.ResourceVersion)
	}
	return d, nil
}

// set returns a set and its machines as fresh as asked for; nil when it is gone.
func (a *Activities) set(ctx context.Context, in Read) (*v1alpha1.MachineSet, []*v1alpha1.Machine, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	if !live {
		set, found := a.Cluster.Set(in.Ref.Key())
		if !found || string(set.UID) != in.Ref.UID {
			return nil, nil, nil
		}
		return set, a.Cluster.MachinesOf(in.Ref.UID), nil
	}
	set, err := a.Cluster.Client().MachineV1alpha1().MachineSets(in.Ref.Namespace).Get(ctx, in.Ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get set %s: %w", in.Ref.Key(), err)
	case string(set.UID) != in.Ref.UID:
		return nil, nil, nil
	}
	machines, err := a.Cluster.LiveMachinesOf(ctx, set)
	return set, machines, err
}

// Creation is a batch of machines to make for a set.
type Creation struct {
	Set     Ref
	Version string // resourceVersion of the set that the decision saw
	Names   []string
}

// CreateMachines makes the machines of a batch from the set's template. A name that exists and belongs to the set counts
// as made, so that running it twice makes nothing twice. It returns the versions to wait for. A set that changed since the
// decision is a Conflict.
func (a *Activities) CreateMachines(ctx context.Context, in Creation) (Gate, error) {
	sets := a.Cluster.Client().MachineV1alpha1().MachineSets(in.Set.Namespace)
	set, err := sets.Get(ctx, in.Set.Name, metav1.GetOptions{})
	if err != nil {
		return nil, writeError(in.Set, err)
	}
	switch {
	case string(set.UID) != in.Set.UID:
		return nil, objectGone(in.Set)
	case set.ResourceVersion != in.Version:
		return nil, conflict(in.Set)
	}
	versions := make([]string, len(in.Names))
	var failed atomic.Bool
	var group errgroup.Group // no request is cut short by another's failure: what is under way must be done before the next look
	group.SetLimit(parallelWrites)
	for i, name := range in.Names {
		group.Go(func() (err error) {
			if failed.Load() {
				return nil
			}
			if versions[i], err = a.createMachine(ctx, set, name); err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			a.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedCreate, "Error creating: "+brief(err.Error()))
		}
		return nil, writeError(in.Set, err)
	}
	gate := Gate{}
	for _, version := range versions {
		gate.Raise(observe.Machines, version)
	}
	return gate, nil
}

// createMachine makes one machine and returns its version. The finalizer is on from the first moment.
func (a *Activities) createMachine(ctx context.Context, set *v1alpha1.MachineSet, name string) (string, error) {
	template := set.Spec.Template
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       set.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			Finalizers:      append(without(template.Finalizers, v1alpha1.FinalizerMachine), v1alpha1.FinalizerMachine),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if timeout, set := set.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]; set {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationEffectiveCreationTimeout, timeout)
	}
	machines := a.Cluster.Client().MachineV1alpha1().Machines(set.Namespace)
	made, err := machines.Create(ctx, m, metav1.CreateOptions{})
	if err == nil {
		a.Recorder.Event(set, corev1.EventTypeNormal, "SuccessfulCreate", "Created Machine: "+name)
		return made.ResourceVersion, nil
	}
	if apierrors.IsAlreadyExists(err) {
		made, err = machines.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && !metav1.IsControlledBy(made, set)) {
			return "", conflict(Ref{Namespace: set.Namespace, Name: name}) // gone again, or a stranger
		}
	}
	if err != nil {
		return "", fmt.Errorf("create machine %s: %w", name, err)
	}
	return made.ResourceVersion, nil
}

// Deletion is a batch of machines to delete for a set.
type Deletion struct {
	Set      Ref
	Machines []scale.Target
}

// DeleteMachines asks the API server to delete each machine of a batch, if it still is as the decision saw it. A machine
// that is gone counts as deleted. One that changed is a Conflict, reported when the others are done.
func (a *Activities) DeleteMachines(ctx context.Context, in Deletion) error {
	set, found := a.Cluster.Set(in.Set.Key())
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	for _, target := range in.Machines {
		group.Go(func() error {
			err := a.Cluster.Client().MachineV1alpha1().Machines(in.Set.Namespace).Delete(ctx, target.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: ptr(types.UID(target.UID)), ResourceVersion: ptr(target.Version)},
			})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && found {
				a.Recorder.Event(set, corev1.EventTypeNormal, "SuccessfulDelete", fmt.Sprintf("Deleted Machine: %s: %s", target.Name, target.Why))
			}
			return writeError(Ref{Namespace: in.Set.Namespace, Name: target.Name}, err)
		})
	}
	return group.Wait()
}

// KeepMachines marks failed machines of a set for preservation, each if it still is as the decision saw it; their own
// workflows do the rest. One that changed is a Conflict. It returns the versions to wait for.
func (a *Activities) KeepMachines(ctx context.Context, in Deletion) (Gate, error) {
	gate := Gate{}
	for _, target := range in.Machines {
		object := &metav1.ObjectMeta{Name: target.Name, UID: types.UID(target.UID), ResourceVersion: target.Version}
		data, err := seen(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveAuto, v1alpha1.AnnotationAutoPreserved: time.Now().UTC().Format(time.RFC3339),
		}}}, object)
		if err != nil {
			return gate, err
		}
		m, err := a.Cluster.Client().MachineV1alpha1().Machines(in.Set.Namespace).Patch(ctx, target.Name, types.MergePatchType, data, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return gate, writeError(Ref{Namespace: in.Set.Namespace, Name: target.Name, UID: target.UID}, err)
		}
		gate.Raise(observe.Machines, m.ResourceVersion)
	}
	return gate, nil
}

// SetReport is what a MachineSet's status should say besides what is counted.
type SetReport struct {
	Read Read
	Step *Step // nil clears it: the set is calm
}

// ReportSet counts a set's machines and writes its status. Where the status says it already, nothing is written. It
// returns the version to wait for, or ObjectGone.
func (a *Activities) ReportSet(ctx context.Context, in SetReport) (string, error) {
	for range maxConflicts {
		set, machines, err := a.set(ctx, in.Read)
		if err != nil {
			return "", err
		}
		if set == nil {
			return "", objectGone(in.Read.Ref)
		}
		changed := set.DeepCopy()
		facts := observe.SetFacts(set, machines)
		counts, s := facts.Actual, &changed.Status
		s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = counts.Replicas, counts.FullyLabeled, counts.Ready, counts.Available
		s.ObservedGeneration = set.Generation
		s.FailedMachines = summary(machines, set.Name)
		s.Selector = selectorText(set.Spec.Selector)
		s.Conditions = setFailure(s.Conditions, machines, counts.Blocked, metav1.Now())
		s.CurrentOperation = operation(in.Step)
		if attention.MachineSet(reported(facts)).Calm() {
			s.CurrentOperation = nil
		}
		if equality.Semantic.DeepEqual(changed.Status, set.Status) {
			return set.ResourceVersion, nil
		}
		written, err := a.Cluster.Client().MachineV1alpha1().MachineSets(set.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Read.Live = true
		default:
			return "", writeError(in.Read.Ref, err)
		}
	}
	return "", contended(in.Read.Ref)
}

// setFailure says in a set's conditions why its machines get no instance, with the sentence of one of them.
func setFailure(list []v1alpha1.MachineSetCondition, machines []*v1alpha1.Machine, reason string, now metav1.Time) []v1alpha1.MachineSetCondition {
	is := func(c v1alpha1.MachineSetCondition) bool { return c.Type == v1alpha1.MachineSetReplicaFailure }
	rest := slices.DeleteFunc(slices.Clone(list), is)
	if reason == "" {
		return rest
	}
	var messages []string
	for _, m := range machines {
		if why, message := observe.Blocked(m); why == reason {
			messages = append(messages, message)
		}
	}
	slices.Sort(messages)
	c := v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetReplicaFailure, Status: v1alpha1.ConditionTrue, Reason: reason, LastTransitionTime: now,
		Message: brief(fmt.Sprintf("%d machines get no instance; %s", len(messages), messages[0])),
	}
	if i := slices.IndexFunc(list, is); i >= 0 && list[i].Reason == reason {
		return list // said already: another machine's sentence is no news
	}
	return append(rest, c)
}

// reported returns the facts as they are once the status says what was counted: often that was all there was to do, and
// then no operation must be left behind in it.
func reported(f attention.GroupFacts) attention.GroupFacts {
	f.Reported, f.ObservedGeneration = f.Actual, f.Generation
	return f
}

// FinalizeSet puts our finalizer on a set, or takes it off one that is being deleted and has no machine left. It returns
// the version to wait for.
func (a *Activities) FinalizeSet(ctx context.Context, in Read) (string, error) {
	set, machines, err := a.set(ctx, in)
	if err != nil {
		return "", err
	}
	if set == nil {
		return "", objectGone(in.Ref)
	}
	finalizers, change := finalizers(set, len(machines) == 0)
	if !change {
		return set.ResourceVersion, nil
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, set)
	if err != nil {
		return "", err
	}
	set, err = a.Cluster.Client().MachineV1alpha1().MachineSets(in.Ref.Namespace).Patch(ctx, in.Ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return "", writeError(in.Ref, err)
	}
	return set.ResourceVersion, nil
}

// finalizers returns the finalizers that an object should have: ours as long as it lives, and then until it is empty.
func finalizers(object metav1.Object, empty bool) (list []string, change bool) {
	has, deleting := observe.HasFinalizer(object.GetFinalizers()), object.GetDeletionTimestamp() != nil
	switch {
	case !has && !deleting:
		return append(slices.Clone(object.GetFinalizers()), v1alpha1.FinalizerMachine), true
	case has && deleting && empty:
		return without(object.GetFinalizers(), v1alpha1.FinalizerMachine), true
	default:
		return nil, false
	}
}

func ptr[T any](v T) *T { return &v }
