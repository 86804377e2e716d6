// Package machine has the activities on one Machine and its node: decisions, status, creation, node sync, preservation, in-place updates, deletion.
package machine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/phrase"
	"millwright/decide/replace"
	"millwright/observe/machine"
	"millwright/provider"
)

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// Decision is what a Machine needs next, and what the steps to come must know of it.
type Decision struct {
	attention.MachinePlan

	Gone     bool // the object does not exist any more: nothing else but Why is set
	Phase    string
	Version  string // resourceVersion that was read
	Class    string // name of its MachineClass
	Provider string // of its class; empty while Problem is set
	Problem  *kube.Problem

	ProviderID     string
	NodeName       string
	LastKnownState string

	Prepare    bool      // our finalizer is missing
	Target     bool      // there is a cluster that its node joins
	Token      bool      // its instance boots with user data: it needs a bootstrap token for the join
	NeverTried bool      // no create call was ever begun for this machine, as far as was read
	CreateBy   time.Time // when the creation timeout ends; never zero

	StageSince time.Time      // since when the recorded stage of its deletion is under way; zero when none is
	Deletion   *deletion.Step // what its deletion does next; nil unless it is being deleted
	Busy       bool           // the status shows a step in flight
	Yields     bool           // many machines of its set call the cloud, too: those of others go first
}

// DecideMachine reads a machine, its node and its class, and says what it needs next.
func (a *Activities) DecideMachine(ctx context.Context, in kube.Read) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return gone(), nil
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return Decision{}, err
	}
	return a.decideMachine(ctx, in, m, around, live)
}

// DecideAfterCreate says what a machine needs next once a report is written, which says that its instance exists. Where its node is there
// already, one report can say both.
func (a *Activities) DecideAfterCreate(ctx context.Context, in Report) (Decision, error) {
	m, live, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return Decision{}, err
	}
	if m == nil {
		return Decision{}, kube.ObjectGone(in.Read.Ref)
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return Decision{}, err
	}
	m = m.DeepCopy()
	applyReport(m, around.Node, in, metav1.Now())
	return a.decideMachine(ctx, in.Read, m, around, live)
}

// decideMachine decides on a machine that was read.
func (a *Activities) decideMachine(ctx context.Context, in kube.Read, m *v1alpha1.Machine, around machine.Around, live bool) (Decision, error) {
	now := phrase.Later(time.Now(), in.At)
	facts := machine.Facts(m, around, now)
	decision := Decision{
		Phase:          facts.Phase,
		Version:        m.ResourceVersion,
		Class:          m.Spec.Class.Name,
		ProviderID:     facts.ProviderID,
		NodeName:       facts.NodeName,
		LastKnownState: m.Status.LastKnownState,
		Prepare:        !facts.Deleting && !facts.Finalizer,
		Target:         !around.NoTarget,
		NeverTried:     neverTried(m),
		CreateBy:       facts.CreateBy,
		Busy:           m.Status.CurrentOperation != nil,
	}
	decision.Provider, decision.Problem = usable(m, around.Class)
	facts.Stuck = decision.Problem != nil
	decision.MachinePlan = attention.Machine(facts)
	if decision.AskBreaker { // only now is it worth a look at every node
		if open, why, _ := replace.Breaker(machine.JoinedNodes(a.Kube.Cluster, m.Namespace, now), now); open {
			facts.Breaker = why
			decision.MachinePlan = attention.Machine(facts)
		}
	}
	if decision.Need == attention.Instance || decision.Need == attention.Deletion {
		decision.Yields = a.Kube.FairCalls > 0 && machine.Calling(a.Kube.Cluster, m) >= a.Kube.FairCalls
	}
	decision.Token = decision.Target && around.Class != nil && around.Class.SecretRef != nil
	if decision.Need != attention.Deletion {
		return decision, nil
	}
	step := deletion.Next(machine.DeletionFacts(a.Kube.Cluster, m, a.Kube.Own(m, around.Node), in.Done))
	decision.Deletion = &step
	if record := m.Status.Deletion; record != nil {
		decision.StageSince = record.Since.Time
	}
	return a.neverMade(ctx, m, live, decision)
}

// gone is the decision about an object that does not exist any more.
func gone() Decision {
	return Decision{Gone: true, MachinePlan: attention.MachinePlan{Decision: kube.ObjectIsGone}}
}

// neverMade makes sure that nothing was ever made for a machine that is being deleted, where it looks so: then it needs neither
// class nor Secret, since its provider has nothing to delete. That no creation began is not believed of a cache.
func (a *Activities) neverMade(ctx context.Context, m *v1alpha1.Machine, live bool, d Decision) (Decision, error) {
	if !d.NeverTried || live {
		return d, nil
	}
	ref := kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
	now, err := kube.Live(ctx, a.Kube.Cluster.Client().MachineV1alpha1().Machines(m.Namespace), "machine", ref)
	switch {
	case err != nil:
		return Decision{}, err
	case now == nil:
		return gone(), nil
	}
	d.NeverTried = neverTried(now)
	return d, nil
}

// around returns what stands around a machine, as fresh as the machine was read: the cache that was behind may have been
// that of the nodes or classes.
func (a *Activities) around(ctx context.Context, m *v1alpha1.Machine, live bool) (machine.Around, error) {
	around := machine.Read(a.Kube.Cluster, m)
	if !live {
		return around, nil
	}
	var err error
	if around.Node, err = a.Kube.Node(ctx, m, live); err != nil {
		return around, err
	}
	around.Class, err = a.Kube.Cluster.Client().MachineV1alpha1().MachineClasses(m.Namespace).Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		around.Class = nil
	case err != nil:
		return around, fmt.Errorf("get class %s of machine %s: %w", m.Spec.Class.Name, m.Name, err)
	}
	return around, nil
}

// usable returns the name of the provider of a machine, or what keeps us from knowing it.
func usable(m *v1alpha1.Machine, class *v1alpha1.MachineClass) (string, *kube.Problem) {
	name := m.Spec.Class.Name
	if class == nil {
		return "", kube.ClassNotFound(m.Namespace, name)
	}
	if err := provider.ValidateName(class.Provider); err != nil { // nobody would ever look at its task queue
		return "", kube.ClassProblem(v1alpha1.ReasonClassInvalid, "MachineClass %s cannot be used: %v", name, err)
	}
	return class.Provider, nil
}

// neverTried reports whether RecordCreateIntent has not yet run for a machine: no create call can have been begun. Asked of a
// cached machine it may be out of date; RecordCreateIntent is the one that knows.
func neverTried(m *v1alpha1.Machine) bool { return m.Status.LastOperation.Type == "" }
