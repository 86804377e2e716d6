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

// LastOperation is status.lastOperation, as users of MCM know it. Its lastUpdateTime is the time of the write.
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

// Report is what the status of a Machine should say. Every report also copies the node's conditions.
type Report struct {
	Read           kube.Read
	Phase          string         // empty keeps the phase
	Operation      *LastOperation // nil keeps it
	Step           *kube.Step     // nil clears it: the machine is calm
	Conditions     []Condition    // our own; those that are not named stay
	LastKnownState string         // empty keeps it
	NodeName       string         // as the provider told it; empty keeps it
	Clock          *health.Clock  // nil keeps it
	InstanceGone   bool           // the provider says that the instance is gone; false keeps what is recorded
	// the creation waits for a person: its timeout does not count until a report says false
	Stopped       bool
	Addresses     []kube.Address    // of an instance without a node; nil keeps them
	Joined        bool              // the node has joined: recorded once, and not if an annotation says it
	PreserveUntil time.Time         // the machine fails, and is preserved until then; zero keeps what is recorded
	Deletion      *DeletionProgress // nil keeps what is recorded
	Drain         *StayingDrain     // of the node of a machine that is not being deleted; nil keeps what is recorded
	Event         *kube.Event       // recorded if the status changed; nil: none

	// this attempt to create the instance has no bootstrap token; for RecordCreateIntent alone
	WithoutToken bool `json:",omitzero"`

	run string // ID of the run that is about to make a create call; set by RecordCreateIntent alone
}

// ReportMachine writes the status of a Machine. It writes nothing if the status says all of it already, or if the
// report is about the creation and the machine has left its creation. It returns what the status says then, or
// ObjectGone.
func (a *Activities) ReportMachine(ctx context.Context, in Report) (kube.Reported, error) {
	_, after, err := a.report(ctx, in)
	if err != nil {
		return kube.Reported{}, err
	}
	return reported(after), nil
}

// reported returns what the status of a machine says.
func reported(m *v1alpha1.Machine) kube.Reported {
	r := kube.Reported{Version: m.ResourceVersion}
	if o := m.Status.CurrentOperation; o != nil {
		r.WaitsFor, r.BlockedBy = o.WaitsFor, o.BlockedBy
	}
	return r
}

// report writes the status of a Machine and returns the machine before and after.
func (a *Activities) report(ctx context.Context, in Report) (before, after *v1alpha1.Machine, err error) {
	machines, stamp := a.Kube.Machines(in.Read.Ref.Namespace), in.Read.Stamp(ctx)
	before, after, err = kube.WriteStatus(
		ctx,
		in.Read,
		machines,
		func(read kube.Read) (m, changed *v1alpha1.Machine, err error) {
			m, live, err := a.Kube.Machine(ctx, read)
			if err != nil || m == nil {
				return nil, nil, err
			}
			node, err := a.Kube.Node(ctx, m, live)
			if err != nil {
				return nil, nil, err
			}
			if overtaken(m, in) {
				return m, m, nil
			}
			changed = m.DeepCopy()
			changed.Status.NodeName = cmp.Or(in.NodeName, m.Status.NodeName)
			node = a.named(changed, node)
			applyReport(changed, node, in, stamp)
			explained(changed, a.Kube.Cluster.ClassOf(m), stamp)
			if equality.Semantic.DeepEqual(changed.Status, m.Status) {
				return m, m, nil
			}
			return m, changed, nil
		},
	)
	if refused, is := kube.Failure(err, kube.TypeRefused); is { // the refused status cannot say it
		if m, found := a.Kube.Cluster.Machine(in.Read.Ref.Key()); found && string(m.UID) == in.Read.Ref.UID {
			a.Kube.RecordEvent(m, &kube.Event{Warning: true, Reason: vocabulary.BlockedRefused, Message: refused.Message()})
		}
	}
	if err != nil || after == before {
		return before, after, err
	}
	a.Kube.RecordEvent(after, in.Event)
	if result, took := DrainEnded(before, after, stamp); result != "" {
		a.Kube.Metrics.Drained(result, took)
	}
	return before, after, nil
}

