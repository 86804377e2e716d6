package machine

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/explain"
	"millwright/decide/health"
	"millwright/decide/list"
	"millwright/decide/ownership"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// LastOperation is status.lastOperation, as in MCM. The time of the write becomes lastUpdateTime.
type LastOperation struct {
	Type        string
	State       string
	Description string
	ErrorCode   string
}

// Condition is a condition of one of the types that are reserved for Millwright.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
}

// Report holds changes of a Machine's status. Every report also copies the node's conditions.
type Report struct {
	Read           kube.ReadInput
	Phase          string                 // empty keeps the phase
	Operation      *LastOperation         // nil keeps the last operation
	Step           *kube.Step             // nil clears the current operation: the machine is idle
	Conditions     []Condition            // Millwright's conditions; conditions that are not listed stay
	LastKnownState string                 // empty keeps the state
	NodeName       string                 // the name that the provider reported; empty keeps the name
	Clock          *health.UnhealthyTimes // nil keeps the recorded times of the node's health
	InstanceGone   bool                   // the provider reports that the instance is gone; false keeps the recorded value
	// Stopped is true if the creation waits for a person. The creation timeout stops until a report has Stopped =
	// false.
	Stopped       bool
	Addresses     []kube.Address    // addresses of an instance without a node; nil keeps the addresses
	Joined        bool              // the node has joined; recorded once, unless an annotation already records the join
	PreserveUntil time.Time         // end of the preservation of a failed machine; zero keeps the recorded end
	Deletion      *DeletionProgress // nil keeps the recorded progress
	Drain         *DrainProgress    // drain of a node whose machine is not being deleted; nil keeps the recorded drain
	Event         *kube.Event       // recorded if the status changes; nil: no event

	// WithoutToken is true if this attempt to create the instance has no bootstrap token. Only RecordCreateIntent reads
	// WithoutToken.
	WithoutToken bool `json:",omitzero"`

	runID string // ID of the run that will make a create call; set only by RecordCreateIntent
}

// ReportMachine writes the status of a Machine. ReportMachine writes nothing if the status is up to date, or if the
// report is about the creation and the creation has already ended. The result is the status after the write. If the
// machine is gone, ReportMachine fails with ObjectGone.
func (a *Activities) ReportMachine(ctx context.Context, in Report) (kube.ReportResult, error) {
	_, after, err := a.writeReport(ctx, in)
	if err != nil {
		return kube.ReportResult{}, err
	}
	return newReportResult(after), nil
}

// newReportResult returns the parts of a machine's status that a workflow needs after a report.
func newReportResult(m *v1alpha1.Machine) kube.ReportResult {
	r := kube.ReportResult{Version: m.ResourceVersion}
	if o := m.Status.CurrentOperation; o != nil {
		r.WaitsFor, r.BlockedBy = o.WaitsFor, o.BlockedBy
	}
	return r
}

// writeReport writes the status of a Machine and returns the machine before and after the write.
func (a *Activities) writeReport(ctx context.Context, in Report) (before, after *v1alpha1.Machine, err error) {
	machines, stamp := a.Kube.Machines(in.Read.Ref.Namespace), in.Read.TimeToRecord(ctx)
	before, after, err = kube.WriteStatus(
		ctx,
		in.Read,
		machines,
		func(read kube.ReadInput) (m, changed *v1alpha1.Machine, err error) {
			m, live, err := a.Kube.ReadMachine(ctx, read)
			if err != nil || m == nil {
				return nil, nil, err
			}
			// the status must say why a machine waits for its target, so a target that is not connected is not asked
			ready := a.Kube.Cluster.Target(m.Namespace).Status().State == cache.TargetReady
			node, err := a.Kube.ReadNode(ctx, m, live && ready)
			if err != nil {
				return nil, nil, err
			}
			if isReportOutdated(m, in) {
				return m, m, nil
			}
			changed = m.DeepCopy()
			changed.Status.NodeName = cmp.Or(in.NodeName, m.Status.NodeName)
			node = a.nodeForReport(changed, node)
			applyReport(changed, node, in, stamp)
			setWaitExplanation(changed, a.Kube.Cluster.ClassOfMachine(m), stamp)
			if equality.Semantic.DeepEqual(changed.Status, m.Status) {
				return m, m, nil
			}
			return m, changed, nil
		},
	)
	// the API server refused the status write, so only an event can report the refusal
	if refused, is := kube.FailureOfType(err, kube.FailureTypeRefused); is {
		if m, found := a.Kube.Cluster.Machine(in.Read.Ref.Key()); found && string(m.UID) == in.Read.Ref.UID {
			a.Kube.RecordEvent(
				m,
				&kube.Event{Warning: true, Reason: vocabulary.BlockedByRefusedWrite, Message: refused.Message()},
			)
		}
	}
	if err != nil || after == before {
		return before, after, err
	}
	a.Kube.RecordEvent(after, in.Event)
	if result, took := EndedDrainResult(before, after, stamp); result != "" {
		a.Kube.Metrics.CountDrain(result, took)
	}
	return before, after, nil
}

