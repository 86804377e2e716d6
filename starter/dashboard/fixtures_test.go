package dashboard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/explain"
	"millwright/observe/machine"
	"millwright/starter/clitest"
)

// now is the time of all pages in the tests.
var now = clitest.Now

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// poolBuilder builds the objects of one pool: a deployment with its sets and machines, and their statuses as the workers
// write them.
type poolBuilder struct {
	namespace, name string
	desired         int
	revision        int64 // the newest revision
	machines        []*v1alpha1.Machine
	policy          *v1alpha1.RolloutPolicy
	own             []explain.Condition // conditions of the deployment that may explain a wait
	edits           []func(*v1alpha1.MachineDeployment)
	step            string
	pin             *v1alpha1.RolloutPin
}

func newPool(namespace, name string, desired int) *poolBuilder {
	return &poolBuilder{namespace: namespace, name: name, desired: desired, revision: 4}
}

// atRevision sets the newest revision; its set is named NAME-REVISION.
func (b *poolBuilder) atRevision(revision int64) *poolBuilder {
	b.revision = revision
	return b
}

type machineEdit func(*v1alpha1.Machine)

// with adds machines of a revision.
func (b *poolBuilder) with(n int, revision int64, edits ...machineEdit) *poolBuilder {
	for range n {
		i := len(b.machines)
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace:         b.namespace,
			Name:              fmt.Sprintf("%s-%d-%s", b.name, revision, suffix(i)),
			UID:               types.UID(fmt.Sprintf("m-%s-%s-%d", b.namespace, b.name, i)),
			CreationTimestamp: ago(50 * time.Hour),
			Labels: map[string]string{
				"app":              b.name,
				v1alpha1.LabelNode: fmt.Sprintf("ip-10-0-%d-%d", i/200, 10+i%200),
			},
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{b.setReference(revision)},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "millwright", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{},"f:currentStatus":{}}}`),
			}},
		}}
		m.Spec.Class.Name, m.Spec.ProviderID = "large", fmt.Sprintf("aws:///eu-1/i-%08x", 0xa1b2c3+i)
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: ago(49 * time.Hour)}
		m.Status.LastOperation.Description = "Machine joined the cluster"
		for _, edit := range edits {
			edit(m)
		}
		b.machines = append(b.machines, m)
	}
	return b
}

// suffix returns a suffix as Kubernetes makes them.
func suffix(i int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	text := ""
	for n := i*7919 + 104729; len(text) < 5; n /= len(letters) {
		text += string(letters[n%len(letters)])
	}
	return text
}

func (b *poolBuilder) uid(kind string) types.UID {
	return types.UID(kind + "-" + b.namespace + "-" + b.name)
}

func (b *poolBuilder) setName(revision int64) string { return fmt.Sprintf("%s-%d", b.name, revision) }

func (b *poolBuilder) setReference(revision int64) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineSet", Name: b.setName(revision),
		UID: b.uid(b.setName(revision)), Controller: new(true),
	}
}

// waiting makes a machine wait, with the sentence that the worker writes.
func waiting(step, cause string, since, deadline time.Duration, blockers ...string) machineEdit {
	return func(m *v1alpha1.Machine) {
		kind := "machine"
		if step == vocabulary.StepEvictPods {
			kind = "drain"
		}
		o := &v1alpha1.Operation{
			WorkflowID: "garden/" + kind + "/" + m.Namespace + "/" + m.Name + "/" + string(m.UID),
			Step:       step, Cause: cause, Since: ago(since), BlockedBy: blockers,
		}
		if deadline != 0 {
			o.Deadline = new(metav1.NewTime(now.Add(deadline)))
		}
		m.Status.CurrentOperation = o
		w := machine.ExplanationFacts(m, nil, now).CurrentWait()
		o.WaitsFor, o.Waits = w.Sentence(now), machine.StatusWaits([]explain.GroupedWait{{WaitState: w}})
	}
}

func inPhase(phase v1alpha1.MachinePhase, since time.Duration) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: ago(since)}
	}
}

func createdBefore(age time.Duration) machineEdit {
	return func(m *v1alpha1.Machine) { m.CreationTimestamp = ago(age) }
}

// leaving makes a machine one that is being deleted, in the stage of its drain.
func leaving(since time.Duration) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.DeletionTimestamp, m.Finalizers = new(ago(since)), []string{v1alpha1.FinalizerMachine}
		inPhase(v1alpha1.MachineTerminating, since)(m)
		m.Status.LastOperation.Description = "Drains the node"
		m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionDrain, Since: ago(since)}
		m.Status.Deletion.Drain = &v1alpha1.MachineDrain{
			StartedAt: ago(since), Means: string(drain.MeansEvict), MeansSince: new(ago(since)),
		}
	}
}

// withStep sets the step of the deployment's work.
func (b *poolBuilder) withStep(step string) *poolBuilder {
	b.step = step
	return b
}

func (b *poolBuilder) edited(edit func(*v1alpha1.MachineDeployment)) *poolBuilder {
	b.edits = append(b.edits, edit)
	return b
}

// withOwnWait adds a condition that explains why the deployment itself waits.
func (b *poolBuilder) withOwnWait(reason, message string, since time.Duration) *poolBuilder {
	b.own = append(b.own, explain.Condition{
		Type: vocabulary.ConditionProgressing, Status: "Unknown", Reason: reason, Message: message, Since: now.Add(-since),
	})
	return b
}

// withSteps adds a policy with these steps.
func (b *poolBuilder) withSteps(steps ...v1alpha1.RolloutStep) *poolBuilder {
	b.policy = &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "careful"},
		Spec:       v1alpha1.RolloutPolicySpec{Steps: steps, Targets: []v1alpha1.RolloutPolicyTarget{{Name: b.name}}},
	}
	return b
}

func approvedStep(size int32) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Replicas: intstr.FromInt32(size), Approve: true}
}

func timedStep(percent string, wait time.Duration) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Replicas: intstr.FromString(percent), Wait: &metav1.Duration{Duration: wait}}
}

// objects returns the objects of the pool.
func (b *poolBuilder) objects() []runtime.Object {
	labels := map[string]string{"app": b.name}
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.namespace, Name: b.name, UID: b.uid("d"), ResourceVersion: "7", Generation: 1,
		CreationTimestamp: ago(400 * time.Hour),
		Annotations:       map[string]string{v1alpha1.AnnotationRevision: fmt.Sprint(b.revision)},
	}}
	d.Spec.Replicas, d.Spec.Selector = int32(b.desired), &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels, d.Spec.Template.Spec.Class.Name = labels, fmt.Sprintf("large-v%d", b.revision)
	d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{}
	d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
	d.Spec.Strategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(0))
	d.Spec.Strategy.Type = v1alpha1.RollingUpdateMachineDeploymentStrategyType
	d.Status.ObservedGeneration = 1
	if b.step != "" {
		d.Status.CurrentOperation = &v1alpha1.Operation{
			Step:       b.step,
			Since:      ago(34 * time.Minute),
			WorkflowID: "garden/rollout/" + b.namespace + "/" + b.name + "/" + fmt.Sprint(b.revision),
			RolloutOf:  d.UID,
		}
	}
	facts := explain.Deployment{
		Namespace:         b.namespace,
		Name:              b.name,
		Conditions:        b.own,
		HasPendingChanges: true,
		MachineCount:      max(b.desired, len(b.machines)),
	}
	for _, m := range b.machines {
		facts.Machines = append(facts.Machines, machine.ExplanationFacts(m, nil, now))
	}
	for _, edit := range b.edits {
		edit(d)
	}
	if b.pin != nil {
		facts.PinWait = explain.WaitState{
			Blockers: []string{vocabulary.ReasonRolledBack}, Since: b.pin.Since.Time,
			Cause: fmt.Sprintf("revision %d failed (%s): back on revision %d", b.revision, b.pin.Reason, b.pin.Revision),
		}
		if d.Status.Rollout == nil {
			d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: b.revision, Set: b.setName(b.revision)}
		}
		d.Status.Rollout.Pin = b.pin
	}
	if said := facts.BlockedSummary(now); said.IsBlocked() {
		if d.Status.CurrentOperation == nil {
			d.Status.CurrentOperation = &v1alpha1.Operation{}
		}
		o := d.Status.CurrentOperation
		o.WaitsFor, o.BlockedBy, o.Since = said.Message, said.Blockers, metav1.NewTime(said.Since)
		o.Waits = machine.StatusWaits(said.Waits)
		if !said.At.IsZero() {
			o.Deadline = new(metav1.NewTime(said.At))
		}
	}
	objects := []runtime.Object{d}
	revisions := []int64{b.revision}
	for _, m := range b.machines {
		var revision int64
		_, _ = fmt.Sscanf(m.OwnerReferences[0].Name, b.name+"-%d", &revision)
		if !slices.Contains(revisions, revision) {
			revisions = append(revisions, revision)
		}
	}
	for _, revision := range revisions {
		objects = append(objects, b.set(d, revision))
	}
	for _, m := range b.machines {
		objects = append(objects, m)
	}
	if b.policy != nil {
		objects = append(objects, b.policy)
	}
	return objects
}

func (b *poolBuilder) set(d *v1alpha1.MachineDeployment, revision int64) *v1alpha1.MachineSet {
	count := int32(0)
	for _, m := range b.machines {
		if m.OwnerReferences[0].Name == b.setName(revision) && m.DeletionTimestamp == nil {
			count++
		}
	}
	s := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.namespace, Name: b.setName(revision), UID: b.uid(b.setName(revision)), Labels: d.Spec.Template.Labels,
		CreationTimestamp: ago(time.Duration(100-revision) * time.Hour),
		Annotations: map[string]string{
			v1alpha1.AnnotationRevision:        fmt.Sprint(revision),
			v1alpha1.AnnotationDesiredReplicas: fmt.Sprint(b.desired),
			v1alpha1.AnnotationMaxReplicas:     fmt.Sprint(b.desired + 1),
			v1alpha1.AnnotationChangeCause:     fmt.Sprintf("image 2026.11.%d", revision),
		},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment")),
		},
	}}
	s.Spec.Selector, s.Spec.Template, s.Spec.Replicas = d.Spec.Selector, *d.Spec.Template.DeepCopy(), count
	s.Spec.Template.Spec.Class.Name = fmt.Sprintf("large-v%d", revision)
	s.Status.Replicas, s.Status.ObservedReplicas = count, count
	return s
}

// lease returns the Lease of a process that was renewed some time ago.
func lease(name string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "millwright", Name: name, Annotations: map[string]string{v1alpha1.AnnotationInstallation: "garden"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now.Add(-renewed)))},
	}
}

// factsOf returns the snapshot of objects, as the caches keep them.
func factsOf(t testing.TB, objects ...runtime.Object) snapshot {
	t.Helper()
	s := snapshot{now: now, context: "seed-eu-1"}
	for _, o := range objects {
		short, err := cacheNative(o)
		if err == nil && short == any(o) {
			short, err = cacheClusterAPI(o)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.addObject(short)
	}
	return s
}

func fleetOf(t testing.TB, pools ...*poolBuilder) *fleet {
	t.Helper()
	var objects []runtime.Object
	for _, p := range pools {
		objects = append(objects, p.objects()...)
	}
	return buildFleet(factsOf(t, objects...))
}

// The causes of the situations.
const (
	budgetCause = "PodDisruptionBudget shop/web allows none of its 20 healthy pods to go: it needs 20 of 20"
	quotaCause  = "the cloud refused the instance: quota of 32 instances of m5.large in eu-1 is used up"
)

func blockedByBudget(since time.Duration) []machineEdit {
	return []machineEdit{
		leaving(since),
		waiting(vocabulary.StepEvictPods, budgetCause, since, 2*time.Hour-since, "PodDisruptionBudget shop/web"),
	}
}

func refusedByQuota(since time.Duration) []machineEdit {
	return []machineEdit{
		inPhase(v1alpha1.MachineCrashLoopBackOff, since), createdBefore(since),
		waiting(vocabulary.StepCreateInstance, quotaCause, since, 4*time.Minute, "ResourceExhausted"),
	}
}

func starting(since time.Duration) []machineEdit {
	return []machineEdit{
		inPhase(v1alpha1.MachinePending, since), createdBefore(since),
		waiting(vocabulary.StepAwaitNode, "boots; joins as a node", since, 18*time.Minute),
	}
}

func failed(since time.Duration) []machineEdit {
	return []machineEdit{
		inPhase(v1alpha1.MachineFailed, since),
		func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "Node was not Ready for 10m" },
	}
}
