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
	"millwright/decide/replace"
	"millwright/observe/cache"
	observeclass "millwright/observe/class"
	"millwright/observe/machine"
	"millwright/provider"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// Decision is what a Machine needs next, and what the steps that follow need to know about it.
type Decision struct {
	attention.MachinePlan
	Calling

	Gone    bool // the object does not exist any more: only Why is set besides
	Phase   string
	Version string // resourceVersion that was read

	ProviderID     string
	NodeName       string
	NodeFound      string `json:",omitzero"` // name of the node with the instance's provider ID, for the need Name
	LastKnownState string

	Prepare    bool      // our finalizer is missing
	Target     bool      // there is a target cluster, which its node joins
	NeverTried bool      // no create call was ever begun for this machine, as far as was read
	CreateBy   time.Time // when the creation timeout ends; never zero

	StageSince time.Time      // since when the recorded stage of its deletion is under way; zero when there is none
	Deletion   *deletion.Step // what its deletion does next; nil unless it is being deleted
	Busy       bool           // the status shows a step that is running
	Blocked    bool           `json:",omitzero"` // something blocks its step
	Unsaid     bool           `json:",omitzero"` // the status does not name what blocks the step
}

// Calling is what a call of the provider for a machine needs to know.
type Calling struct {
	Class    string // name of its MachineClass
	Provider string // of its class; empty while Problem is set
	Problem  *kube.Problem
	Versions string `json:",omitzero"` // of the class and its Secrets; empty: not known
	// Call is a hash of all that the call depends on: if it is equal, a second call would be made like the first. Empty:
	// no call is needed.
	Call string `json:",omitzero"`
	// Token: the instance boots with user data and is not known to join without a bootstrap token, so it gets one.
	Token  bool
	Yields bool // many machines of its set call the cloud: calls for other sets go first
}

// DecideMachine reads a machine, its node and its class, and returns what it needs next.
func (a *Activities) DecideMachine(ctx context.Context, in kube.Read) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return gone(), nil
	}
	return a.decideMachine(ctx, in, m, live, nil)
}

// DecideAfterCreate returns what a machine needs next after a report that its instance exists. If its node has joined
// already, one report can say both.
func (a *Activities) DecideAfterCreate(ctx context.Context, in Report) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return Decision{}, kube.ObjectGone(in.Read.Ref)
	}
	return a.decideMachine(ctx, in.Read, m, live, &in)
}

// decideMachine decides about a machine that was read. If there is a report that is not overtaken, it decides about the
// machine as it will be after this report. It reads all facts first, and decides once.
func (a *Activities) decideMachine(
	ctx context.Context,
	in kube.Read,
	m *v1alpha1.Machine,
	live bool,
	report *Report,
) (Decision, error) {
	f, err := a.facts(ctx, in, m, live, report)
	if err != nil {
		return Decision{}, err
	}
	if f.machine == nil {
		return gone(), nil
	}
	return f.decide(), nil
}

// facts are all facts about a machine that a decision needs.
type facts struct {
	machine *v1alpha1.Machine // as it is after the report; nil: it is gone
	related machine.Related
	attention.MachineFacts
	calling    Calling // without Call
	neverTried bool
	deletion   deletion.Facts // zero unless it is being deleted
}

// facts reads the facts about a machine, as it will be after the report. A fact that needs more than the machine and
// its node is read only in those states of the machine in which the decision may depend on it.
func (a *Activities) facts(
	ctx context.Context, in kube.Read, m *v1alpha1.Machine, live bool, report *Report,
) (f facts, err error) {
	if report != nil && overtaken(m, *report) {
		report = nil
	}
	if report != nil {
		m = m.DeepCopy()
		m.Status.NodeName = cmp.Or(report.NodeName, m.Status.NodeName) // the name decides whose the node is
	}
	if f.related, err = a.around(ctx, m, live); err != nil {
		return f, err
	}
	if report != nil {
		applyReport(m, f.related.Node, *report, in.Time())
	}
	f.neverTried = neverTried(m)
	if f.neverTried && m.DeletionTimestamp != nil && !live {
		// Its deletion then needs neither class nor Secret. A cached read is not enough to conclude that.
		now, err := kube.Live(ctx, a.Kube.Machines(m.Namespace), "machine", in.Ref)
		if err != nil || now == nil {
			return facts{}, err
		}
		f.neverTried = neverTried(now)
	}
	f.machine, f.MachineFacts = m, machine.Facts(m, f.related, in.Time())
	if health.TimedOut(f.Facts) { // the breaker reads every node
		if open, why, _ := replace.Breaker(machine.JoinedNodes(a.Kube.Cluster, m.Namespace, f.Now), f.Now); open {
			f.Breaker = why
		}
	}
	f.calling = a.calling(m, f.related, live)
	f.Stuck = f.calling.Problem != nil
	if f.Deleting {
		f.deletion = machine.DeletionFacts(a.Kube.Cluster, m, f.related, in.Done)
	}
	return f, nil
}