// nodeForReport returns the node that a machine names; nil if the node belongs to another machine or to no machine. If
// the node provably belongs to the machine, nodeForReport also puts the node's name into the machine's status.
func (a *Activities) nodeForReport(m *v1alpha1.Machine, node *corev1.Node) *corev1.Node {
	if node == nil {
		return nil
	}
	switch a.Kube.Cluster.OwnerOfNode(m, node).Whose {
	case ownership.OwnerSelf:
		m.Status.NodeName = node.Name
	case ownership.OwnerInDoubt:
	default:
		return nil
	}
	return node
}

// isReportOutdated reports whether a report has the phase Pending although the machine's creation has already ended.
// This happens if a worker wrote a later status and died before the workflow received the result.
func isReportOutdated(m *v1alpha1.Machine, in Report) bool {
	switch m.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineAvailable:
		return false
	default:
		return in.Phase == vocabulary.PhasePending
	}
}

// applyReport changes the status according to the report. A timestamp changes only when its value changes. No timestamp
// is before the machine's creation timestamp, although the API server's clock may be slightly ahead of Temporal's
// clock.
func applyReport(m *v1alpha1.Machine, node *corev1.Node, in Report, stamp time.Time) {
	status, now := &m.Status, metav1.NewTime(phrase.LaterTime(stamp, m.CreationTimestamp.Time))
	if in.Phase != "" && string(status.CurrentStatus.Phase) != in.Phase {
		status.CurrentStatus.Phase = v1alpha1.MachinePhase(in.Phase)
		status.CurrentStatus.LastUpdateTime = now
		status.CurrentStatus.TimeoutActive = in.Phase == string(v1alpha1.MachinePending) ||
			in.Phase == string(v1alpha1.MachineUnknown)
	}
	if status.CurrentStatus.PreserveExpiryTime == nil && !in.PreserveUntil.IsZero() {
		status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(in.PreserveUntil).Rfc3339Copy())
	}
	status.CreationIntent = creationIntentAfterReport(m, in, now)
	if o := in.Operation; o != nil {
		last := v1alpha1.LastOperation{
			Description: phrase.TruncateMessage(o.Description), ErrorCode: o.ErrorCode,
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
	if in.Joined && !machine.IsJoinRecorded(m) {
		status.JoinedAt = &now
	}
	status.CreationStopped = creationStoppedAfterReport(status.CreationStopped, in.Stopped, now)
	status.Health = healthAfterReport(status.Health, in, now)
	status.Deletion = in.Deletion.applyToDeletion(status.Deletion, now)
	if status.Deletion != nil {
		status.Deletion.Queued = in.Step != nil && in.Step.Name == vocabulary.StepQueuedForDrain
	}
	status.Drain = in.Drain.applyToDrain(status.Drain, now)
	status.Addresses = sortedAddresses(status.Addresses, in.Addresses)
	status.CurrentOperation = kube.OperationOfStep(in.Step)
	status.Conditions = mergeConditions(
		status.Conditions,
		node,
		withClassKindIgnoredMessage(in.Conditions, m.Spec.Class),
		now,
	)
}

// CopyWithReport returns a copy of a machine after a report, for machines without a class. The conditions of the node
// are not copied.
func CopyWithReport(m *v1alpha1.Machine, in Report, stamp time.Time) *v1alpha1.Machine {
	m = m.DeepCopy()
	applyReport(m, nil, in, stamp)
	setWaitExplanation(m, nil, stamp)
	return m
}

// setWaitExplanation writes into the current operation of a machine what the machine waits for. If the machine is
// blocked, setWaitExplanation also writes the condition Blocked. class is the machine's class; nil: the machine has no
// class.
func setWaitExplanation(m *v1alpha1.Machine, class *v1alpha1.MachineClass, now time.Time) {
	s, operation := &m.Status, m.Status.CurrentOperation
	s.Conditions = slices.DeleteFunc(
		s.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.MachineBlocked },
	)
	if operation == nil {
		return
	}
	w := machine.ExplanationFacts(m, class, now).CurrentWait()
	operation.WaitsFor, operation.Summary = phrase.TruncateMessage(w.Sentence(now)), w.ShortText(now)
	operation.BlockedBy = w.Blockers
	operation.Waits = machine.StatusWaits([]explain.GroupedWait{{WaitState: w}})
	if w.IsBlocked() {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{
			Type:               v1alpha1.MachineBlocked,
			Status:             corev1.ConditionTrue,
			Reason:             explain.ReasonOfBlocker(w.Blockers[0]),
			Message:            operation.WaitsFor,
			LastTransitionTime: operation.Since,
		})
	}
}

