package activities

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/observe"
)

// DeletionProgress is what a report says of a machine's deletion. The stage never goes back, and what ended stays ended.
type DeletionProgress struct {
	Stage      deletion.Stage // under way from now on; empty keeps it
	Means      string         // how pods are made to go from now on; empty keeps it. The first one starts the clock of the drain
	Result     string         // how the drain ended; empty keeps it
	LeftBehind []string       // with Result: pods that are still there
}

// applied returns the record with what the report says. Times move only with what they stand for.
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
	advance(record.Drain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// advance writes how far a drain has come. What ended stays ended.
func advance(drain *v1alpha1.MachineDrain, means, result string, left []string, now metav1.Time) {
	if drain.Result != "" {
		return
	}
	if means != "" && means != drain.Means {
		drain.Means, drain.MeansSince = means, &now
	}
	drain.Result, drain.LeftBehind = result, left
}

// StayingDrain is what a report says of the drain of a node whose machine is to stay. For another purpose or occasion than
// the one on record it begins anew.
type StayingDrain struct {
	observe.Emptying
	Means      string // as in DeletionProgress
	Result     string
	LeftBehind []string
}

func (d *StayingDrain) applied(was *v1alpha1.StayingDrain, now metav1.Time) *v1alpha1.StayingDrain {
	if d == nil {
		return was
	}
	occasion := metav1.NewTime(d.Occasion).Rfc3339Copy()
	record := &v1alpha1.StayingDrain{Purpose: d.Purpose, Occasion: occasion, MachineDrain: v1alpha1.MachineDrain{StartedAt: now}}
	if was != nil && was.Purpose == d.Purpose && was.Occasion.Equal(&occasion) {
		record = was.DeepCopy()
	}
	advance(&record.MachineDrain, d.Means, d.Result, d.LeftBehind, now)
	return record
}

// ended says how a drain ended by this write, and how long it took; nothing when none did.
func ended(before, after *v1alpha1.Machine) (result string, took time.Duration) {
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
	return is.Result, time.Since(is.StartedAt.Time)
}

// AnnounceTermination makes the node of a machine that is to go say so by its condition Terminating: a node that says it
// already keeps its reason. It returns the version of the node to decide with; the gate is empty where there is no node that
// is the machine's alone, and where this worker has not heard yet that the machine is to go. Running it twice writes once.
func (a *Activities) AnnounceTermination(ctx context.Context, in Read) (Gate, error) {
	known := false
	gate, err := a.changeNodeAsSeen(ctx, in, in.Live, func(m *v1alpha1.Machine, node *corev1.Node) map[string]any {
		said := func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue
		}
		known = m.DeletionTimestamp != nil
		if !known || slices.ContainsFunc(node.Status.Conditions, said) {
			return nil
		}
		c := Condition{Type: string(v1alpha1.NodeTerminating), True: true, Reason: v1alpha1.ReasonScaleDown, Message: v1alpha1.MessageTerminatingScaleDown}
		if hadFailed(m) {
			c.Reason, c.Message = v1alpha1.ReasonUnhealthy, v1alpha1.MessageTerminatingUnhealthy
		}
		conditions := setCondition(slices.Clone(node.Status.Conditions), c, metav1.Now().Rfc3339Copy())
		return map[string]any{"status": map[string]any{"conditions": conditions}}
	}, "status")
	if err != nil || !known {
		return Gate{}, err
	}
	return gate, nil
}

// hadFailed reports whether a machine is deleted because something was wrong with it. Its phase may be Terminating by now
// (D36), but the condition tells.
func hadFailed(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || slices.ContainsFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.MachineReplacementDue && c.Status == corev1.ConditionTrue
	})
}
