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
	"millwright/decide/health"
	"millwright/observe"
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
	Phase          string            // empty keeps the phase
	Operation      *LastOperation    // nil keeps it
	Step           *Step             // nil clears it: the machine is calm
	Conditions     []Condition       // of ours; those that are not named keep what they say
	LastKnownState string            // empty keeps it
	Clock          *health.Clock     // of health; nil keeps it
	InstanceGone   bool              // the provider says that the instance is gone; false keeps what is known
	Stopped        bool              // the creation waits for a person: its clock stands still until a report says false
	Addresses      []Address         // of an instance without a node; nil keeps them
	PreserveUntil  time.Time         // the machine fails and is preserved from now on; zero keeps what is known
	Deletion       *DeletionProgress // how far the deletion has come; nil keeps what is known
	Drain          *StayingDrain     // of the node of a machine that is to stay; nil keeps what is known
	Event          *Event            // nil tells nothing; told only when the status changed
	Before         *Event            // told before it
}

// Address is one address of an instance.
type Address struct {
	Type    string
	Address string
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
			a.tell(written, in.Before)
			a.tell(written, in.Event)
			if result, took := ended(m, written); result != "" {
				a.Metrics.drained(result, took)
			}
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
	if status.CurrentStatus.PreserveExpiryTime == nil && !in.PreserveUntil.IsZero() {
		status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(in.PreserveUntil).Rfc3339Copy())
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
	status.CreationStopped = creationStopped(status.CreationStopped, in.Stopped, now)
	status.Health = healthClock(status.Health, in, now)
	status.Deletion = in.Deletion.applied(status.Deletion, now)
	status.Drain = in.Drain.applied(status.Drain, now)
	status.Addresses = addresses(status.Addresses, in.Addresses)
	status.CurrentOperation = operation(in.Step)
	status.Conditions = mergeConditions(status.Conditions, node, in.Conditions, now)
}

// creationStopped starts or stops the clock of the time that does not count for the creation timeout.
func creationStopped(was *v1alpha1.CreationStopped, stopped bool, now metav1.Time) *v1alpha1.CreationStopped {
	running := was != nil && was.Since != nil
	switch {
	case stopped == running:
		return was
	case stopped:
		s := v1alpha1.CreationStopped{Since: &now}
		if was != nil {
			s.Total = was.Total
		}
		return &s
	default:
		return &v1alpha1.CreationStopped{Total: metav1.Duration{Duration: was.Total.Duration + max(now.Sub(was.Since.Time), 0)}}
	}
}

func healthClock(was *v1alpha1.MachineHealth, in MachineReport, now metav1.Time) *v1alpha1.MachineHealth {
	if in.Clock == nil && !in.InstanceGone {
		return was
	}
	h := v1alpha1.MachineHealth{}
	if was != nil {
		h = *was
	}
	if c := in.Clock; c != nil {
		h.UnhealthySince, h.RecoveredAt, h.InstanceGoneAt = metav1.NewTime(c.UnhealthySince).Rfc3339Copy(), nil, nil
		if !c.RecoveredAt.IsZero() {
			h.RecoveredAt = new(metav1.NewTime(c.RecoveredAt).Rfc3339Copy())
		}
	}
	if in.InstanceGone && h.InstanceGoneAt == nil {
		h.InstanceGoneAt = &now
	}
	return &h
}

// addresses returns what the provider told, sorted and each once.
func addresses(was []corev1.NodeAddress, told []Address) []corev1.NodeAddress {
	if told == nil {
		return was
	}
	var list []corev1.NodeAddress
	for _, a := range told {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeAddressType(a.Type), Address: a.Address})
	}
	slices.SortFunc(list, func(x, y corev1.NodeAddress) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Address, y.Address))
	})
	return slices.Compact(list)
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
	isOurs := func(c corev1.NodeCondition) bool { return v1alpha1.IsReservedConditionType(c.Type) }
	copied := slices.DeleteFunc(slices.Clone(old), isOurs)
	if node != nil {
		copied = observe.CopiedConditions(node)
	}
	ours := slices.DeleteFunc(slices.Clone(old), func(c corev1.NodeCondition) bool { return !isOurs(c) })
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
func summary(machines []*v1alpha1.Machine) []v1alpha1.MachineSummary {
	var failed []v1alpha1.MachineSummary
	for _, m := range machines {
		if m.Status.LastOperation.State == v1alpha1.MachineStateFailed {
			failed = append(failed, v1alpha1.MachineSummary{
				Name: m.Name, ProviderID: m.Spec.ProviderID, LastOperation: m.Status.LastOperation, OwnerRef: controllerName(m),
			})
		}
	}
	slices.SortFunc(failed, func(x, y v1alpha1.MachineSummary) int { return cmp.Compare(x.Name, y.Name) })
	return failed
}

// controllerName returns the name of what controls an object; empty when nothing does.
func controllerName(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.Name
	}
	return ""
}

func selectorText(selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Sprintf("invalid: %v", err) // admission refuses such a selector
	}
	return s.String()
}
