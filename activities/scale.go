package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

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
	Free    bool // no machine is left of a set that is being deleted: our finalizer may go
	Report  bool // the status does not say what was read
	Seen    Gate // what was read; a later decision must not be made of anything older
}

// parallelWrites is how many objects of one batch are written at a time. Source: MCM starts 100 at once; API servers allow
// a priority level about 16 seats of one user before they queue.
const parallelWrites = 16

// SetRead says how fresh the facts of a set's decision must be, and what the run knows besides.
type SetRead struct {
	Read
	Failure scale.Failure // of the last batch; zero when it succeeded
}

// DecideScale reads a set and what stands around it, and says what to do next.
func (a *Activities) DecideScale(ctx context.Context, in SetRead) (SetDecision, error) {
	set, around, err := a.set(ctx, in.Read)
	if err != nil {
		return SetDecision{}, err
	}
	if set == nil {
		return SetDecision{Gone: true, Why: "the object is gone"}, nil
	}
	plan := planSet(set, around, in, rand.Uint64())
	facts := plan.Facts(set)
	need := attention.MachineSet(facts)
	d := SetDecision{
		Need:     need.Need,
		Why:      need.Why,
		Version:  set.ResourceVersion,
		Decision: plan.Decision,
		Prepare:  !facts.Deleting && !facts.Finalizer,
		Seen:     Gate{},
	}
	d.Free = facts.Deleting && facts.Finalizer && d.Done
	d.Report = facts.Unreported || facts.Generation != facts.ObservedGeneration ||
		(need.Calm() && set.Status.CurrentOperation != nil)
	d.Seen.Raise(observe.Sets, set.ResourceVersion)
	d.Seen.Raise(observe.Classes, around.Class)
	for _, m := range slices.Concat(around.Members, around.Orphans) {
		d.Seen.Raise(observe.Machines, m.ResourceVersion)
		if node := around.NodeAsked(m); node != nil {
			d.Seen.Raise(observe.Nodes, node.ResourceVersion)
		}
	}
	return d, nil
}

// planSet plans a set by one look at it, and by what the run knows. Seed is the source of new names.
func planSet(set *v1alpha1.MachineSet, around observe.AroundSet, in SetRead, seed uint64) observe.SetPlan {
	o := observe.ScaleObserved(set, around, later(time.Now(), in.At), seed)
	o.LastFailure = in.Failure
	return observe.PlanSet(o)
}

// set returns a set and what stands around it as fresh as asked for; nil when it is gone.
func (a *Activities) set(ctx context.Context, in Read) (*v1alpha1.MachineSet, observe.AroundSet, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return nil, observe.AroundSet{}, err
	}
	if !live {
		set, found := a.Cluster.Set(in.Ref.Key())
		if !found || string(set.UID) != in.Ref.UID {
			return nil, observe.AroundSet{}, nil
		}
		return set, a.Cluster.AroundSetToAct(ctx, set), nil
	}
	set, err := a.liveSet(ctx, in.Ref)
	if err != nil || set == nil {
		return nil, observe.AroundSet{}, err
	}
	around, err := a.Cluster.LiveAroundSet(ctx, set)
	return set, around, err
}

// liveSet reads a set from the API server; nil when it is gone.
func (a *Activities) liveSet(ctx context.Context, ref Ref) (*v1alpha1.MachineSet, error) {
	set, err := a.Cluster.Client().MachineV1alpha1().MachineSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get set %s: %w", ref.Key(), err)
	case string(set.UID) != ref.UID:
		return nil, nil
	}
	return set, nil
}

// Creation is a batch of machines to make for a set.
type Creation struct {
	Set     Ref
	Version string // resourceVersion of the set that the decision saw
	Names   []string
}

// Written is what became of a batch.
type Written struct {
	Versions Gate          // to wait for
	Failure  scale.Failure // of the first write that was refused; zero when all were taken
	Unseen   bool          // something was written whose version nobody told: only a live read sees it for sure
}

