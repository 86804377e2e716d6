package activities

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
)

// Step is the step in flight, as status.currentOperation shows it.
type Step struct {
	WorkflowID string
	Name       string
	Since      time.Time
	Deadline   time.Time // zero means none
	LastError  string
}

// Event is told to people through the events of the object.
type Event struct {
	Warning bool
	Reason  string
	Message string
}

// LastOperation is status.lastOperation as MCM's users know it; its time is that of the write.
type LastOperation struct {
	Type        string
	State       string
	Description string
	ErrorCode   string
}

// Condition is a condition of one of the types that are reserved for us.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
}

// MachineReport is what a Machine's status should say. The node's conditions are copied with every report.
type MachineReport struct {
	Read           Read
	Phase          string         // empty keeps the phase
	Operation      *LastOperation // nil keeps it
	Step           *Step          // nil clears it: the machine is calm
	Conditions     []Condition    // of ours; those that are not named keep what they say
	LastKnownState string         // empty keeps it
	Event          *Event         // nil tells nothing; told only when the status changed
}

// ReportMachine writes a Machine's status. Where the status says it already, nothing is written. It returns the version to
// wait for, or ObjectGone.
func (a *Activities) ReportMachine(ctx context.Context, in MachineReport) (string, error) {
	for range maxConflicts {
		m, live, err := a.machine(ctx, in.Read)
		if err != nil {
			return "", err
		}
		if m == nil {
			return "", objectGone(in.Read.Ref)
		}
		node, err := a.node(ctx, m, live)
		if err != nil {
			return "", err
		}
		changed := m.DeepCopy()
		applyReport(changed, node, in, metav1.Now())
		if equality.Semantic.DeepEqual(changed.Status, m.Status) {
			return m.ResourceVersion, nil
		}
		written, err := a.Cluster.Client().MachineV1alpha1().Machines(m.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		switch {
		case err == nil:
			a.tell(written, in.Event)
			return written.ResourceVersion, nil
		case apierrors.IsConflict(err):
			in.Read.Live = true
		default:
			return "", writeError(in.Read.Ref, err)
		}
	}
	return "", contended(in.Read.Ref)
}

// applyReport changes the status as the report wants it. Times move only with what they stand for.
func applyReport(m *v1alpha1.Machine, node *corev1.Node, in MachineReport, now metav1.Time) {
	status := &m.Status
	if in.Phase != "" && string(status.CurrentStatus.Phase) != in.Phase {
		status.CurrentStatus.Phase = v1alpha1.MachinePhase(in.Phase)
		status.CurrentStatus.LastUpdateTime = now
		status.CurrentStatus.TimeoutActive = in.Phase == string(v1alpha1.MachinePending) || in.Phase == string(v1alpha1.MachineUnknown)
	}
	if o := in.Operation; o != nil {
		last := v1alpha1.LastOperation{
			Description: o.Description, ErrorCode: o.ErrorCode,
			State: v1alpha1.MachineState(o.State), Type: v1alpha1.MachineOperationType(o.Type),
			LastUpdateTime: status.LastOperation.LastUpdateTime,
		}
		if last != status.LastOperation {
			last.LastUpdateTime = now
		}
		status.LastOperation = last
	}
	if in.LastKnownState != "" {
		status.LastKnownState = in.LastKnownState
	}
	status.CurrentOperation = operation(in.Step)
	status.Conditions = mergeConditions(status.Conditions, node, in.Conditions, now)
}

// operation converts a step to its form in the status.
func operation(s *Step) *v1alpha1.Operation {
	if s == nil {
		return nil
	}
	o := &v1alpha1.Operation{WorkflowID: s.WorkflowID, Step: s.Name, Since: metav1.NewTime(s.Since).Rfc3339Copy(), LastError: s.LastError}
	if !s.Deadline.IsZero() {
		deadline := metav1.NewTime(s.Deadline).Rfc3339Copy()
		o.Deadline = &deadline
	}
	return o
}

// mergeConditions returns the node's conditions as they are, with their messages, and ours behind them. Without a node the
// last copy stays.
func mergeConditions(old []corev1.NodeCondition, node *corev1.Node, own []Condition, now metav1.Time) []corev1.NodeCondition {
	reserved := func(c corev1.NodeCondition) bool { return v1alpha1.IsReservedConditionType(c.Type) }
	copied := slices.DeleteFunc(slices.Clone(old), reserved)
	if node != nil {
		copied = slices.DeleteFunc(slices.Clone(node.Status.Conditions), reserved)
		for i := range copied {
			copied[i].LastHeartbeatTime = metav1.Time{} // a heartbeat is no news
		}
	}
	ours := slices.DeleteFunc(slices.Clone(old), func(c corev1.NodeCondition) bool { return !reserved(c) })
	for _, c := range own {
		ours = setCondition(ours, c, now)
	}
	return append(copied, ours...)
}

func setCondition(list []corev1.NodeCondition, c Condition, now metav1.Time) []corev1.NodeCondition {
	status := corev1.ConditionFalse
	if c.True {
		status = corev1.ConditionTrue
	}
	entry := corev1.NodeCondition{
		Type: corev1.NodeConditionType(c.Type), Status: status, Reason: c.Reason, Message: c.Message, LastTransitionTime: now,
	}
	for i, o := range list {
		if o.Type != entry.Type {
			continue
		}
		if o.Status == entry.Status {
			entry.LastTransitionTime = o.LastTransitionTime
		}
		list[i] = entry
		return list
	}
	return append(list, entry)
}

// tell records an event on an object, with the object as it stands in the API server.
func (a *Activities) tell(object runtime.Object, e *Event) {
	if e == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	a.Recorder.Event(object, kind, e.Reason, e.Message)
}

// summary lists machines whose last operation failed, as dashboards expect it.
func summary(machines []*v1alpha1.Machine, owner string) []v1alpha1.MachineSummary {
	var failed []v1alpha1.MachineSummary
	for _, m := range machines {
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed {
			failed = append(failed, v1alpha1.MachineSummary{
				Name: m.Name, ProviderID: m.Spec.ProviderID, LastOperation: m.Status.LastOperation, OwnerRef: owner,
			})
		}
	}
	slices.SortFunc(failed, func(x, y v1alpha1.MachineSummary) int { return cmp.Compare(x.Name, y.Name) })
	return failed
}

func selectorText(selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Sprintf("invalid: %v", err) // admission refuses such a selector
	}
	return s.String()
}
