package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// DeploymentMachines holds the facts about the machines of a Cluster API MachineDeployment that its conditions use.
type DeploymentMachines struct {
	Members            []Member // members of all sets of the deployment, in any order
	MissingObjectKinds []string // kinds of the template's objects that do not exist
	PauseSentences     []string // who paused the deployment, as one sentence for each pause
	ReplicasUnset      bool     // spec.replicas is not set yet
}

// DeploymentConditions returns the conditions about the machines of a Cluster API MachineDeployment, in a fixed order.
// replicas is the deployment's wanted number of machines. Source of reasons and messages: Cluster API.
func DeploymentConditions(now time.Time, replicas int, deletion Deletion, machines DeploymentMachines) []Condition {
	o := newPlanner(Facts{
		Now: now, Settings: Settings{Replicas: replicas}, Deletion: deletion,
		Members: machines.Members, MissingObjectKinds: machines.MissingObjectKinds, PauseSentences: machines.PauseSentences,
	})
	all := []Condition{
		machinesReadyCondition(o),
		machinesUpToDateCondition(o),
		rollingOutCondition(o),
		deploymentScalingUpCondition(o, machines.ReplicasUnset),
		deploymentScalingDownCondition(o, machines.ReplicasUnset),
		deploymentRemediatingCondition(o),
		deletingCondition(o),
		pausedCondition(o),
	}
	for i := range all {
		all[i].Message = phrase.TruncateMessage(all[i].Message)
	}
	return all
}

// rollingOutCondition reports the number of machines that do not match the template, and the reasons. Version
// differences come first.
func rollingOutCondition(o *planner) Condition {
	const kind = vocabulary.ConditionRollingOut
	old := list.Filter(o.Members, func(m Member) bool { return m.UpToDate == ConditionFalse })
	if len(old) == 0 {
		return Condition{kind, ConditionFalse, vocabulary.ReasonNotRollingOut, ""}
	}
	var reasons []string
	for _, m := range old {
		reasons = append(reasons, phrase.NonEmptyTexts(strings.Split(m.OutdatedReason, "\n")...)...)
	}
	ofVersion := func(reason string) bool { return strings.HasPrefix(reason, "* Version") }
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(list.CompareFalseFirst(!ofVersion(a), !ofVersion(b)), cmp.Compare(a, b))
	})
	text := append([]string{fmt.Sprintf("Rolling out %d not up-to-date replicas", len(old))}, slices.Compact(reasons)...)
	return Condition{kind, ConditionTrue, kind, strings.Join(text, "\n")}
}

// noReplicasCondition returns the condition of a deployment without spec.replicas.
func noReplicasCondition(is bool, kind string) Condition {
	return list.ValueIf(
		is,
		Condition{kind, ConditionUnknown, vocabulary.ReasonReplicasNotSet, "Waiting for spec.replicas set"},
	)
}

// deploymentScalingUpCondition is True while the deployment has fewer machines than wanted.
func deploymentScalingUpCondition(o *planner, noSize bool) Condition {
	const kind = vocabulary.ConditionScalingUp
	blocked := phrase.TextIf(len(o.MissingObjectKinds) > 0, " blocked because %s", missingObjectKindsText(o))
	there := fmt.Sprintf("Scaling up from %d to %d replicas", len(o.Members), o.Replicas) +
		phrase.TextIf(blocked != "", " is%s", blocked)
	return cmp.Or(
		noReplicasCondition(noSize, kind),
		list.ValueIf(len(o.Members) < o.wantedReplicas(), Condition{kind, ConditionTrue, kind, there}),
		Condition{
			kind,
			ConditionFalse,
			vocabulary.ReasonNotScalingUp,
			phrase.TextIf(blocked != "" && !o.Deleting, "Scaling up would be%s", blocked),
		},
	)
}

// deploymentScalingDownCondition is True while the deployment has more machines than wanted, even if a rollout added
// them.
func deploymentScalingDownCondition(o *planner, noSize bool) Condition {
	const kind = vocabulary.ConditionScalingDown
	message := fmt.Sprintf(
		"Scaling down from %d to %d replicas",
		len(o.Members),
		o.wantedReplicas(),
	) + staleDeletionsLine(
		o,
	)
	return cmp.Or(
		noReplicasCondition(noSize, kind),
		list.ValueIf(len(o.Members) > o.wantedReplicas(), Condition{kind, ConditionTrue, kind, message}),
		Condition{kind, ConditionFalse, vocabulary.ReasonNotScalingDown, ""},
	)
}

// deploymentRemediatingCondition lists the machines that a health check has marked for replacement, with the messages
// of the marks.
func deploymentRemediatingCondition(o *planner) Condition {
	const kind = vocabulary.ConditionRemediating
	var replaced []machineMessage
	var others []string
	for _, m := range o.Members {
		switch {
		case m.Marked && m.Healthy == ConditionFalse:
			replaced = append(replaced, machineMessage{m.Name, cmp.Or(m.ClusterAPI.MarkMessage, "Waiting for remediation")})
		case m.Healthy == ConditionFalse:
			others = append(others, m.Name)
		}
	}
	if len(replaced) > 0 {
		return Condition{
			kind,
			ConditionTrue,
			kind,
			strings.Join(messageLines(replaced, maxMessageLines, "other issues"), "\n"),
		}
	}
	are := phrase.SingularOrPlural(len(others), " is ", " are ")
	return Condition{
		kind,
		ConditionFalse,
		vocabulary.ReasonNotRemediating,
		phrase.TextIf(
			len(others) > 0,
			"%snot healthy (not to be remediated by MachineDeployment/MachineSet)",
			machineNamesText(others)+are,
		),
	}
}