// withClassKindIgnoredMessage returns the conditions of a report. A class reference may name a kind, which has no
// effect. If the class reference names a kind, the message of a true condition ClassReady says that the kind is
// ignored.
func withClassKindIgnoredMessage(conditions []Condition, class v1alpha1.ClassSpec) []Condition {
	ignored := kube.IgnoredKindMessage(class)
	return list.Map(conditions, func(c Condition) Condition {
		if c.Type == vocabulary.ConditionClassReady && c.True && ignored != "" {
			c.Message += "; " + ignored
		}
		return c
	})
}

// creationIntentAfterReport records the first create call. If a lastOperation is written before any create call,
// creationIntentAfterReport records an empty intent, which means that no create call was made.
func creationIntentAfterReport(m *v1alpha1.Machine, in Report, now metav1.Time) *v1alpha1.CreationIntent {
	was := m.Status.CreationIntent
	switch {
	case in.runID != "" && (was == nil || was.RunID == ""):
		return &v1alpha1.CreationIntent{RunID: in.runID, Time: &now, WithoutToken: in.WithoutToken}
	// the earlier attempts had no token, but the class now needs one
	case in.runID != "" && was.WithoutToken && !in.WithoutToken:
		return &v1alpha1.CreationIntent{RunID: was.RunID, Time: was.Time}
	case was == nil && in.Operation != nil && wasCreationNeverTried(m):
		return &v1alpha1.CreationIntent{}
	default:
		return was
	}
}

// creationStoppedAfterReport stops or resumes the creation timeout.
func creationStoppedAfterReport(
	was *v1alpha1.CreationStopped,
	stopped bool,
	now metav1.Time,
) *v1alpha1.CreationStopped {
	s := v1alpha1.CreationStopped{}
	if was != nil {
		s = *was
	}
	switch {
	case stopped && s.Since == nil:
		s.Since = &now
	case !stopped && s.Since != nil:
		s.Total.Duration += max(now.Sub(s.Since.Time), 0)
		s.Since = nil
	default:
		return was
	}
	return &s
}

func healthAfterReport(was *v1alpha1.MachineHealth, in Report, now metav1.Time) *v1alpha1.MachineHealth {
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

// sortedAddresses returns the addresses that the provider reported, sorted and without duplicates.
func sortedAddresses(was []corev1.NodeAddress, reported []kube.Address) []corev1.NodeAddress {
	if reported == nil {
		return was
	}
	var list []corev1.NodeAddress
	for _, a := range reported {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeAddressType(a.Type), Address: a.Address})
	}
	slices.SortFunc(list, func(x, y corev1.NodeAddress) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Address, y.Address))
	})
	return slices.Compact(list)
}