// calling returns what a call of the provider for a machine needs to know.
func (a *Activities) calling(m *v1alpha1.Machine, related machine.Related, live bool) Calling {
	c := Calling{Class: m.Spec.Class.Name}
	if c.Provider, c.Problem = providerOf(m, related.Class); c.Provider != "" {
		c.Versions = observeclass.Versions(a.Kube.Cluster, related.Class)
	}
	c.Token = !related.NoTarget && a.needsToken(related.Class, c.Versions, live)
	if machine.MayCall(m) {
		c.Yields = a.Kube.FairCalls > 0 && machine.Calling(a.Kube.Cluster, m) >= a.Kube.FairCalls
	}
	return c
}

// decide returns what the machine needs next.
func (f facts) decide() Decision {
	m := f.machine
	waits := machine.Explained(m, f.related.Class, f.Now).WaitsFor()
	d := Decision{
		MachinePlan:    attention.PlanMachine(f.MachineFacts),
		Calling:        f.calling,
		Phase:          f.Phase,
		Version:        m.ResourceVersion,
		ProviderID:     f.ProviderID,
		NodeName:       f.NodeName,
		NodeFound:      f.NodeFound,
		LastKnownState: m.Status.LastKnownState,
		Prepare:        !f.Deleting && !f.Finalizer,
		Target:         !f.related.NoTarget,
		NeverTried:     f.neverTried,
		CreateBy:       f.CreateBy,
		Busy:           m.Status.CurrentOperation != nil,
		Blocked:        waits.Blocked(),
		Unsaid:         !machine.IsExplained(m, waits),
	}
	if d.Need == attention.Instance || d.Need == attention.Deletion {
		d.Call = call(m, f.related.Class, f.calling)
	} else {
		d.Yields = false
	}
	if d.Need != attention.Deletion {
		return d
	}
	d.Deletion = new(deletion.Decide(f.deletion))
	if record := m.Status.Deletion; record != nil {
		d.StageSince = record.Since.Time
	}
	return d
}

// call returns what a call of the provider for a machine depends on: its spec, its class with the Secrets, and what people
// request for its deletion. Other annotations and labels change nothing for the call.
func call(m *v1alpha1.Machine, class *v1alpha1.MachineClass, c Calling) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q %d %q", c.Provider, c.Versions, m.Generation, m.Labels[v1alpha1.LabelForceDeletion])
	if class != nil { // Versions are not known if Secrets are not watched
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

// needsToken reports whether an instance of a class may need a bootstrap token. In a live decision it always may, if it
// has user data: the call before may have needed a token although none was expected.
func (a *Activities) needsToken(class *v1alpha1.MachineClass, versions string, live bool) bool {
	return class != nil && class.SecretRef != nil &&
		(live || !a.Kube.ClassesWithoutToken.Knows(class.Namespace, class.Name, versions))
}

// gone returns the decision about an object that does not exist any more.
func gone() Decision {
	return Decision{Gone: true, MachinePlan: attention.MachinePlan{Decision: kube.ObjectIsGone}}
}

// around returns the objects around a machine. If the machine was read live, its node and class are read live too,
// because their caches may be the ones that are behind. A cache alone never proves that a node does not exist.
func (a *Activities) around(ctx context.Context, m *v1alpha1.Machine, live bool) (machine.Related, error) {
	related := machine.Read(a.Kube.Cluster, m)
	if !live && !machine.DependsOnNode(m) {
		return related, nil
	}
	node, err := a.namedNode(ctx, m, live)
	if err != nil && (live && m.DeletionTimestamp == nil || ctx.Err() != nil) {
		return related, err
	}
	related.Sees(a.Kube.Cluster, m, node)
	if related.Lost(m) {
		if related.Found, err = a.Kube.NodeOfInstance(ctx, m); err != nil {
			return related, err
		}
	}
	related.NodeUnknown, related.NodeGone = err != nil, err == nil && related.Node == nil && related.Found == nil
	if !live {
		return related, nil
	}
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

// namedNode returns the node that a machine names, as ExistingNode does. A cached node that is not proven to be the
// machine's is read live: it may have been registered anew.
func (a *Activities) namedNode(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	node, err := a.Kube.ExistingNode(ctx, m, live)
	if err != nil || node == nil || live || a.Kube.Cluster.WhoseNode(m, node).Is(ownership.Ours) {
		return node, err
	}
	return a.Kube.ExistingNode(ctx, m, true)
}

// providerOf returns the name of the provider of a machine, or the problem with its class.
func providerOf(m *v1alpha1.Machine, class *v1alpha1.MachineClass) (string, *kube.Problem) {
	name := m.Spec.Class.Name
	if class == nil {
		return "", kube.ClassNotFound(m.Namespace, name)
	}
	if err := provider.ValidateName(class.ProviderName()); err != nil { // no worker could ever poll its task queue
		return "", kube.ClassProblem(v1alpha1.ReasonClassInvalid, "MachineClass %s cannot be used: %v", name, err)
	}
	return class.ProviderName(), nil
}

// neverTried reports whether no create call can have been begun for a machine: neither RecordCreateIntent has run for
// it, nor another controller, nor does it name an instance or a node. A cached machine may be out of date.
func neverTried(m *v1alpha1.Machine) bool {
	switch intent := m.Status.CreationIntent; {
	case m.Spec.ProviderID != "" || cache.NodeNameOf(m) != "": // also without a status, when it comes from a backup
		return false
	case intent != nil:
		return intent.RunID == ""
	default:
		return m.Status.LastOperation.Type == ""
	}
}