// CreateMachines makes the machines of a batch from the set's template: one, then two, then four at a time, and none after
// the first that is refused, so that what fails for one does not fail for all. A name that exists and belongs to the set
// counts as made, so that running it twice makes nothing twice. A set that changed since the decision is a Conflict.
func (a *Activities) CreateMachines(ctx context.Context, in Creation) (Written, error) {
	set, err := a.liveSet(ctx, in.Set)
	switch {
	case err != nil:
		return Written{}, err
	case set == nil:
		return Written{}, objectGone(in.Set)
	case set.ResourceVersion != in.Version:
		return Written{}, conflict(in.Set)
	}
	done := Written{Versions: Gate{}}
	names := in.Names
	for _, size := range scale.Batches(len(names)) {
		versions := make([]string, size)
		err := inParallel(size, func(i int) (err error) {
			versions[i], err = a.createMachine(ctx, set, names[i])
			return err
		})
		names = names[size:]
		for _, version := range versions {
			done.Versions.Raise(observe.Machines, version)
		}
		if err == nil {
			continue
		}
		refused := refusedWrite(err)
		if refused == "" {
			return Written{}, writeError(in.Set, err)
		}
		done.Failure = scale.Failure{Message: refused}
		a.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedCreate, "Error creating: "+refused)
		break
	}
	return done, nil
}

// refusedWrite returns what the API server said against a write that it understood and did not take; empty for what may pass
// or has to be decided anew.
func refusedWrite(err error) string {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err),
		apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return ""
	default:
		return brief(err.Error())
	}
}

// inParallel does n writes, some at a time, and returns the first error. No request is cut short by another's failure: what is
// under way must be done before the next look.
func inParallel(n int, write func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	for i := range n {
		group.Go(func() error { return write(i) })
	}
	return group.Wait()
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

// Batch is what is done to some machines for a set.
type Batch struct {
	Set      Ref
	Machines []scale.Target
}

// DeleteMachines asks the API server to delete each machine of a batch, if it still is as the decision saw it. A machine
// that is gone counts as deleted. One that changed is a Conflict, reported when the others are done.
func (a *Activities) DeleteMachines(ctx context.Context, in Batch) (Written, error) {
	set, found := a.Cluster.Set(in.Set.Key())
	versions := make([]string, len(in.Machines))
	err := inParallel(len(in.Machines), func(i int) (err error) {
		target := in.Machines[i]
		versions[i], err = a.deleteMachine(ctx, in.Set.Namespace, target)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && found:
			a.Recorder.Event(set, corev1.EventTypeNormal, "SuccessfulDelete", fmt.Sprintf("Deleted Machine: %s: %s", target.Name, target.Why))
		}
		return err
	})
	if refused := refusedWrite(err); refused != "" {
		if found {
			a.Recorder.Event(set, corev1.EventTypeWarning, v1alpha1.ReasonFailedDelete, "Error deleting: "+refused)
		}
		return Written{Failure: scale.Failure{Deleting: true, Message: refused}, Unseen: true}, nil
	}
	done := Written{Versions: Gate{}}
	for _, version := range versions {
		done.Versions.Raise(observe.Machines, version)
		done.Unseen = done.Unseen || version == ""
	}
	return done, writeError(in.Set, err)
}

// deleteMachine asks for the deletion of a machine that still is as the decision saw it. It returns the version that the machine
// has then, empty where nobody tells: it is gone already, or the client keeps the answer to itself.
func (a *Activities) deleteMachine(ctx context.Context, namespace string, target scale.Target) (version string, err error) {
	api := a.Cluster.Client().MachineV1alpha1()
	options := metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr(types.UID(target.UID)), ResourceVersion: ptr(target.Version)},
	}
	client, _ := api.RESTClient().(*rest.RESTClient)
	if client == nil {
		return "", api.Machines(namespace).Delete(ctx, target.Name, options)
	}
	answer := client.Delete().Namespace(namespace).Resource("machines").Name(target.Name).Body(&options).Do(ctx)
	var m v1alpha1.Machine
	if err := answer.Error(); err != nil {
		return "", err
	}
	if err := answer.Into(&m); err != nil { // a status, not the object: nothing held it
		return "", nil //nolint:nilerr // it was deleted all the same
	}
	if string(m.UID) != target.UID {
		return "", nil
	}
	return m.ResourceVersion, nil
}

