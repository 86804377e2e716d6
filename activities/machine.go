package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/decide/preserve"
	"millwright/decide/replace"
	"millwright/observe"
	"millwright/provider"
)

// MachineDecision is what a Machine needs next, and what the steps to come must know of it.
type MachineDecision struct {
	Gone     bool // the object does not exist any more: nothing else is set
	Need     attention.Need
	Why      string
	Phase    string
	Version  string // resourceVersion that was read
	Class    string // name of its MachineClass
	Provider string // of its class; empty while Problem is set
	Problem  *Problem

	ProviderID     string
	NodeName       string
	LastKnownState string

	Prepare    bool            // our finalizer is missing
	Health     *health.Verdict // what becomes of the machine, unless it is to go
	Target     bool            // there is a cluster that its node joins
	Token      bool            // its instance boots with user data: it needs a bootstrap token for the join
	NeverTried bool            // no create call was ever begun for this machine, as far as was read
	CreateBy   time.Time       // when the creation timeout ends; never zero

	StageSince    time.Time        // since when the recorded stage of its deletion is under way; zero when none is
	Deletion      *deletion.Step   // what its deletion does next; nil unless it is to go
	InPlace       inplace.Decision // our turn in the update of its node; Nothing when it is not
	Otherwise     attention.Need   // with Need Sync: what the machine needs if its node cannot be written
	PreserveUntil time.Time        // when its preservation ends, or will end if it fails now; zero when it is not preserved
	Busy          bool             // the status shows a step in flight
	Withdraw      bool             // a replacement was granted, and the machine has recovered
	Yields        bool             // many machines of its set call the cloud, too: those of others go first
}

// Problem is why a step cannot be taken, for people and for the machine's condition.
type Problem struct {
	Reason  string // a condition reason, or the name of a provider code
	Message string
	React   Reaction
	After   time.Duration // what the cloud asked us to wait; zero when it did not

	Failures int // calls in a row that failed; only the back-off grows with it
}

// DecideMachine reads a machine, its node and its class, and says what it needs next.
func (a *Activities) DecideMachine(ctx context.Context, in Read) (MachineDecision, error) {
	m, live, err := a.machine(ctx, in)
	if err != nil {
		return MachineDecision{}, err
	}
	if m == nil {
		return MachineDecision{Gone: true, Why: "the object is gone"}, nil
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return MachineDecision{}, err
	}
	return a.decideMachine(ctx, in, m, around, live)
}

// DecideMade says what a machine needs next once a report is written, which says that its instance exists. Where its node is there
// already, one report can say both.
func (a *Activities) DecideMade(ctx context.Context, in MachineReport) (MachineDecision, error) {
	m, live, err := a.machine(ctx, in.Read)
	if err != nil {
		return MachineDecision{}, err
	}
	if m == nil {
		return MachineDecision{}, objectGone(in.Read.Ref)
	}
	around, err := a.around(ctx, m, live)
	if err != nil {
		return MachineDecision{}, err
	}
	m = m.DeepCopy()
	applyReport(m, around.Node, in, metav1.Now())
	return a.decideMachine(ctx, in.Read, m, around, live)
}

// decideMachine decides on a machine that was read.
func (a *Activities) decideMachine(ctx context.Context, in Read, m *v1alpha1.Machine, around observe.Around, live bool) (MachineDecision, error) {
	now := later(time.Now(), in.At)
	facts := observe.MachineFacts(m, around, now)
	d := attention.Machine(facts)
	decision := MachineDecision{
		Need:           d.Need,
		Why:            d.Why,
		Phase:          string(m.Status.CurrentStatus.Phase),
		Version:        m.ResourceVersion,
		Class:          m.Spec.Class.Name,
		ProviderID:     m.Spec.ProviderID,
		NodeName:       m.Labels[v1alpha1.LabelNode],
		LastKnownState: m.Status.LastKnownState,
		Prepare:        !facts.Deleting && !facts.Finalizer,
		Target:         !around.NoTarget,
		NeverTried:     neverTried(m),
		CreateBy:       observe.CreateBy(m, now),
		Busy:           m.Status.CurrentOperation != nil,
	}
	decision.Provider, decision.Problem = usable(m, around.Class)
	if d.Need == attention.Instance || d.Need == attention.Deletion {
		decision.Yields = a.FairCalls > 0 && a.Cluster.Calling(m) >= a.FairCalls
	}
	decision.Token = decision.Target && around.Class != nil && around.Class.SecretRef != nil
	switch {
	case d.Need == attention.Deletion:
		step := deletion.Next(a.Cluster.DeletionFacts(m, a.own(m, around.Node), in.Done))
		decision.Deletion = &step
		if record := m.Status.Deletion; record != nil {
			decision.StageSince = record.Since.Time
		}
		return a.neverMade(ctx, m, live, decision)
	case d.Need == attention.Instance && decision.Problem != nil: // it waits for a person: no timeout ends it
	case d.Need != attention.Nothing:
		a.judge(&decision, m, around, now)
	}
	decision.InPlace = observe.InPlace(m, around.Node)
	if d.Need == attention.Sync {
		facts.Unsynced = ""
		decision.Otherwise = attention.Machine(facts).Need
	}
	return decision, nil
}

