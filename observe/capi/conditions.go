package capi

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/scale"
)

// ClusterPausedMessage is Cluster API's message for an object whose Cluster is paused.
const ClusterPausedMessage = "Cluster spec.paused is set to true"

// Condition is a condition of a status. If TransitionTime is zero, the transition time is the time of the last change
// of the condition's status.
type Condition struct {
	scale.Condition
	TransitionTime time.Time
}

// ReplaceOwnedConditions removes the conditions whose type is in the list owned, adds the conditions in said, and
// returns all conditions.
func ReplaceOwnedConditions(
	was []metav1.Condition,
	owned []string,
	said []Condition,
	generation int64,
	now metav1.Time,
) []metav1.Condition {
	all := slices.DeleteFunc(slices.Clone(was), func(c metav1.Condition) bool { return slices.Contains(owned, c.Type) })
	for _, c := range said {
		next := metav1.Condition{
			Type:               c.Type,
			Status:             metav1.ConditionStatus(c.Status),
			Reason:             c.Reason,
			Message:            c.Message,
			LastTransitionTime: now,
			ObservedGeneration: generation,
		}
		before := ConditionOfType(was, next.Type)
		switch {
		case !c.TransitionTime.IsZero():
			next.LastTransitionTime = metav1.NewTime(c.TransitionTime).Rfc3339Copy()
		case before.Status == next.Status:
			next.LastTransitionTime = before.LastTransitionTime
		}
		all = append(all, next)
	}
	slices.SortStableFunc(all, func(a, b metav1.Condition) int {
		return cmp.Compare(conditionPosition(a.Type), conditionPosition(b.Type))
	})
	return all
}

// conditionOrder lists the condition types of sets and deployments in the order in which Cluster API's controllers
// write them, so that clusterctl prints the same order for Millwright's objects. Types that conditionOrder does not
// list come between its two parts.
var conditionOrder = [2][]string{
	{
		vocabulary.ConditionAvailable,
		vocabulary.ConditionRollingOut,
		vocabulary.ConditionRemediating,
		vocabulary.ConditionScalingDown,
		vocabulary.ConditionScalingUp,
		vocabulary.ConditionMachinesReady,
		vocabulary.ConditionMachinesUpToDate,
	},
	{vocabulary.ConditionPaused, vocabulary.ConditionDeleting},
}

func conditionPosition(kind string) int {
	first, last := slices.Index(conditionOrder[0], kind), slices.Index(conditionOrder[1], kind)
	switch {
	case first >= 0:
		return first
	case last >= 0:
		return len(conditionOrder[0]) + 1 + last
	default:
		return len(conditionOrder[0])
	}
}

// BlockedConditions returns the condition Blocked; nil if nothing is blocked.
func BlockedConditions(blocked explain.Summary) []Condition {
	if !blocked.IsBlocked() {
		return nil
	}
	return []Condition{
		{
			scale.Condition{
				Type:    vocabulary.ConditionBlocked,
				Status:  scale.ConditionTrue,
				Reason:  blocked.Reason,
				Message: blocked.Message,
			},
			blocked.Since,
		},
	}
}

// SelectorText returns a selector as text; empty if the selector does not parse. A condition reports a selector that
// does not parse.
func SelectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

// ConditionOfType returns the condition of this type; the zero value if there is none.
func ConditionOfType(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// UpstreamConditions returns the conditions that Cluster API's own controllers also write. After a handover, Cluster
// API's controllers do not update other conditions, so Millwright's other conditions would stay forever.
func UpstreamConditions(conditions []metav1.Condition) []metav1.Condition {
	own := []string{
		vocabulary.ConditionMachinesCreated,
		vocabulary.ConditionProgressing,
		vocabulary.ConditionReplicaFailure,
		vocabulary.ConditionReplacementHeld,
		vocabulary.ConditionDegraded,
		vocabulary.ConditionReconciling,
		vocabulary.ConditionStalled,
		vocabulary.ConditionBlocked,
	}
	return slices.DeleteFunc(
		slices.Clone(conditions),
		func(c metav1.Condition) bool { return slices.Contains(own, c.Type) },
	)
}
