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

// ClusterPaused says that the Cluster of an object is paused, in the words of Cluster API.
const ClusterPaused = "Cluster spec.paused is set to true"

// Condition is a condition as a status says it. Since is when it began to hold; zero: when its status changed.
type Condition struct {
	scale.Condition
	Since time.Time
}

// SetConditions returns conditions in which those of the types in owned are replaced by what is said now.
func SetConditions(
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
		before := ConditionOf(was, next.Type)
		switch {
		case !c.Since.IsZero():
			next.LastTransitionTime = metav1.NewTime(c.Since).Rfc3339Copy()
		case before.Status == next.Status:
			next.LastTransitionTime = before.LastTransitionTime
		}
		all = append(all, next)
	}
	slices.SortStableFunc(all, func(a, b metav1.Condition) int { return cmp.Compare(place(a.Type), place(b.Type)) })
	return all
}

// inOrder are the conditions of sets and deployments in the order in which Cluster API's controllers write them, so
// that clusterctl prints both alike. Others are between the two parts.
var inOrder = [2][]string{
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

// place returns the place of a condition among the others.
func place(kind string) int {
	first, last := slices.Index(inOrder[0], kind), slices.Index(inOrder[1], kind)
	switch {
	case first >= 0:
		return first
	case last >= 0:
		return len(inOrder[0]) + 1 + last
	default:
		return len(inOrder[0])
	}
}

// SaysBlocked returns the condition Blocked; none if nothing blocks.
func SaysBlocked(blocked explain.Summary) []Condition {
	if !blocked.Blocked() {
		return nil
	}
	return []Condition{
		{
			scale.Condition{
				Type:    vocabulary.ConditionBlocked,
				Status:  scale.True,
				Reason:  blocked.Reason,
				Message: blocked.Message,
			},
			blocked.Since,
		},
	}
}

// SelectorText returns a selector as text; empty if it cannot be read, which a condition says.
func SelectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

// ConditionOf returns the condition of this type; the zero value if there is none.
func ConditionOf(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// TheirConditions returns the conditions that Cluster API's own controllers also write. They leave all others alone, so
// what Millwright said in others about an object that was handed over would stand there for ever.
func TheirConditions(conditions []metav1.Condition) []metav1.Condition {
	own := []string{
		vocabulary.ConditionMachinesCreated,
		vocabulary.ConditionProgressing,
		vocabulary.ConditionReplicaFailure,
		vocabulary.ConditionBlocked,
	}
	return slices.DeleteFunc(
		slices.Clone(conditions),
		func(c metav1.Condition) bool { return slices.Contains(own, c.Type) },
	)
}
