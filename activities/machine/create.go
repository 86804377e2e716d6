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

// AddFinalizer adds Millwright's finalizer to a machine that lacks it, so that the object cannot vanish while its
// instance is being created. The result is the resource version of the machine.
func (a *Activities) AddFinalizer(ctx context.Context, in kube.ReadInput) (string, error) {
	return a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp == nil && !cache.HasFinalizer(m.Finalizers) {
			m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerMachine)
		}
	})
}

// InstanceRecord is the result of CreateInstance, to be written to the machine.
type InstanceRecord struct {
	Read       kube.ReadInput
	ProviderID string
	NodeName   string // the node's name in the target cluster; empty without a target cluster
	// If Told is true, RecordInstance also writes the node name into the status, because no later report contains the
	// name.
	Told bool `json:",omitzero"`
	// Tokenless holds the resource versions of a class whose user data has no placeholder for a bootstrap token; empty:
	// unknown.
	Tokenless string `json:",omitzero"`
}

// RecordResult is the result of RecordInstance.
type RecordResult struct {
	Version string // resource version of the machine
	// Stale is why the instance cannot be used: another instance has a node with the same name. If Stale is set,
	// nothing was written.
	Stale string
}

// RecordInstance writes spec.providerID, the label "node" and, if missing, the default deletion priority to the
// machine. The node name is also written into the status in three cases: Told is set, the status has another name, or
// the name is not a valid label value. If RecordInstance does not write the node name into the status, a later report
// about the instance does. An instance is not recorded if another instance has a node with the same name, because the
// new instance's kubelet would take over that node.
func (a *Activities) RecordInstance(ctx context.Context, in InstanceRecord) (RecordResult, error) {
	var stale string
	told := in.Told || !isValidLabelValue(in.NodeName)
	version, err := a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		told = told || m.Status.NodeName != "" && m.Status.NodeName != in.NodeName
		if in.Tokenless != "" {
			a.Kube.ClassesWithoutToken.Add(m.Namespace, m.Spec.Class.Name, in.Tokenless)
		}
		if stale = a.staleNodeReason(m, in); stale != "" {
			return
		}
		m.Spec.ProviderID = in.ProviderID
		switch {
		case in.NodeName == "":
		case isValidLabelValue(in.NodeName):
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
	return RecordResult{Version: version, Stale: stale}, err
}

func isValidLabelValue(name string) bool { return len(validation.IsValidLabelValue(name)) == 0 }

// recordNodeName writes the name of a machine's node into the machine's status. The result is the resource version of
// the machine.
func (a *Activities) recordNodeName(ctx context.Context, in InstanceRecord) (string, error) {
	in.Read.Live = true // the caches may lack the previous write
	_, after, err := kube.WriteStatus(
		ctx,
		in.Read,
		a.Kube.Machines(in.Read.Ref.Namespace),
		func(read kube.ReadInput) (m, changed *v1alpha1.Machine, err error) {
			m, _, err = a.Kube.ReadMachine(ctx, read)
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

// staleNodeReason returns why the node with the new instance's node name belongs to another instance, or "" if the node
// does not. A node without a provider ID belongs to the machine if it has the machine's name or is not older than the
// machine. The reason is that a cloud may answer after the node has joined. If the machine already had a provider ID, a
// node without a provider ID may also be older than the machine.
func (a *Activities) staleNodeReason(m *v1alpha1.Machine, in InstanceRecord) string {
	node, found := a.Kube.Cluster.Target(m.Namespace).Node(in.NodeName)
	if !found {
		return ""
	}
	recorded := m.DeepCopy()
	recorded.Spec.ProviderID, recorded.Status.NodeName = in.ProviderID, in.NodeName
	owner := a.Kube.Cluster.OwnerOfNode(recorded, node)
	switch {
	case owner.HasOwnerKind(ownership.OwnerOther), owner.HasOwnerKind(ownership.OwnerNone):
		return "VM using old node obj: " + owner.Why
	case node.Spec.ProviderID == "" && m.Spec.ProviderID == "" && node.Name != m.Name &&
		node.CreationTimestamp.Time.Before(m.CreationTimestamp.Time):
		return fmt.Sprintf("VM using old node obj: node %s is older than machine %s", node.Name, m.Name)
	default:
		return ""
	}
}

// FinishJoin deletes the bootstrap tokens of a machine whose node has joined or whose creation has failed, unless the
// machine needed no token. FinishJoin returns the resource version of the machine. If the machine is gone, FinishJoin
// fails with ObjectGone. The activity is idempotent.
func (a *Activities) FinishJoin(ctx context.Context, in kube.ReadInput) (string, error) {
	m, _, err := a.Kube.ReadMachine(ctx, in)
	if err != nil {
		return "", err
	}
	if m == nil || mayHaveTokens(m) {
		if err := a.RevokeTokens(ctx, in.Ref); err != nil {
			return "", err
		}
	}
	if m == nil {
		return "", kube.ObjectGoneError(in.Ref)
	}
	return m.ResourceVersion, nil
}

// mayHaveTokens reports whether an attempt to create the machine's instance may have created a bootstrap token.
func mayHaveTokens(m *v1alpha1.Machine) bool {
	return m.Status.CreationIntent == nil || !m.Status.CreationIntent.WithoutToken
}

// ReleaseInput names the machine whose finalizer is removed.
type ReleaseInput struct {
	kube.ReadInput
	Hurry bool // a person requires the release even if the target cluster does not answer
}

// ReleaseMachine removes Millwright's finalizer from a machine that is being deleted, as the last step of the deletion.
// If the machine never joined, ReleaseMachine first deletes the machine's bootstrap tokens. If Hurry is set, the
// release does not wait for tokens that cannot be deleted; they expire by themselves.
func (a *Activities) ReleaseMachine(ctx context.Context, in ReleaseInput) (string, error) {
	m, _, err := a.Kube.ReadMachine(ctx, in.ReadInput)
	if err != nil {
		return "", err
	}
	if m != nil && m.DeletionTimestamp != nil && !machine.IsJoinRecorded(m) && mayHaveTokens(m) {
		if err := a.revokeTokensBeforeRelease(ctx, in); err != nil {
			return "", err
		}
	}
	return a.Kube.ChangeMachine(ctx, in.ReadInput, func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp != nil {
			m.Finalizers = kube.WithoutItem(m.Finalizers, v1alpha1.FinalizerMachine)
		}
	})
}

// revokeTokensBeforeRelease deletes a machine's bootstrap tokens. If Hurry is set, the deletion times out after
// TargetReadTimeout.
func (a *Activities) revokeTokensBeforeRelease(ctx context.Context, in ReleaseInput) error {
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

// CreateIntentResult is the result of RecordCreateIntent.
type CreateIntentResult struct {
	Version    string            // resource version of the machine
	NeverTried bool              // no create call was made before this record
	RunID      string            // the run that wrote the record
	Reported   kube.ReportResult `json:",omitzero"` // the machine's status after the write
}

// RecordCreateIntent records in the machine's status that a create call may be in progress from now on. The write
// requires the resource version that was read, so only one caller gets NeverTried = true, even if the caches are stale.
// A repeated call returns NeverTried = false, which is the safe answer. NeverTried is also false for a machine that is
// older than kube.MaxNewMachineAge, because a restored API server may have lost the record of a create call.
func (a *Activities) RecordCreateIntent(ctx context.Context, in Report) (CreateIntentResult, error) {
	in.runID = activity.GetInfo(ctx).WorkflowExecution.RunID
	before, after, err := a.writeReport(ctx, in)
	if err != nil {
		return CreateIntentResult{}, err
	}
	isNew := in.Read.TimeToRecord(ctx).Sub(before.CreationTimestamp.Time) < kube.MaxNewMachineAge
	return CreateIntentResult{
		Version:    after.ResourceVersion,
		NeverTried: wasCreationNeverTried(before) && isNew,
		RunID:      in.runID,
		Reported:   newReportResult(after),
	}, nil
}
