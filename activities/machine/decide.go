// Package machine has the activities on one Machine and its node: decisions, status, creation, node sync, preservation,
// in-place updates, deletion.
package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
	"millwright/decide/replace"
	"millwright/observe/cache"
	observeclass "millwright/observe/class"
	"millwright/observe/machine"
	"millwright/provider"
)

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// Decision is what a Machine needs next, with the facts for the next steps.
type Decision struct {
	attention.MachinePlan
	CallInputs

	Gone    bool // the machine no longer exists, so only Gone and Why are set
	Phase   string
	Version string // resourceVersion of the machine that the decision read

	ProviderID string
	NodeName   string
	// name of the node with the instance's provider ID, if the machine records another node name
	NodeFound      string `json:",omitzero"`
	LastKnownState string

	Prepare bool // Millwright's finalizer is missing
	Target  bool // the machine's node joins a target cluster
	// why the target cluster is not connected, and since when; empty: it is connected, or the machine is not being deleted
	TargetDown string    `json:",omitzero"`
	NeverTried bool      // according to the machine that was read, no create call was ever started
	CreateBy   time.Time // end of the creation timeout; never zero

	StageSince time.Time      // start of the recorded deletion stage; zero: no stage is recorded
	Deletion   *deletion.Step // next step of the deletion; nil: the machine is not being deleted
	Busy       bool           // the status shows a running step
	Blocked    bool           `json:",omitzero"` // the current step is blocked
	Unsaid     bool           `json:",omitzero"` // the status does not name what blocks the step
}

// CallInputs holds the inputs of a provider call for a machine.
type CallInputs struct {
	Class    string // name of the MachineClass
	Provider string // provider of the class; empty if Problem is set
	Problem  *kube.Problem
	Versions string `json:",omitzero"` // resource versions of the class and its Secrets; empty: unknown
	// Call is a hash of all inputs of the provider call: an equal hash means an identical call. Call is empty if no
	// call is needed.
	Call string `json:",omitzero"`
	// Token is true if the instance gets a bootstrap token. An instance that boots with user data may be unable to join
	// without a token.
	Token  bool
	Yields bool // many machines of the set have provider calls in progress, so calls for other sets go first
}

// DecideMachine reads a machine, its node and its class, and returns what the machine needs next.
func (a *Activities) DecideMachine(ctx context.Context, in kube.ReadInput) (Decision, error) {
	m, live, err := a.Kube.ReadMachine(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return objectGoneDecision(), nil
	}
	return a.decideMachine(ctx, in, m, live, nil)
}

// DecideAfterCreate returns what a machine needs next, after the report that its instance exists. If the machine's node
// has already joined, the workflow can report the instance and the node in one write.
func (a *Activities) DecideAfterCreate(ctx context.Context, in Report) (Decision, error) {
	m, live, err := a.Kube.ReadMachine(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return Decision{}, kube.ObjectGoneError(in.Read.Ref)
	}
	return a.decideMachine(ctx, in.Read, m, live, &in)
}

// decideMachine decides about a machine that was read. If a report is given and is still up to date, the decision is
// about the machine after the report. All facts are read before the decision.
func (a *Activities) decideMachine(
	ctx context.Context,
	in kube.ReadInput,
	m *v1alpha1.Machine,
	live bool,
	report *Report,
) (Decision, error) {
	f, err := a.readFacts(ctx, in, m, live, report)
	if err != nil {
		return Decision{}, err
	}
	if f.machine == nil {
		return objectGoneDecision(), nil
	}
	return f.decide(), nil
}

// machineFacts holds all facts about a machine that a decision needs.
type machineFacts struct {
	machine *v1alpha1.Machine // the machine after the report; nil: the machine is gone
	related machine.RelatedObjects
	attention.MachineFacts
	callInputs         CallInputs // the field Call is empty
	creationNeverTried bool
	deletion           deletion.Facts // zero: the machine is not being deleted
}