// judge adds what becomes of a machine, and of its preservation, to a decision.
func (a *Activities) judge(decision *MachineDecision, m *v1alpha1.Machine, around observe.Around, now time.Time) {
	facts := observe.HealthFacts(m, around, "", now)
	verdict := health.Next(facts)
	over := verdict.Due != nil && verdict.Due.True
	if joined := facts.Phase == string(v1alpha1.MachineUnknown) || facts.Phase == string(v1alpha1.MachineInPlaceUpdateFailed); over && joined { // only now is it worth a look at every node
		if open, why, _ := replace.Breaker(a.Cluster.NodeHealth(m.Namespace, now), now); open {
			facts.Breaker = why
			verdict = health.Next(facts)
		}
	}
	decision.Health = &verdict
	if end := m.Status.CurrentStatus.PreserveExpiryTime; end != nil {
		decision.PreserveUntil = end.Time
	}
	_, granted := m.Annotations[v1alpha1.AnnotationReplacementGranted]
	switch c := verdict.Change; {
	case c == nil: // one that is preserved has to ask anew when that is over
		decision.Withdraw = granted && observe.IsPreserved(m) && facts.Phase == string(v1alpha1.MachineFailed)
	case c.Phase == string(v1alpha1.MachineFailed): // the end is written with the phase: no set must be faster
		wish := observe.PreserveFacts(m, around.Node, now)
		wish.Failed = true
		decision.PreserveUntil = preserve.Decide(wish).Expiry
		if decision.PreserveUntil.IsZero() && observe.IsProtected(m) { // what its node says is not known: its own wish counts
			decision.PreserveUntil = now.Add(m.Spec.EffectivePreserveTimeout())
		}
	case c.Phase == string(v1alpha1.MachineRunning):
		decision.Withdraw = granted
	}
}

