package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// AddFinalizer puts our finalizer on a machine that lacks it, so that nothing is created for an object that can vanish.
// It returns the version to wait for.
func (a *Activities) AddFinalizer(ctx context.Context, in kube.Read) (string, error) {
	return a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		if m.DeletionTimestamp == nil && !cache.HasFinalizer(m.Finalizers) {
			m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerMachine)
		}
	})
}

// Recorded is what CreateInstance learned, to be written to the machine.
type Recorded struct {
	Read       kube.Read
	ProviderID string
	NodeName   string // of the target cluster; empty where there is none
}

// Record says what RecordInstance found.
type Record struct {
	Version string // to wait for
	Stale   string // why the instance cannot be used: its node's name belongs to another one; nothing was written then
}

// RecordInstance writes the instance's names to the machine: spec.providerID and the label node, and the default deletion
// priority where there is none. An instance whose node's name belongs to the node of another instance is not recorded: its
// kubelet would take that node's place.
func (a *Activities) RecordInstance(ctx context.Context, in Recorded) (Record, error) {
	var stale string
	version, err := a.Kube.ChangeMachine(ctx, in.Read, func(m *v1alpha1.Machine) {
		if stale = a.stale(m, in); stale != "" {
			return
		}
		m.Spec.ProviderID = in.ProviderID
		if in.NodeName != "" {
			m.Labels = labels.Merge(m.Labels, labels.Set{v1alpha1.LabelNode: in.NodeName})
		}
		if _, prioritised := m.Annotations[v1alpha1.AnnotationMachinePriority]; !prioritised {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachinePriority, fmt.Sprint(v1alpha1.PriorityDefault))
		}
	})
	return Record{Version: version, Stale: stale}, err
}

// stale says why the name of a new instance's node is another's. A node that says which instance it is, is believed. One
// that does not say is the machine's own if it has its name, or is no older; clouds may answer after the node has joined.
func (a *Activities) stale(m *v1alpha1.Machine, in Recorded) string {
	node, found := a.Kube.Cluster.Node(in.NodeName)
	switch {
	case !found, node.Spec.ProviderID == in.ProviderID:
		return ""
	case node.Spec.ProviderID != "":
		return fmt.Sprintf("VM using old node obj: node %s belongs to instance %s", node.Name, node.Spec.ProviderID)
	case node.Name != m.Name && node.CreationTimestamp.Time.Before(m.CreationTimestamp.Time):
		return fmt.Sprintf("VM using old node obj: node %s is older than machine %s", node.Name, m.Name)
	default:
		return ""
	}
}

// FinishJoin tidies up when a machine's node has joined: the bootstrap tokens go, and the annotation says how long it took.
// It returns the version to wait for.
func (a *Activities) FinishJoin(ctx context.Context, in kube.Read) (string, error) {
	if err := a.RevokeTokens(ctx, in.Ref); err != nil {
		return "", err
	}
	return a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		if _, told := m.Annotations[v1alpha1.AnnotationMachineJoinDuration]; !told && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			took := m.Status.CurrentStatus.LastUpdateTime.Sub(m.CreationTimestamp.Time).Round(time.Second)
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineJoinDuration, took.String())
		}
	})
}

// Releasing names the machine that may go.
type Releasing struct {
	kube.Read
	Hurry bool // a person wants it to go, whether its target cluster answers or not
}

// ReleaseMachine takes our finalizer off a machine that is being deleted: the last step of its life. What was made for a
// join that never happened goes with it; in a hurry, where that is not possible, it is left to expire.
func (a *Activities) ReleaseMachine(ctx context.Context, in Releasing) (string, error) {
	m, _, err := a.Kube.Machine(ctx, in.Read)
	if err != nil {
		return "", err
	}
	if m != nil && m.DeletionTimestamp != nil && m.Annotations[v1alpha1.AnnotationMachineJoinDuration] == "" {
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

// revoke removes a machine's bootstrap tokens. In a hurry it tries for a moment.
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

// Begun says that a machine's creation is on record.
type Begun struct {
	Version    string // to wait for
	NeverTried bool   // this call put it on record: no create call was begun before
}

// RecordCreateIntent puts on record, in the machine's status, that a create call may be under way from now on. The write
// carries the version that was read, so that NeverTried is true for one caller only, whatever the caches say. Run again
// it returns false, the safe answer.
func (a *Activities) RecordCreateIntent(ctx context.Context, in Report) (Begun, error) {
	mark := *cmp.Or(in.Operation, &LastOperation{})
	mark.Type = cmp.Or(mark.Type, string(v1alpha1.MachineOperationCreate)) // what neverTried looks for
	in.Operation = &mark
	for range kube.MaxConflicts {
		m, live, err := a.Kube.Machine(ctx, in.Read)
		if err != nil {
			return Begun{}, err
		}
		if m == nil {
			return Begun{}, kube.ObjectGone(in.Read.Ref)
		}
		if !neverTried(m) {
			in.Read.Live = live
			version, err := a.ReportMachine(ctx, in)
			return Begun{Version: version}, err
		}
		m = m.DeepCopy()
		applyReport(m, nil, in, metav1.Now())
		m, err = a.Kube.Cluster.Client().MachineV1alpha1().Machines(m.Namespace).UpdateStatus(ctx, m, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return Begun{Version: m.ResourceVersion, NeverTried: true}, nil
		case apierrors.IsConflict(err):
			in.Read.Live = true
		default:
			return Begun{}, kube.WriteError(in.Read.Ref, err)
		}
	}
	return Begun{}, kube.Contended(in.Read.Ref)
}