// SetReport is what a MachineSet's status should say besides what is counted.
type SetReport struct {
	SetRead
	Step        *Step              // nil clears it: the set is calm
	Generations *scale.Generations // to record; nil keeps what is recorded
}

// ReportSet counts a set's machines and writes its status. Where the status says it already, nothing is written. It
// returns the version to wait for, or ObjectGone.
func (a *Activities) ReportSet(ctx context.Context, in SetReport) (string, error) {
	for range maxConflicts {
		set, around, err := a.set(ctx, in.Read)
		if err != nil {
			return "", err
		}
		if set == nil {
			return "", objectGone(in.Ref)
		}
		changed := set.DeepCopy()
		a.applySetReport(changed, around, in)
		if equality.Semantic.DeepEqual(changed.Status, set.Status) {
			return set.ResourceVersion, nil
		}
		changed.Status.ObservedMachines = around.Read // not compared: to have read further is no news
		written, err := a.Cluster.Client().MachineV1alpha1().MachineSets(set.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			a.tellOfSet(set, written)
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Live = true
		default:
			return "", writeError(in.Ref, err)
		}
	}
	return "", contended(in.Ref)
}

// tellOfSet tells people what a report has changed that they should hear of.
func (a *Activities) tellOfSet(before, after *v1alpha1.MachineSet) {
	frozen := func(s *v1alpha1.MachineSet) bool {
		return slices.ContainsFunc(s.Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetFrozen && c.Status == v1alpha1.ConditionTrue
		})
	}
	switch was, is := frozen(before), frozen(after); {
	case is && !was:
		a.Recorder.Event(after, corev1.EventTypeNormal, "FrozeMachineSet", "Froze MachineSet "+after.Name+": no machine is created")
	case was && !is:
		a.Recorder.Event(after, corev1.EventTypeNormal, "UnfrozeMachineSet", "Unfroze MachineSet "+after.Name)
	}
	if after.Status.Overshoot > before.Status.Overshoot {
		a.Recorder.Eventf(after, corev1.EventTypeWarning, v1alpha1.ReasonOverShootingReplicaCount,
			"%d machines more than were ever wanted; the surplus is deleted", after.Status.Overshoot)
	}
}

// applySetReport changes the status of a set as a report wants it.
func (a *Activities) applySetReport(set *v1alpha1.MachineSet, around observe.AroundSet, in SetReport) {
	s := &set.Status
	if g := in.Generations; g != nil {
		s.FailedGenerations = nil
		if g.Failed > 0 {
			s.FailedGenerations = &v1alpha1.FailedGenerations{Count: int32(g.Failed), LastFailedAt: metav1.NewTime(g.Last).Rfc3339Copy()}
		}
	}
	plan := planSet(set, around, in.SetRead, 0)
	observe.ApplySetStatus(s, plan.Status, metav1.NewTime(plan.Observed.Now).Rfc3339Copy())
	s.ObservedGeneration = set.Generation
	s.FailedMachines = summary(around.Members)
	s.Selector = selectorText(set.Spec.Selector)
	s.CurrentOperation = operation(in.Step)
	if attention.MachineSet(plan.Facts(set)).Calm() { // often that was all there was to do
		s.CurrentOperation = nil
	}
}

// FinalizeSet puts our finalizer on a set, or takes it off one that is being deleted and has no machine left. It returns
// the version to wait for.
func (a *Activities) FinalizeSet(ctx context.Context, in Read) (string, error) {
	set, around, err := a.set(ctx, in)
	if err != nil {
		return "", err
	}
	if set == nil {
		return "", objectGone(in.Ref)
	}
	finalizers, change := finalizers(set, len(around.Members) == 0)
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
