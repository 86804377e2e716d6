package machine

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// AddFinalizer adds our finalizer to a machine that lacks it, so that the object cannot vanish while its instance is
// created. It returns the version to wait for.
func (a *Activities) AddFinalizer(ctx context.Context, in kube.Read) (string, error) {
	return a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp == nil && !cache.HasFinalizer(m.Finalizers) {
			m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerMachine)
		}
	})
}

// Recorded is what CreateInstance returned, to be written to the machine.
type Recorded struct {
	Read       kube.Read
	ProviderID string
	NodeName   string // of the target cluster; empty where there is none
	// Told: the node name is written into the status at once, because it decides whose the node is, and no later report
	// has it.
	Told bool `json:",omitzero"`
	// versions of the class whose user data has no place for a bootstrap token; empty: not known
	Tokenless string `json:",omitzero"`
}

// Record is the result of RecordInstance.
type Record struct {
	Version string // to wait for
	// why the instance cannot be used: the node of that name belongs to another instance; then nothing was written
	Stale string
}

// RecordInstance writes the names of the instance to the machine: spec.providerID, the label node, and the default
// deletion priority if there is none. It writes the node name into the status too if Told is set, if the status has
// another name, or if the name cannot be the value of a label; otherwise the report about the instance does that. It
// does not record an instance whose node name belongs to the node of another instance, because the kubelet would take
// over that node.
func (a *Activities) RecordInstance(ctx context.Context, in Recorded) (Record, error) {
	var stale string
	told := in.Told || !isLabelValue(in.NodeName)
	version, err := a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		told = told || m.Status.NodeName != "" && m.Status.NodeName != in.NodeName
		if in.Tokenless != "" {
			a.Kube.ClassesWithoutToken.Learn(m.Namespace, m.Spec.Class.Name, in.Tokenless)
		}
		if stale = a.stale(m, in); stale != "" {
			return
		}
		m.Spec.ProviderID = in.ProviderID
		switch {
		case in.NodeName == "":
		case isLabelValue(in.NodeName):
			m.Labels = labels.Merge(m.Labels, labels.Set{v1alpha1.LabelNode: in.NodeName})
		default:
			delete(m.Labels, v1alpha1.LabelNode)
		}
		if _, prioritised := m.Annotations[v1alpha1.AnnotationMachinePriority]; !prioritised {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachinePriority, fmt.Sprint(v1alpha1.PriorityDefault))
		}
	})
	if err == nil && stale == "" && told && in.NodeName != "" {
		version, err = a.recordNodeName(ctx, in)
	}
	return Record{Version: version, Stale: stale}, err
}

func isLabelValue(name string) bool { return len(validation.IsValidLabelValue(name)) == 0 }

// recordNodeName writes the name of a machine's node into its status. It returns the version to wait for.
func (a *Activities) recordNodeName(ctx context.Context, in Recorded) (string, error) {
	in.Read.Live = true // the caches may not have the previous write yet
	_, after, err := kube.WriteStatus(
		ctx,
		in.Read,
		a.Kube.Machines(in.Read.Ref.Namespace),
		func(read kube.Read) (m, changed *v1alpha1.Machine, err error) {
			m, _, err = a.Kube.Machine(ctx, read)
			if err != nil || m == nil || m.Status.NodeName == in.NodeName {
				return m, m, err
			}
			changed = m.DeepCopy()
			changed.Status.NodeName = in.NodeName
			return m, changed, nil
		},
	)
	if err != nil {
		return "", err
	}
	return after.ResourceVersion, nil
}

// stale returns why the node with the name of a new instance's node belongs to another instance; empty when it does
// not. A node without provider ID belongs to the machine if the node has the machine's name or is no older than the
// machine: a cloud may answer after the node has joined. If the machine's provider ID was on record before, the node
// may also be older.
func (a *Activities) stale(m *v1alpha1.Machine, in Recorded) string {
	node, found := a.Kube.Cluster.Node(in.NodeName)
	if !found {
		return ""
	}
	recorded := m.DeepCopy()
	recorded.Spec.ProviderID, recorded.Status.NodeName = in.ProviderID, in.NodeName
	owner := a.Kube.Cluster.WhoseNode(recorded, node)
	switch {
	case owner.Is(ownership.Anothers), owner.Is(ownership.Nobodys):
		return "VM using old node obj: " + owner.Why
	case node.Spec.ProviderID == "" && m.Spec.ProviderID == "" && node.Name != m.Name &&
		node.CreationTimestamp.Time.Before(m.CreationTimestamp.Time):
		return fmt.Sprintf("VM using old node obj: node %s is older than machine %s", node.Name, m.Name)
	default:
		return ""
	}
}

