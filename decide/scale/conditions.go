package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/preflight"
)

// Limits of a condition message about all machines. Source: Cluster API.
const (
	maxMessageLines = 3 // number of different messages
	maxNamesPerLine = 3 // number of machines that one line names
)

// machinesReadyCondition summarises the readiness of all machines.
func machinesReadyCondition(o *planner) Condition {
	t := messagesByStatus{}
	for _, m := range o.Members {
		answer, why := m.readiness()
		t.addMessage(m.Name, answer, why)
	}
	return t.condition(
		vocabulary.ConditionMachinesReady,
		statusReasons{vocabulary.ReasonReady, vocabulary.ReasonNotReady, vocabulary.ReasonReadyUnknown},
	)
}

// readiness returns a member's readiness. A member that is being deleted is not ready, whatever its node reports.
func (m Member) readiness() (ConditionStatus, string) {
	switch {
	case m.Deleting:
		return ConditionFalse, cmp.Or(m.NotReadyReason, "Deleting: Machine deletion in progress")
	case m.Ready == ConditionTrue:
		return ConditionTrue, ""
	case m.Ready == "":
		return ConditionUnknown, cmp.Or(m.NotReadyReason, "Condition Ready not yet reported")
	default:
		return m.Ready, cmp.Or(m.NotReadyReason, "phase "+cmp.Or(m.Phase, "new"))
	}
}

// machinesUpToDateCondition summarises whether the machines match the template. A machine that is younger than
// youngMachineAge and whose status is not reported yet does not count.
func machinesUpToDateCondition(o *planner) Condition {
	t := messagesByStatus{}
	for _, m := range o.Members {
		switch {
		case m.UpToDate != "":
			t.addMessage(m.Name, m.UpToDate, m.OutdatedReason)
		case !o.Now.Before(m.CreatedAt.Add(youngMachineAge)):
			t.addMessage(m.Name, ConditionUnknown, "Condition UpToDate not yet reported")
		}
	}
	return t.condition(
		vocabulary.ConditionMachinesUpToDate,
		statusReasons{vocabulary.ReasonUpToDate, vocabulary.ReasonNotUpToDate, vocabulary.ReasonUpToDateUnknown},
	)
}

// remediatingCondition names the machines that are replaced because they failed or are unhealthy. For a machine that
// waits, remediatingCondition also gives the reason.
func remediatingCondition(o *planner) Condition {
	const kind = vocabulary.ConditionRemediating
	why := map[string]string{}
	for _, s := range o.postponedMembers {
		why[s.name] = s.message
	}
	var replaced []machineMessage
	var others []string
	for _, m := range o.Members {
		switch {
		case m.needsReplacement(), why[m.Name] != "", m.isMarkedUnhealthy() && !m.isProtected():
			replaced = append(replaced, machineMessage{m.Name, cmp.Or(why[m.Name], deletingMessage)})
		case m.Healthy == ConditionFalse, m.isFailed() && !m.Deleting:
			others = append(others, m.Name)
		}
	}
	are := phrase.SingularOrPlural(len(others), " is ", " are ")
	message := phrase.TextIf(
		len(others) > 0,
		"%snot healthy (not to be remediated by MachineSet)",
		machineNamesText(others)+are,
	)
	return cmp.Or(
		list.ValueIf(
			len(replaced) > 0,
			Condition{kind, ConditionTrue, kind, strings.Join(messageLines(replaced, maxMessageLines, "other issues"), "\n")},
		),
		Condition{kind, ConditionFalse, vocabulary.ReasonNotRemediating, message},
	)
}

// messagesByStatus holds the messages about machines, by condition status.
type messagesByStatus map[ConditionStatus][]machineMessage

func (t messagesByStatus) addMessage(name string, a ConditionStatus, message string) {
	if a != ConditionTrue && a != ConditionFalse {
		a = ConditionUnknown
	}
	if a == ConditionTrue {
		t[a] = nil // the entry for True has no messages, because nobody reads them
		return
	}
	t[a] = append(t[a], machineMessage{name, message})
}

// statusReasons holds a condition's reason for each status.
type statusReasons struct{ ifTrue, ifFalse, ifUnknown string }