// named returns the node that a machine names; nil if the node belongs to another machine or to none. If the node is
// proven to be the machine's, named also puts the node's name into the machine's status.
func (a *Activities) named(m *v1alpha1.Machine, node *corev1.Node) *corev1.Node {
	if node == nil {
		return nil
	}
	switch a.Kube.Cluster.WhoseNode(m, node).Whose {
	case ownership.Ours:
		m.Status.NodeName = node.Name
	case ownership.InDoubt:
	default:
		return nil
	}
	return node
}

// overtaken reports whether a machine has left its creation although the report says Pending: a worker that died after
// an earlier attempt had written more than the workflow knows.
func overtaken(m *v1alpha1.Machine, in Report) bool {
	switch m.Status.CurrentStatus.Phase {
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachineAvailable:
		return false
	default:
		return in.Phase == vocabulary.PhasePending
	}
}

// applyReport changes the status as the report says. A time changes only with the value that it belongs to. No time is
// before the creation timestamp of the machine: the API server's clock may be a little ahead of Temporal's.
func applyReport(m *v1alpha1.Machine, node *corev1.Node, in Report, stamp time.Time) {
	status, now := &m.Status, metav1.NewTime(phrase.Later(stamp, m.CreationTimestamp.Time))
	if in.Phase != "" && string(status.CurrentStatus.Phase) != in.Phase {
		status.CurrentStatus.Phase = v1alpha1.MachinePhase(in.Phase)
		status.CurrentStatus.LastUpdateTime = now
		status.CurrentStatus.TimeoutActive = in.Phase == string(v1alpha1.MachinePending) ||
			in.Phase == string(v1alpha1.MachineUnknown)
	}
	if status.CurrentStatus.PreserveExpiryTime == nil && !in.PreserveUntil.IsZero() {
		status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(in.PreserveUntil).Rfc3339Copy())
	}
	status.CreationIntent = creationIntent(m, in, now)
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
	if in.Joined && !machine.IsJoinRecorded(m) {
		status.JoinedAt = &now
	}
	status.CreationStopped = creationStopped(status.CreationStopped, in.Stopped, now)
	status.Health = healthClock(status.Health, in, now)
	status.Deletion = in.Deletion.applied(status.Deletion, now)
	if status.Deletion != nil {
		status.Deletion.Queued = in.Step != nil && in.Step.Name == vocabulary.StepQueued
	}
	status.Drain = in.Drain.applied(status.Drain, now)
	status.Addresses = addresses(status.Addresses, in.Addresses)
	status.CurrentOperation = kube.Operation(in.Step)
	status.Conditions = mergeConditions(status.Conditions, node, withIgnoredKind(in.Conditions, m.Spec.Class), now)
}

// Reported returns a copy of a machine as it is after a report, for kinds that have no class. It does not copy the
// conditions of the node.
func Reported(m *v1alpha1.Machine, in Report, stamp time.Time) *v1alpha1.Machine {
	m = m.DeepCopy()
	applyReport(m, nil, in, stamp)
	explained(m, nil, stamp)
	return m
}

// explained adds to the status what the machine waits for: to the current operation, and as the condition Blocked while
// the machine stands still. of is its class; nil: it has none.
func explained(m *v1alpha1.Machine, of *v1alpha1.MachineClass, now time.Time) {
	s, operation := &m.Status, m.Status.CurrentOperation
	s.Conditions = slices.DeleteFunc(
		s.Conditions,
		func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.MachineBlocked },
	)
	if operation == nil {
		return
	}
	w := machine.Explained(m, of, now).WaitsFor()
	operation.WaitsFor, operation.BlockedBy = phrase.Message(w.Sentence(now)), w.Blockers
	if w.Blocked() {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{
			Type:               v1alpha1.MachineBlocked,
			Status:             corev1.ConditionTrue,
			Reason:             explain.Reason(w.Blockers[0]),
			Message:            operation.WaitsFor,
			LastTransitionTime: operation.Since,
		})
	}
}

// withIgnoredKind returns the conditions of a report. If the reference to the class names a kind, which has no effect,
// the message of the condition ClassReady says so, while it is true.
func withIgnoredKind(conditions []Condition, class v1alpha1.ClassSpec) []Condition {
	ignored := kube.IgnoredKind(class)
	return list.Map(conditions, func(c Condition) Condition {
		if c.Type == vocabulary.ConditionClassReady && c.True && ignored != "" {
			c.Message += "; " + ignored
		}
		return c
	})
}