// FinishJoin deletes the bootstrap tokens of a machine whose node has joined, or whose creation has failed, unless the
// machine needed none. It returns the version of the machine that it read, or ObjectGone. Running it twice is harmless.
func (a *Activities) FinishJoin(ctx context.Context, in kube.Read) (string, error) {
	m, _, err := a.Kube.Machine(ctx, in)
	if err != nil {
		return "", err
	}
	if m == nil || mayHaveTokens(m) {
		if err := a.RevokeTokens(ctx, in.Ref); err != nil {
			return "", err
		}
	}
	if m == nil {
		return "", kube.ObjectGone(in.Ref)
	}
	return m.ResourceVersion, nil
}

// mayHaveTokens reports whether an attempt to create the instance of a machine may have made a bootstrap token.
func mayHaveTokens(m *v1alpha1.Machine) bool {
	return m.Status.CreationIntent == nil || !m.Status.CreationIntent.WithoutToken
}

// Releasing names the machine whose finalizer is removed.
type Releasing struct {
	kube.Read
	Hurry bool // a person wants the release even if the target cluster does not answer
}

// ReleaseMachine removes our finalizer from a machine that is being deleted: the last step of its life. It also deletes
// the bootstrap tokens of a machine that never joined. In a hurry, tokens that cannot be deleted are left to expire.
func (a *Activities) ReleaseMachine(ctx context.Context, in Releasing) (string, error) {
	m, _, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return "", err
	}
	if m != nil && m.DeletionTimestamp != nil && !machine.IsJoinRecorded(m) && mayHaveTokens(m) {
		if err := a.revoke(ctx, in); err != nil {
			return "", err
		}
	}
	return a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp != nil {
			m.Finalizers = kube.Without(m.Finalizers, v1alpha1.FinalizerMachine)
		}
	})
}

// revoke deletes a machine's bootstrap tokens, in a hurry within TargetReadTimeout.
func (a *Activities) revoke(ctx context.Context, in Releasing) error {
	if !in.Hurry {
		return a.RevokeTokens(ctx, in.Ref)
	}
	bounded, cancel := context.WithTimeout(ctx, kube.TargetReadTimeout)
	defer cancel()
	if err := a.RevokeTokens(bounded, in.Ref); err != nil {
		activity.GetLogger(ctx).Warn("bootstrap tokens are left to expire", "machine", in.Ref.Key(), "error", err)
	}
	return ctx.Err()
}

// Begun says that the creation of a machine is on record.
type Begun struct {
	Version    string        // to wait for
	NeverTried bool          // this call recorded it: no create call was begun before
	RunID      string        // of the run that recorded it
	Reported   kube.Reported `json:",omitzero"` // what the status says now
}

// RecordCreateIntent records in the machine's status that a create call may be under way from now on. The write carries
// the version that was read, so that NeverTried is true for one caller only, however old the caches are. Run again, it
// returns false, the safe answer. It also returns false for a machine that is older than kube.NewMachineFor: an API
// server that was restored to an older state may have forgotten the record of a create call.
func (a *Activities) RecordCreateIntent(ctx context.Context, in Report) (Begun, error) {
	in.run = activity.GetInfo(ctx).WorkflowExecution.RunID
	before, after, err := a.report(ctx, in)
	if err != nil {
		return Begun{}, err
	}
	isNew := in.Read.Stamp(ctx).Sub(before.CreationTimestamp.Time) < kube.NewMachineFor
	return Begun{
		Version:    after.ResourceVersion,
		NeverTried: neverTried(before) && isNew,
		RunID:      in.run,
		Reported:   reported(after),
	}, nil
}