// condition returns a condition that is False if the status of any machine is False, otherwise Unknown if any status is
// Unknown, and otherwise True.
func (t messagesByStatus) condition(kind string, why statusReasons) Condition {
	text := messageLines(t[ConditionFalse], maxMessageLines, "other issues")
	text = append(
		text,
		messageLines(t[ConditionUnknown], maxMessageLines-min(len(text), maxMessageLines), "status unknown")...)
	message := strings.Join(text, "\n")
	return cmp.Or(
		list.ValueIf(len(t) == 0, Condition{kind, ConditionTrue, vocabulary.ReasonNoReplicas, ""}),
		list.ValueIf(len(t[ConditionFalse]) > 0, Condition{kind, ConditionFalse, why.ifFalse, message}),
		list.ValueIf(len(t[ConditionUnknown]) > 0, Condition{kind, ConditionUnknown, why.ifUnknown, message}),
		Condition{kind, ConditionTrue, why.ifTrue, ""},
	)
}

// messageGroup is a group of machines with the same message, sorted by name.
type messageGroup struct {
	message string
	names   []string
}

// messageLines returns one line for each different message, with the names of the machines. The message of the most
// machines comes first. Messages of the same number of machines are sorted by the name of the first machine.
func messageLines(all []machineMessage, most int, rest string) []string {
	var groups []messageGroup
	at := map[string]int{}  // index in groups, by message
	for _, s := range all { // in the order of the machines' names
		i, known := at[s.message]
		if !known {
			i = len(groups)
			at[s.message] = i
			groups = append(groups, messageGroup{message: s.message})
		}
		groups[i].names = append(groups[i].names, s.name)
	}
	slices.SortStableFunc(groups, func(a, b messageGroup) int { return cmp.Compare(len(b.names), len(a.names)) })
	var result []string
	left := len(all)
	for _, g := range groups[:min(most, len(groups))] {
		result = append(result, "* "+machineNamesText(g.names)+":"+indentMessage(g.message))
		left -= len(g.names)
	}
	if left > 0 {
		result = append(result, "And "+phrase.CountText(left, "Machine")+" with "+rest)
	}
	return result
}

// indentMessage formats a message that follows the names of its machines. A single line continues the line of the
// names, and several lines become a list below it. Source of the format: Cluster API.
func indentMessage(message string) string {
	all := strings.Split(message, "\n")
	item := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "* ") }
	if len(all) == 1 && !item(message) {
		return " " + message
	}
	plain := slices.ContainsFunc(all, func(line string) bool { return !item(line) })
	var text strings.Builder
	for _, line := range all {
		prefix := "\n  "
		switch {
		case plain && item(line):
			prefix += "  "
		case plain:
			prefix += "* "
		}
		text.WriteString(prefix + line)
	}
	return text.String()
}

// machineNamesText returns names in one of these forms: Machine a; Machines a, b; Machines a, b, c, ... (2 more).
func machineNamesText(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamesPerLine)], ", ")
	switch {
	case len(names) == 1:
		return "Machine " + text
	case len(names) > maxNamesPerLine:
		return fmt.Sprintf("Machines %s, ... (%d more)", text, len(names)-maxNamesPerLine)
	default:
		return "Machines " + text
	}
}

// wantedReplicas returns the wanted number of machines, which is 0 for a set that is being deleted.
func (o *planner) wantedReplicas() int {
	if o.Deleting {
		return 0
	}
	return o.Replicas
}

// machinesCreatedCondition is False while machines are missing and cannot be created.
func machinesCreatedCondition(o *planner) Condition {
	const kind = vocabulary.ConditionMachinesCreated
	lacks, blocked, failed := o.wantedReplicas() > len(
		o.liveMembers,
	), strings.Join(
		creationBlockers(o),
		"; ",
	), o.LastWriteFailure
	return cmp.Or(
		list.ValueIf(
			lacks && len(o.MissingObjectKinds) > 0,
			Condition{kind, ConditionFalse, vocabulary.ReasonTemplateNotFound, missingObjectKindsText(o)},
		),
		list.ValueIf(
			lacks && len(preflight.Decide(o.Preflight)) > 0,
			Condition{kind, ConditionFalse, vocabulary.ReasonPreflightCheckFailed, blocked},
		),
		list.ValueIf(lacks && blocked != "", Condition{kind, ConditionFalse, vocabulary.ReasonScaleUpStopped, blocked}),
		list.ValueIf(
			lacks && o.InvalidReason != "",
			Condition{kind, ConditionFalse, vocabulary.ReasonMachineSetInvalid, o.InvalidReason},
		),
		list.ValueIf(
			lacks && failed.Message != "" && !failed.Deleting,
			Condition{kind, ConditionFalse, vocabulary.ReasonMachineCreationFailed, failed.Message},
		),
		Condition{kind, ConditionTrue, kind, ""},
	)
}