// readFacts reads the facts about a machine. The report, if there is one, is applied to the machine. Facts beyond the
// machine and its related objects are read only if the decision may depend on them.
func (a *Activities) readFacts(
	ctx context.Context, in kube.ReadInput, m *v1alpha1.Machine, live bool, report *Report,
) (f machineFacts, err error) {
	if report != nil && isReportOutdated(m, *report) {
		report = nil
	}
	if report != nil {
		m = m.DeepCopy()
		m.Status.NodeName = cmp.Or(report.NodeName, m.Status.NodeName) // the node name decides which machine owns the node
	}
	if f.related, err = a.readRelatedObjects(ctx, m, live); err != nil {
		return f, err
	}
	if report != nil {
		applyReport(m, f.related.Node, *report, in.DecisionTime())
	}
	f.creationNeverTried = wasCreationNeverTried(m)
	if f.creationNeverTried && m.DeletionTimestamp != nil && !live {
		// A machine without a create call can be deleted without its class and Secret. Only a live read can prove that
		// no create call was started.
		now, err := kube.ReadLive(ctx, a.Kube.Machines(m.Namespace), "machine", in.Ref)
		if err != nil || now == nil {
			return machineFacts{}, err
		}
		f.creationNeverTried = wasCreationNeverTried(now)
	}
	f.machine, f.MachineFacts = m, machine.Facts(m, f.related, in.DecisionTime())
	if health.HasTimedOut(f.Facts) { // the circuit breaker reads every node
		if open, why, _ := replace.BreakerState(machine.JoinedNodeCounts(a.Kube.Cluster, m.Namespace, f.Now), f.Now); open {
			f.Breaker = why
		}
	}
	f.callInputs = a.callInputsOf(m, f.related, live)
	f.Stuck = f.callInputs.Problem != nil
	if f.Deleting {
		f.deletion = machine.DeletionFacts(a.Kube.Cluster, m, f.related, in.Done)
	}
	return f, nil
}

// callInputsOf returns the inputs of a provider call for a machine.
func (a *Activities) callInputsOf(m *v1alpha1.Machine, related machine.RelatedObjects, live bool) CallInputs {
	c := CallInputs{Class: m.Spec.Class.Name}
	if c.Provider, c.Problem = providerNameOf(m, related.Class); c.Provider != "" {
		c.Versions = observeclass.VersionsText(a.Kube.Cluster, related.Class)
	}
	if c.Problem == nil && related.TargetDown != "" && m.DeletionTimestamp == nil {
		c.Problem = kube.NewTargetProblem(related.TargetDown)
	}
	c.Token = !related.NoTargetCluster && a.needsToken(related.Class, c.Versions, live)
	if machine.MayCallCloud(m) {
		c.Yields = a.Kube.FairCalls > 0 && machine.CloudCallCount(a.Kube.Cluster, m) >= a.Kube.FairCalls
	}
	return c
}

// decide returns what the machine needs next.
func (f machineFacts) decide() Decision {
	m := f.machine
	waits := machine.ExplanationFacts(m, f.related.Class, f.Now).CurrentWait()
	d := Decision{
		MachinePlan:    attention.PlanMachine(f.MachineFacts),
		CallInputs:     f.callInputs,
		Phase:          f.Phase,
		Version:        m.ResourceVersion,
		ProviderID:     f.ProviderID,
		NodeName:       f.NodeName,
		NodeFound:      f.NodeFound,
		LastKnownState: m.Status.LastKnownState,
		Prepare:        !f.Deleting && !f.Finalizer,
		Target:         !f.related.NoTargetCluster,
		TargetDown: phrase.TextIf(
			f.Deleting && f.TargetDown != "",
			"%s (since %s)",
			f.TargetDown,
			phrase.ClockText(f.related.TargetDownSince, f.Now),
		),
		NeverTried: f.creationNeverTried,
		CreateBy:   f.CreateBy,
		Busy:       m.Status.CurrentOperation != nil,
		Blocked:    waits.IsBlocked(),
		Unsaid:     !machine.StatusShowsBlockers(m, waits),
	}
	if d.Need == attention.NeedInstance || d.Need == attention.NeedDeletion {
		d.Call = callHash(m, f.related.Class, f.callInputs)
	} else {
		d.Yields = false
	}
	if d.Need != attention.NeedDeletion {
		return d
	}
	d.Deletion = new(deletion.Decide(f.deletion))
	if record := m.Status.Deletion; record != nil {
		d.StageSince = record.Since.Time
	}
	return d
}

