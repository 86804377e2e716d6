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

	Gone     bool // the object does not exist any more: only Why is set besides
	Phase    string
	Version  string // resourceVersion that was read
	Class    string // name of its MachineClass
	Versions string `json:",omitzero"` // of the class and its Secrets, for calls of the provider; empty: not known
	Call     string `json:",omitzero"` // what a call of the provider depends on: equal for two calls that are made alike
	Provider string // of its class; empty while Problem is set
	Problem  *kube.Problem

	ProviderID     string
	NodeName       string
	NodeFound      string `json:",omitzero"` // with the need Name
	LastKnownState string

	Prepare bool // our finalizer is missing
	Target  bool // its node joins a cluster
	// its instance boots with user data: it needs a bootstrap token to join, unless it is known to need none
	Token      bool
	NeverTried bool      // no create call was ever begun for this machine, as far as was read
	CreateBy   time.Time // when the creation timeout ends; never zero

	StageSince time.Time      // since when the recorded stage of its deletion is under way; zero when there is none
	Deletion   *deletion.Step // what its deletion does next; nil unless it is being deleted
	Busy       bool           // the status shows a step that is running
	Blocked    bool           `json:",omitzero"` // something blocks its step
	Unsaid     bool           `json:",omitzero"` // the status does not name what blocks the step
	Yields     bool           // many machines of its set call the cloud too: those of other sets go first
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

// decideMachine decides about a machine that was read, as it will be after a report, if that is not nil or overtaken.
func (a *Activities) decideMachine(
	ctx context.Context,
	in kube.Read,
	m *v1alpha1.Machine,
	live bool,
	report *Report,
) (Decision, error) {
	if report != nil && overtaken(m, *report) {
		report = nil
	}
	if report != nil {
		m = m.DeepCopy()
		m.Status.NodeName = cmp.Or(report.NodeName, m.Status.NodeName) // whose the node is depends on it
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return Decision{}, err
	}
	if report != nil {
		applyReport(m, around.Node, *report, in.Time())
	}
	now := in.Time()
	facts := machine.Facts(m, around, now)
	decision := Decision{
		Phase:          facts.Phase,
		Version:        m.ResourceVersion,
		Class:          m.Spec.Class.Name,
		ProviderID:     facts.ProviderID,
		NodeName:       facts.NodeName,
		NodeFound:      facts.NodeFound,
		LastKnownState: m.Status.LastKnownState,
		Prepare:        !facts.Deleting && !facts.Finalizer,
		Target:         !around.NoTarget,
		NeverTried:     neverTried(m),
		CreateBy:       facts.CreateBy,
		Busy:           m.Status.CurrentOperation != nil,
	}
	decision.Provider, decision.Problem = providerOf(m, around.Class)
	if decision.Provider != "" {
		decision.Versions = observeclass.Versions(a.Kube.Cluster, around.Class)
	}
	facts.Stuck = decision.Problem != nil
	decision.MachinePlan = a.plan(m, facts)
	waits := machine.Explained(m, around.Class, now).WaitsFor()
	decision.Blocked, decision.Unsaid = waits.Blocked(), !machine.IsExplained(m, waits)
	if decision.Need == attention.Instance || decision.Need == attention.Deletion {
		decision.Call = call(m, around.Class, decision)
		decision.Yields = a.Kube.FairCalls > 0 && machine.Calling(a.Kube.Cluster, m) >= a.Kube.FairCalls
	}
	decision.Token = decision.Target && a.needsToken(around.Class, decision.Versions, live)
	if decision.Need != attention.Deletion {
		return decision, nil
	}
	step := deletion.Next(machine.DeletionFacts(a.Kube.Cluster, m, around, in.Done))
	decision.Deletion = &step
	if record := m.Status.Deletion; record != nil {
		decision.StageSince = record.Since.Time
	}
	return a.confirmNeverTried(ctx, m, live, decision)
}

// call returns what a call of the provider for a machine depends on: its spec, its class with the Secrets, and what people
// request for its deletion. Other annotations and labels change nothing for the call.
func call(m *v1alpha1.Machine, class *v1alpha1.MachineClass, d Decision) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q %q %d %q", d.Provider, d.Versions, m.Generation, m.Labels[v1alpha1.LabelForceDeletion])
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

// plan plans a machine. It reads the breaker, and with it every node, only if the plan depends on it.
func (a *Activities) plan(m *v1alpha1.Machine, facts attention.MachineFacts) attention.MachinePlan {
	plan := attention.Machine(facts)
	if !plan.AskBreaker {
		return plan
	}
	open, why, _ := replace.Breaker(machine.JoinedNodes(a.Kube.Cluster, m.Namespace, facts.Now), facts.Now)
	if !open {
		return plan
	}
	facts.Breaker = why
	return attention.Machine(facts)
}

// needsToken reports whether an instance of a class needs a bootstrap token, as far as is known. A live decision may
// follow a call that needed one although none was expected.
func (a *Activities) needsToken(class *v1alpha1.MachineClass, versions string, live bool) bool {
	return class != nil && class.SecretRef != nil &&
		(live || !a.Kube.Tokenless.Knows(class.Namespace, class.Name, versions))
}

// gone returns the decision about an object that does not exist any more.
func gone() Decision {
	return Decision{Gone: true, MachinePlan: attention.MachinePlan{Decision: kube.ObjectIsGone}}
}

// confirmNeverTried checks live that no create call was begun for a machine that is being deleted. Then it needs
// neither class nor Secret, because its provider has nothing to delete. A cached read is not enough to conclude that.
func (a *Activities) confirmNeverTried(
	ctx context.Context,
	m *v1alpha1.Machine,
	live bool,
	d Decision,
) (Decision, error) {
	if !d.NeverTried || live {
		return d, nil
	}
	ref := kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
	now, err := kube.Live(ctx, a.Kube.Machines(m.Namespace), "machine", ref)
	switch {
	case err != nil:
		return Decision{}, err
	case now == nil:
		return gone(), nil
	}
	d.NeverTried = neverTried(now)
	return d, nil
}

// around returns what is around a machine, as fresh as the machine was read: after a live read, the caches of nodes or
// classes may be the ones that are behind. That a node does not exist is never concluded from a cache alone.
func (a *Activities) around(ctx context.Context, m *v1alpha1.Machine, live bool) (machine.Around, error) {
	around := machine.Read(a.Kube.Cluster, m)
	if !live && !machine.DependsOnNode(m) {
		return around, nil
	}
	node, err := a.namedNode(ctx, m, live)
	if err != nil && (live && m.DeletionTimestamp == nil || ctx.Err() != nil) {
		return around, err
	}
	around.Sees(a.Kube.Cluster, m, node)
	if around.Lost(m) {
		if around.Found, err = a.Kube.NodeOfInstance(ctx, m); err != nil {
			return around, err
		}
	}
	around.NodeUnknown, around.NodeGone = err != nil, err == nil && around.Node == nil && around.Found == nil
	if !live {
		return around, nil
	}
	around.Class, err = a.Kube.Cluster.Client().
		MachineV1alpha1().
		MachineClasses(m.Namespace).
		Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		around.Class = nil
	case err != nil:
		return around, fmt.Errorf("get class %s of machine %s: %w", m.Spec.Class.Name, m.Name, err)
	}
	return around, nil
}

// namedNode returns the node that a machine names, as ExistingNode does. One in the cache that is not proven to be the
// machine's may have been registered anew: it is read live.
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