// scalingUpCondition is True until all wanted machines exist and each machine has joined once. A machine that has
// joined but is not ready now does not make the condition True.
func scalingUpCondition(o *planner) Condition {
	const kind = vocabulary.ConditionScalingUp
	active := o.liveMembers
	joining := list.CountWhere(active, func(m Member) bool { return !m.Joined && !m.isFailed() })
	message := fmt.Sprintf("Scaling up from %d to %d replicas", len(active), o.Replicas)
	if why := phrase.NonEmptyTexts(
		slices.Concat(creationBlockers(o), o.PauseSentences, []string{o.InvalidReason})...); len(
		why,
	) > 0 {
		message += " is blocked because:\n* " + strings.Join(why, "\n* ")
	}
	waits := fmt.Sprintf(
		"Scaling up to %d replicas: waiting for %s to become ready",
		o.Replicas,
		machineCountText(joining),
	)
	return cmp.Or(
		list.ValueIf(len(active) < o.wantedReplicas(), Condition{kind, ConditionTrue, kind, message}),
		list.ValueIf(len(active) == o.wantedReplicas() && joining > 0, Condition{kind, ConditionTrue, kind, waits}),
		list.ValueIf(
			!o.Deleting && len(o.MissingObjectKinds) > 0,
			Condition{
				kind,
				ConditionFalse,
				vocabulary.ReasonNotScalingUp,
				"Scaling up would be blocked because " + missingObjectKindsText(o),
			},
		),
		Condition{kind, ConditionFalse, vocabulary.ReasonNotScalingUp, ""},
	)
}

// scalingDownCondition is True until the objects of surplus machines are gone. The condition is False while machines
// are missing.
func scalingDownCondition(o *planner) Condition {
	const kind = vocabulary.ConditionScalingDown
	message := fmt.Sprintf(
		"Scaling down from %d to %d replicas",
		len(o.Members),
		o.wantedReplicas(),
	) + staleDeletionsLine(
		o,
	)
	return cmp.Or(
		list.ValueIf(
			!o.Orphaning && len(o.Members) > o.wantedReplicas() && len(o.liveMembers) >= o.wantedReplicas(),
			Condition{kind, ConditionTrue, kind, message},
		),
		Condition{kind, ConditionFalse, vocabulary.ReasonNotScalingDown, ""},
	)
}

// deletingCondition reports the progress of the set's deletion.
func deletingCondition(o *planner) Condition {
	const kind = vocabulary.ConditionDeleting
	return cmp.Or(
		list.ValueIf(!o.Deleting, Condition{kind, ConditionFalse, vocabulary.ReasonNotDeleting, ""}),
		list.ValueIf(o.Orphaning, Condition{kind, ConditionTrue, kind, o.orphaningSentence()}),
		list.ValueIf(len(o.Members) == 0, Condition{kind, ConditionTrue, kind, "Deletion completed"}),
		Condition{
			kind,
			ConditionTrue,
			kind,
			"Deleting " + phrase.CountText(len(o.Members), "Machine") + staleDeletionsLine(o),
		},
	)
}

// pausedCondition reports whether the set is paused, and by whom.
func pausedCondition(o *planner) Condition {
	if why := o.PauseSentences; len(why) > 0 {
		return Condition{vocabulary.ConditionPaused, ConditionTrue, vocabulary.ConditionPaused, strings.Join(why, ", ")}
	}
	return Condition{vocabulary.ConditionPaused, ConditionFalse, vocabulary.ReasonNotPaused, ""}
}

// staleDeletionsLine names the machines whose deletion has lasted longer than staleDeletionAge, or returns an empty
// string.
func staleDeletionsLine(o *planner) string {
	stale := memberPointers(o.Members, func(m Member) bool {
		return m.Deleting && !m.DeletingSince.IsZero() && !o.Now.Before(m.DeletingSince.Add(staleDeletionAge))
	})
	if len(stale) == 0 {
		return ""
	}
	return "\n* " + machineNamesText(list.Map(stale, (*Member).name)) +
		phrase.SingularOrPlural(len(stale), " is ", " are ") + "in deletion since more than 15m" + drainBlockersText(stale)
}
