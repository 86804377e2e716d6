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

// DeploymentMachines is what a MachineDeployment of Cluster API knows about its machines, for its conditions.
type DeploymentMachines struct {
	Members []Member // those of all its sets, in any order
	Missing []string // kinds of objects that the template refers to and that do not exist
	Pauses  []string // who has paused it, each as one sentence
	Unsized bool     // spec.replicas is not set yet
}

// OfDeployment returns the conditions about the machines of a MachineDeployment of Cluster API, in a fixed order.
// Replicas is the number of machines that the deployment wants. Source of reasons and messages: Cluster API.
func OfDeployment(now time.Time, replicas int, deletion Deletion, machines DeploymentMachines) []Condition {
	o := open(Observed{
		Now: now, Settings: Settings{Replicas: replicas}, Deletion: deletion,
		Members: machines.Members, Missing: machines.Missing, Pauses: machines.Pauses,
	})
	all := []Condition{
		ready(o),
		upToDate(o),
		rollingOut(o),
		scalingUpOfDeployment(o, machines.Unsized),
		scalingDownOfDeployment(o, machines.Unsized),
		remediatingOfDeployment(o),
		deleting(o),
		paused(o),
	}
	for i := range all {
		all[i].Message = phrase.Message(all[i].Message)
	}
	return all
}

// rollingOut counts the machines that do not match the template, and says why they do not. A difference of version
// comes first.
func rollingOut(o *planner) Condition {
	const kind = vocabulary.ConditionRollingOut
	old := list.Where(o.Members, func(m Member) bool { return m.UpToDate == False })
	if len(old) == 0 {
		return Condition{kind, False, vocabulary.ReasonNotRollingOut, ""}
	}
	var reasons []string
	for _, m := range old {
		reasons = append(reasons, phrase.Parts(strings.Split(m.UpToDateWhy, "\n")...)...)
	}
	ofVersion := func(reason string) bool { return strings.HasPrefix(reason, "* Version") }
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(list.FalseFirst(!ofVersion(a), !ofVersion(b)), cmp.Compare(a, b))
	})
	text := append([]string{fmt.Sprintf("Rolling out %d not up-to-date replicas", len(old))}, slices.Compact(reasons)...)
	return Condition{kind, True, kind, strings.Join(text, "\n")}
}

// unsized is a condition of a deployment whose number of machines is not set yet.
func unsized(is bool, kind string) Condition {
	return list.When(
		is,
		Condition{kind, Unknown, vocabulary.ReasonWaitingForReplicasSet, "Waiting for spec.replicas set"},
	)
}

// scalingUpOfDeployment is True while there are fewer machines than wanted.
func scalingUpOfDeployment(o *planner, noSize bool) Condition {
	const kind = vocabulary.ConditionScalingUp
	blocked := phrase.If(len(o.Missing) > 0, " blocked because %s", missing(o))
	there := fmt.Sprintf("Scaling up from %d to %d replicas", len(o.Members), o.Replicas) +
		phrase.If(blocked != "", " is%s", blocked)
	return cmp.Or(
		unsized(noSize, kind),
		list.When(len(o.Members) < o.wanted(), Condition{kind, True, kind, there}),
		Condition{
			kind,
			False,
			vocabulary.ReasonNotScalingUp,
			phrase.If(blocked != "" && !o.Deleting, "Scaling up would be%s", blocked),
		},
	)
}

// scalingDownOfDeployment is True while there are more machines than wanted, also those of a rollout.
func scalingDownOfDeployment(o *planner, noSize bool) Condition {
	const kind = vocabulary.ConditionScalingDown
	message := fmt.Sprintf("Scaling down from %d to %d replicas", len(o.Members), o.wanted()) + staleLine(o)
	return cmp.Or(
		unsized(noSize, kind),
		list.When(len(o.Members) > o.wanted(), Condition{kind, True, kind, message}),
		Condition{kind, False, vocabulary.ReasonNotScalingDown, ""},
	)
}

// remediatingOfDeployment repeats what machines that a health check has marked say about their replacement.
func remediatingOfDeployment(o *planner) Condition {
	const kind = vocabulary.ConditionRemediating
	var replaced []said
	var others []string
	for _, m := range o.Members {
		switch {
		case m.Marked && m.Healthy == False:
			replaced = append(replaced, said{m.Name, cmp.Or(m.ClusterAPI.MarkedWhy, "Waiting for remediation")})
		case m.Healthy == False:
			others = append(others, m.Name)
		}
	}
	if len(replaced) > 0 {
		return Condition{kind, True, kind, strings.Join(lines(replaced, maxLines, "other issues"), "\n")}
	}
	are := phrase.OneOf(len(others), " is ", " are ")
	return Condition{
		kind,
		False,
		vocabulary.ReasonNotRemediating,
		phrase.If(
			len(others) > 0,
			"%snot healthy (not to be remediated by MachineDeployment/MachineSet)",
			subject(others)+are,
		),
	}
}