// callHash returns a hash of the inputs of a provider call for a machine: the machine's spec, its class with the
// Secrets, and the annotations and label with which people change the deletion. callHash ignores all other annotations
// and labels.
func callHash(m *v1alpha1.Machine, class *v1alpha1.MachineClass, c CallInputs) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q %d %q", c.Provider, c.Versions, m.Generation, m.Labels[v1alpha1.LabelForceDeletion])
	if class != nil { // Versions is empty if Secrets are not watched
		_, _ = fmt.Fprintf(sum, " %q %d", class.UID, class.Generation)
	}
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationHold, v1alpha1.AnnotationRetry,
		v1alpha1.AnnotationAbandonInstance,
	} {
		value, requested := m.Annotations[key]
		_, _ = fmt.Fprintf(sum, " %t %q", requested, value)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// needsToken reports whether an instance of a class may need a bootstrap token. In a live decision, each class with
// user data may need a token, because the previous call may have failed for lack of a token.
func (a *Activities) needsToken(class *v1alpha1.MachineClass, versions string, live bool) bool {
	return class != nil && class.SecretRef != nil &&
		(live || !a.Kube.ClassesWithoutToken.Contains(class.Namespace, class.Name, versions))
}

// objectGoneDecision returns the decision about an object that no longer exists.
func objectGoneDecision() Decision {
	return Decision{Gone: true, MachinePlan: attention.MachinePlan{Decision: kube.ObjectGoneDecision}}
}

// readRelatedObjects returns the related objects of a machine. If the machine was read live, its node and class are
// also read live, because their caches may be stale as well. A cache alone never proves that a node does not exist.
// While the target cluster is not connected, the node comes from the cache or is unknown, so that decisions are still
// made.
func (a *Activities) readRelatedObjects(
	ctx context.Context,
	m *v1alpha1.Machine,
	live bool,
) (machine.RelatedObjects, error) {
	related := machine.ReadRelatedObjects(a.Kube.Cluster, m)
	if live || machine.DependsOnNode(m) {
		if err := a.readNode(ctx, m, live && related.TargetDown == "", &related); err != nil {
			return related, err
		}
	}
	if !live {
		return related, nil
	}
	var err error
	related.Class, err = a.Kube.Cluster.Client().
		MachineV1alpha1().
		MachineClasses(m.Namespace).
		Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		related.Class = nil
	case err != nil:
		return related, fmt.Errorf("get class %s of machine %s: %w", m.Spec.Class.Name, m.Name, err)
	}
	return related, nil
}

// readNode records the node of a machine in related. If the target cluster does not answer, the node is unknown; a live
// decision about a machine that is not being deleted then fails.
func (a *Activities) readNode(
	ctx context.Context,
	m *v1alpha1.Machine,
	live bool,
	related *machine.RelatedObjects,
) error {
	node, err := a.readNamedNode(ctx, m, live)
	if err != nil && (live && m.DeletionTimestamp == nil || ctx.Err() != nil) {
		return err
	}
	related.SetNodeAndOwner(a.Kube.Cluster, m, node)
	if related.HasUnknownNode(m) {
		if related.FoundNode, err = a.Kube.FindNodeOfInstance(ctx, m); err != nil && ctx.Err() != nil {
			return err
		}
	}
	related.NodeUnknown, related.NodeGone = err != nil, err == nil && related.Node == nil && related.FoundNode == nil
	return nil
}

// readNamedNode returns the node that a machine names, as ReadExistingNode does. If a cached node is not proven to
// belong to the machine, the node is read live, because another instance may have registered a node with this name.
func (a *Activities) readNamedNode(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	node, err := a.Kube.ReadExistingNode(ctx, m, live)
	if err != nil || node == nil || live || a.Kube.Cluster.OwnerOfNode(m, node).HasOwnerKind(ownership.OwnerSelf) {
		return node, err
	}
	return a.Kube.ReadExistingNode(ctx, m, true)
}

// providerNameOf returns the name of the provider of a machine, or the problem with the machine's class.
func providerNameOf(m *v1alpha1.Machine, class *v1alpha1.MachineClass) (string, *kube.Problem) {
	name := m.Spec.Class.Name
	if class == nil {
		return "", kube.NewClassNotFoundProblem(m.Namespace, name)
	}
	if err := provider.ValidateName(class.ProviderName()); err != nil { // no worker could poll a task queue of this name
		return "", kube.NewClassProblem(v1alpha1.ReasonClassInvalid, "MachineClass %s cannot be used: %v", name, err)
	}
	return class.ProviderName(), nil
}

// wasCreationNeverTried reports whether no create call can have been started for a machine: no create intent and no
// operation of another controller is recorded, and the machine names no instance and no node. A cached machine may be
// stale, so only a live machine proves that no create call was started.
func wasCreationNeverTried(m *v1alpha1.Machine) bool {
	switch intent := m.Status.CreationIntent; {
	case m.Spec.ProviderID != "" || cache.NodeNameOfMachine(m) != "": // a machine from a backup may lack a status
		return false
	case intent != nil:
		return intent.RunID == ""
	default:
		return m.Status.LastOperation.Type == ""
	}
}