// creationIntent records the first create call. If the first operation of a machine is written without one, it records
// that there was none: from then on, an empty lastOperation.type cannot show it.
func creationIntent(m *v1alpha1.Machine, in Report, now metav1.Time) *v1alpha1.CreationIntent {
	was := m.Status.CreationIntent
	switch {
	case in.run != "" && (was == nil || was.RunID == ""):
		return &v1alpha1.CreationIntent{RunID: in.run, Time: &now, WithoutToken: in.WithoutToken}
	case in.run != "" && was.WithoutToken && !in.WithoutToken: // the class needs a token by now
		return &v1alpha1.CreationIntent{RunID: was.RunID, Time: was.Time}
	case was == nil && in.Operation != nil && neverTried(m):
		return &v1alpha1.CreationIntent{}
	default:
		return was
	}
}

// creationStopped starts or ends an interval that does not count for the creation timeout.
func creationStopped(was *v1alpha1.CreationStopped, stopped bool, now metav1.Time) *v1alpha1.CreationStopped {
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

func healthClock(was *v1alpha1.MachineHealth, in Report, now metav1.Time) *v1alpha1.MachineHealth {
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

// addresses returns the addresses that the provider reported, sorted, each once.
func addresses(was []corev1.NodeAddress, reported []kube.Address) []corev1.NodeAddress {
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

// mergeConditions returns the node's conditions with their messages, followed by our own. Without a node, the last copy
// stays.
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
		Type: corev1.NodeConditionType(c.Type), Status: status, Reason: c.Reason, Message: c.Message, LastTransitionTime: now,
	}
	was := cache.Condition(list, entry.Type)
	if was == nil {
		return append(list, entry)
	}
	if was.Status == entry.Status {
		entry.LastTransitionTime = was.LastTransitionTime
	}
	*was = entry
	return list
}

// DeletionProgress is what a report says about a machine's deletion. The stage never goes back, and a result never
// changes.
type DeletionProgress struct {
	Stage deletion.Stage // that begins; empty keeps it
	// how pods are removed from now on; empty keeps it. The first one starts the timeout of the drain
	Means      string
	Result     string   // how the drain ended; empty keeps it
	LeftBehind []string // pods that are still on the node
}

// applied returns the record after the report. A time changes only with the value that it belongs to.
func (d *DeletionProgress) applied(was *v1alpha1.MachineDeletion, now metav1.Time) *v1alpha1.MachineDeletion {
	if d == nil {
		return was
	}
	record := &v1alpha1.MachineDeletion{}
	if was != nil {
		record = was.DeepCopy()
	}
	recorded := deletion.Stage(record.Stage)
	if stage := deletion.Later(recorded, d.Stage); stage != recorded {
		record.Stage, record.Since = v1alpha1.MachineDeletionStage(stage), now
	}
	if d.Means == "" && d.Result == "" {
		return record
	}
	if record.Drain == nil {
		record.Drain = &v1alpha1.MachineDrain{StartedAt: now}
	}
	recordProgress(record.Drain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// recordProgress records the progress of a drain. A drain that has ended does not change.
func recordProgress(drain *v1alpha1.MachineDrain, means, result string, left []string, now metav1.Time) {
	if drain.Result != "" {
		return
	}
	if means != "" && means != drain.Means {
		drain.Means, drain.MeansSince = means, &now
	}
	drain.Result, drain.LeftBehind = result, left
}

// StayingDrain is what a report says about the drain of a node whose machine is not being deleted. A new purpose or
// occasion starts a new record.
type StayingDrain struct {
	Purpose    attention.DrainPurpose
	Means      string // as in DeletionProgress
	Result     string
	LeftBehind []string
}

func (d *StayingDrain) applied(was *v1alpha1.StayingDrain, now metav1.Time) *v1alpha1.StayingDrain {
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
	recordProgress(&record.MachineDrain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// DrainEnded returns how a drain ended by this write, and its duration; both are zero when none ended.
func DrainEnded(before, after *v1alpha1.Machine, now time.Time) (result string, took time.Duration) {
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