// neverMade makes sure that nothing was ever made for a machine that is to go, where it looks so: then it needs neither
// class nor Secret, since its provider has nothing to delete. That no creation began is not believed of a cache.
func (a *Activities) neverMade(ctx context.Context, m *v1alpha1.Machine, live bool, d MachineDecision) (MachineDecision, error) {
	if !d.NeverTried || live {
		return d, nil
	}
	now, err := a.Cluster.Client().MachineV1alpha1().Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != m.UID:
		return MachineDecision{Gone: true, Why: "the object is gone"}, nil
	case err != nil:
		return MachineDecision{}, fmt.Errorf("get machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	d.NeverTried = neverTried(now)
	return d, nil
}

// own returns the node of a machine that is to go; nil when it is another instance's, or when another machine names it,
// too, and is to stay.
func (a *Activities) own(m *v1alpha1.Machine, node *corev1.Node) *corev1.Node {
	in := NodeRemoval{Machine: Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}, NodeName: m.Labels[v1alpha1.LabelNode]}
	switch {
	case node == nil, a.claimed(in):
		return nil
	case m.Spec.ProviderID != "" && node.Spec.ProviderID != "" && node.Spec.ProviderID != m.Spec.ProviderID:
		return nil
	default:
		return node
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// machine returns the machine as fresh as asked for, and whether it was read live; nil when it is gone.
func (a *Activities) machine(ctx context.Context, in Read) (m *v1alpha1.Machine, live bool, err error) {
	live, err = a.fresh(ctx, in)
	if err != nil {
		return nil, false, err
	}
	m, found := a.Cluster.Machine(in.Ref.Key())
	if live {
		m, err = a.Cluster.Client().MachineV1alpha1().Machines(in.Ref.Namespace).Get(ctx, in.Ref.Name, metav1.GetOptions{})
		if found = !apierrors.IsNotFound(err); found && err != nil {
			return nil, live, fmt.Errorf("get machine %s: %w", in.Ref.Key(), err)
		}
	}
	if !found || string(m.UID) != in.Ref.UID {
		return nil, live, nil
	}
	return m, live, nil
}

// around returns what stands around a machine, as fresh as the machine was read: the cache that was behind may have been
// that of the nodes or classes.
func (a *Activities) around(ctx context.Context, m *v1alpha1.Machine, live bool) (observe.Around, error) {
	around := a.Cluster.Around(m)
	if !live {
		return around, nil
	}
	var err error
	if around.Node, err = a.node(ctx, m, live); err != nil {
		return around, err
	}
	around.Class, err = a.Cluster.Client().MachineV1alpha1().MachineClasses(m.Namespace).Get(ctx, m.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		around.Class = nil
	case err != nil:
		return around, fmt.Errorf("get class %s of machine %s: %w", m.Spec.Class.Name, m.Name, err)
	}
	return around, nil
}

// node returns the node of a machine, nil when there is none, as fresh as asked for.
func (a *Activities) node(ctx context.Context, m *v1alpha1.Machine, live bool) (*corev1.Node, error) {
	name, target := m.Labels[v1alpha1.LabelNode], a.Cluster.Target(m.Namespace)
	if !live || name == "" || target == nil {
		return a.Cluster.NodeOf(m), nil
	}
	bounded := ctx
	if m.DeletionTimestamp != nil { // it is held up by no cluster that is away
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, targetReadTimeout)
		defer cancel()
	}
	node, err := target.CoreV1().Nodes().Get(bounded, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case unanswered(err) && m.DeletionTimestamp != nil && ctx.Err() == nil:
		return a.Cluster.NodeOf(m), nil
	case err != nil:
		return nil, fmt.Errorf("get node %s of machine %s: %w", name, m.Name, err)
	}
	return node, nil
}

// usable returns the name of the provider of a machine, or what keeps us from knowing it.
func usable(m *v1alpha1.Machine, class *v1alpha1.MachineClass) (string, *Problem) {
	name := m.Spec.Class.Name
	if class == nil {
		return "", classNotFound(m.Namespace, name)
	}
	if err := provider.ValidateName(class.Provider); err != nil { // nobody would ever look at its task queue
		return "", &Problem{
			Reason: v1alpha1.ReasonClassInvalid, React: UntilCredential,
			Message: fmt.Sprintf("MachineClass %s cannot be used: %v", name, err),
		}
	}
	return class.Provider, nil
}

func classNotFound(namespace, name string) *Problem {
	return &Problem{
		Reason: v1alpha1.ReasonClassNotFound, React: UntilCredential,
		Message: fmt.Sprintf("MachineClass %s does not exist in namespace %s", name, namespace),
	}
}

// neverTried reports whether BeginCreation has not yet run for a machine: no create call can have been begun. Asked of a
// cached machine it may be out of date; BeginCreation is the one that knows.
func neverTried(m *v1alpha1.Machine) bool { return m.Status.LastOperation.Type == "" }

// changeMachine patches a machine with what change returns; nil means that there is nothing to do. Each patch carries the
// UID and the version of the object that change saw; when another writer was faster, the machine is read live and change
// is asked again. It returns the version that the machine has now, or ObjectGone.
func (a *Activities) changeMachine(ctx context.Context, in Read, change func(*v1alpha1.Machine) map[string]any) (string, error) {
	for range maxConflicts {
		m, _, err := a.machine(ctx, in)
		if err != nil {
			return "", err
		}
		if m == nil {
			return "", objectGone(in.Ref)
		}
		patch := change(m)
		if patch == nil {
			return m.ResourceVersion, nil
		}
		data, err := seen(patch, m)
		if err != nil {
			return "", err
		}
		m, err = a.Cluster.Client().MachineV1alpha1().Machines(in.Ref.Namespace).Patch(ctx, in.Ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
		switch {
		case err == nil:
			return m.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Live = true
		default:
			return "", writeError(in.Ref, err)
		}
	}
	return "", contended(in.Ref)
}

// seen encodes a merge patch that only applies to the object as it was read.
func seen(patch map[string]any, object metav1.Object) ([]byte, error) {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"] = object.GetUID()
	metadata["resourceVersion"] = object.GetResourceVersion()
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", object.GetName(), err)
	}
	return data, nil
}

func without(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