// mergeConditions returns the node's conditions with their messages, followed by Millwright's conditions. Without a
// node, the previously copied conditions stay.
func mergeConditions(
	old []corev1.NodeCondition,
	node *corev1.Node,
	own []Condition,
	now metav1.Time,
) []corev1.NodeCondition {
	isOurs := func(c corev1.NodeCondition) bool { return v1alpha1.IsReservedConditionType(c.Type) }
	copied := slices.DeleteFunc(slices.Clone(old), isOurs)
	if node != nil {
		copied = machine.CopiedConditions(node)
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
		Type: corev1.NodeConditionType(
			c.Type,
		),
		Status:             status,
		Reason:             c.Reason,
		Message:            phrase.TruncateMessage(c.Message),
		LastTransitionTime: now,
	}
	was := cache.FindNodeCondition(list, entry.Type)
	if was == nil {
		return append(list, entry)
	}
	if was.Status == entry.Status {
		entry.LastTransitionTime = was.LastTransitionTime
	}
	*was = entry
	return list
}

// DeletionProgress holds a report's changes of a machine's deletion record. The stage never goes back, and a result
// never changes.
type DeletionProgress struct {
	Stage deletion.Stage // stage that begins; empty keeps the stage
	// Means is the new way of removing pods; empty keeps the present way. The timeout of the drain starts when a report
	// contains the first Means.
	Means      string
	Result     string   // result of the drain; empty keeps the result
	LeftBehind []string // pods that remain on the node
}

// applyToDeletion returns the deletion record after the report. A timestamp changes only when its value changes.
func (d *DeletionProgress) applyToDeletion(was *v1alpha1.MachineDeletion, now metav1.Time) *v1alpha1.MachineDeletion {
	if d == nil {
		return was
	}
	record := &v1alpha1.MachineDeletion{}
	if was != nil {
		record = was.DeepCopy()
	}
	recorded := deletion.Stage(record.Stage)
	if stage := deletion.LaterStage(recorded, d.Stage); stage != recorded {
		record.Stage, record.Since = v1alpha1.MachineDeletionStage(stage), now
	}
	if d.Means == "" && d.Result == "" {
		return record
	}
	if record.Drain == nil {
		record.Drain = &v1alpha1.MachineDrain{StartedAt: now}
	}
	recordDrainProgress(record.Drain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// recordDrainProgress records the progress of a drain. The record of a drain that has ended does not change.
func recordDrainProgress(drain *v1alpha1.MachineDrain, means, result string, left []string, now metav1.Time) {
	if drain.Result != "" {
		return
	}
	if means != "" && means != drain.Means {
		drain.Means, drain.MeansSince = means, &now
	}
	drain.Result, drain.LeftBehind = result, left
}

// DrainProgress holds a report's changes of the drain record of a machine that is not being deleted. A new purpose or
// occasion starts a new record.
type DrainProgress struct {
	Purpose    attention.DrainPurpose
	Means      string // as in DeletionProgress
	Result     string
	LeftBehind []string
}

func (d *DrainProgress) applyToDrain(was *v1alpha1.StayingDrain, now metav1.Time) *v1alpha1.StayingDrain {
	if d == nil {
		return was
	}
	purpose, occasion := v1alpha1.DrainPurpose(d.Purpose.For), metav1.NewTime(d.Purpose.Occasion).Rfc3339Copy()
	record := &v1alpha1.StayingDrain{
		Purpose:      purpose,
		Occasion:     occasion,
		MachineDrain: v1alpha1.MachineDrain{StartedAt: now},
	}
	if was != nil && was.Purpose == purpose && was.Occasion.Equal(&occasion) {
		record = was.DeepCopy()
	}
	recordDrainProgress(&record.MachineDrain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// EndedDrainResult returns the result and duration of a drain that this write ended; both are zero if no drain ended.
func EndedDrainResult(before, after *v1alpha1.Machine, now time.Time) (result string, took time.Duration) {
	of := func(m *v1alpha1.Machine) *v1alpha1.MachineDrain {
		switch s := m.Status; {
		case s.Deletion != nil:
			return s.Deletion.Drain
		case s.Drain != nil:
			return &s.Drain.MachineDrain
		default:
			return nil
		}
	}
	was, is := of(before), of(after)
	if is == nil || is.Result == "" || (was != nil && was.Result != "" && was.StartedAt.Equal(&is.StartedAt)) {
		return "", 0
	}
	return is.Result, now.Sub(is.StartedAt.Time)
}
