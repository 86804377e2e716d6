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

// Bounds of the message of a condition about all machines. Source: Cluster API.
const (
	maxLines = 3 // different messages
	maxNames = 3 // machines named for one message
)

// ready summarises the readiness of all machines.
func ready(o *planner) Condition {
	t := tally{}
	for _, m := range o.Members {
		answer, why := m.readiness()
		t.add(m.Name, answer, why)
	}
	return t.condition(
		vocabulary.ConditionMachinesReady,
		reasons{vocabulary.ReasonReady, vocabulary.ReasonNotReady, vocabulary.ReasonReadyUnknown},
	)
}

// readiness returns one member's readiness. A member that is being deleted is not ready, whatever its node reports.
func (m Member) readiness() (Answer, string) {
	switch {
	case m.Deleting:
		return False, cmp.Or(m.ReadyWhy, "Deleting: Machine deletion in progress")
	case m.Ready == True:
		return True, ""
	case m.Ready == "":
		return Unknown, cmp.Or(m.ReadyWhy, "Condition Ready not yet reported")
	default:
		return m.Ready, cmp.Or(m.ReadyWhy, "phase "+cmp.Or(m.Phase, "new"))
	}
}

// upToDate summarises whether the machines match the template. A machine younger than youngUntil that has no answer yet
// is left out.
func upToDate(o *planner) Condition {
	t := tally{}
	for _, m := range o.Members {
		switch {
		case m.UpToDate != "":
			t.add(m.Name, m.UpToDate, m.UpToDateWhy)
		case !o.Now.Before(m.Created.Add(youngUntil)):
			t.add(m.Name, Unknown, "Condition UpToDate not yet reported")
		}
	}
	return t.condition(
		vocabulary.ConditionMachinesUpToDate,
		reasons{vocabulary.ReasonUpToDate, vocabulary.ReasonNotUpToDate, vocabulary.ReasonUpToDateUnknown},
	)
}

// remediating names the machines that are replaced because they failed or are unhealthy, and says which of them wait.
func remediating(o *planner) Condition {
	const kind = vocabulary.ConditionRemediating
	why := map[string]string{}
	for _, s := range o.postponed {
		why[s.name] = s.message
	}
	var replaced []said
	var others []string
	for _, m := range o.Members {
		switch {
		case m.toReplace(), m.marked() && !m.protected():
			replaced = append(replaced, said{m.Name, cmp.Or(why[m.Name], saysDeleting)})
		case m.Healthy == False, m.failed() && !m.Deleting:
			others = append(others, m.Name)
		}
	}
	are := phrase.OneOf(len(others), " is ", " are ")
	message := phrase.If(len(others) > 0, "%snot healthy (not to be remediated by MachineSet)", subject(others)+are)
	return cmp.Or(
		list.When(
			len(replaced) > 0,
			Condition{kind, True, kind, strings.Join(lines(replaced, maxLines, "other issues"), "\n")},
		),
		Condition{kind, False, vocabulary.ReasonNotRemediating, message},
	)
}

// tally holds the messages about machines by answer.
type tally map[Answer][]said

func (t tally) add(name string, a Answer, message string) {
	if a != True && a != False {
		a = Unknown
	}
	if a == True {
		t[a] = nil // an entry without messages: nobody reads the message of a True machine
		return
	}
	t[a] = append(t[a], said{name, message})
}

// reasons are those of a condition by its status.
type reasons struct{ yes, no, unknown string }

// condition is False if any answer is False, else Unknown if any is Unknown, else True.
func (t tally) condition(kind string, why reasons) Condition {
	text := lines(t[False], maxLines, "other issues")
	text = append(text, lines(t[Unknown], maxLines-min(len(text), maxLines), "status unknown")...)
	message := strings.Join(text, "\n")
	return cmp.Or(
		list.When(len(t) == 0, Condition{kind, True, vocabulary.ReasonNoReplicas, ""}),
		list.When(len(t[False]) > 0, Condition{kind, False, why.no, message}),
		list.When(len(t[Unknown]) > 0, Condition{kind, Unknown, why.unknown, message}),
		Condition{kind, True, why.yes, ""},
	)
}

// group is the machines with the same message, sorted by name.
type group struct {
	message string
	names   []string
}

// lines returns one line for each message, with the machines that it is about. The message of the most machines comes
// first, then the one of the first machine by name.
func lines(all []said, most int, rest string) []string {
	var groups []group
	at := map[string]int{}  // by message
	for _, s := range all { // by name
		i, known := at[s.message]
		if !known {
			i = len(groups)
			at[s.message] = i
			groups = append(groups, group{message: s.message})
		}
		groups[i].names = append(groups[i].names, s.name)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(len(b.names), len(a.names)) })
	var result []string
	left := len(all)
	for _, g := range groups[:min(most, len(groups))] {
		result = append(result, "* "+subject(g.names)+":"+indented(g.message))
		left -= len(g.names)
	}
	if left > 0 {
		result = append(result, "And "+phrase.Count(left, "Machine")+" with "+rest)
	}
	return result
}

// indented returns a message as it follows the names of its machines: in the same line, or below it as a list. Source
// of the form: Cluster API.
func indented(message string) string {
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

// subject names machines: Machine a; Machines a, b; Machines a, b, c, ... (2 more).
func subject(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	switch {
	case len(names) == 1:
		return "Machine " + text
	case len(names) > maxNames:
		return fmt.Sprintf("Machines %s, ... (%d more)", text, len(names)-maxNames)
	default:
		return "Machines " + text
	}
}

// wanted returns how many machines are wanted.
func (o *planner) wanted() int {
	if o.Deleting {
		return 0
	}
	return o.Replicas
}

// created is False while machines are missing and cannot be created.
func created(o *planner) Condition {
	const kind = vocabulary.ConditionMachinesCreated
	lacks, blocked, failed := o.wanted() > len(o.live), strings.Join(blockers(o), "; "), o.LastFailure
	return cmp.Or(
		list.When(lacks && len(o.Missing) > 0, Condition{kind, False, vocabulary.ReasonTemplateNotFound, missing(o)}),
		list.When(
			lacks && len(preflight.Decide(o.Preflight)) > 0,
			Condition{kind, False, vocabulary.ReasonPreflightCheckFailed, blocked},
		),
		list.When(lacks && blocked != "", Condition{kind, False, vocabulary.ReasonScaleUpStopped, blocked}),
		list.When(lacks && o.Invalid != "", Condition{kind, False, vocabulary.ReasonMachineSetInvalid, o.Invalid}),
		list.When(
			lacks && failed.Message != "" && !failed.Deleting,
			Condition{kind, False, vocabulary.ReasonMachineCreationFailed, failed.Message},
		),
		Condition{kind, True, kind, ""},
	)
}

// scalingUp is True until the wanted machines exist and each has joined once. A machine that has joined and is not
// ready now does not count as scaling.
func scalingUp(o *planner) Condition {
	const kind = vocabulary.ConditionScalingUp
	active := o.live
	joining := list.Count(active, func(m Member) bool { return !m.Joined && !m.failed() })
	message := fmt.Sprintf("Scaling up from %d to %d replicas", len(active), o.Replicas)
	if why := phrase.Parts(slices.Concat(blockers(o), o.Pauses, []string{o.Invalid})...); len(why) > 0 {
		message += " is blocked because:\n* " + strings.Join(why, "\n* ")
	}
	waits := fmt.Sprintf("Scaling up to %d replicas: waiting for %s to become ready", o.Replicas, machines(joining))
	return cmp.Or(
		list.When(len(active) < o.wanted(), Condition{kind, True, kind, message}),
		list.When(len(active) == o.wanted() && joining > 0, Condition{kind, True, kind, waits}),
		list.When(
			!o.Deleting && len(o.Missing) > 0,
			Condition{kind, False, vocabulary.ReasonNotScalingUp, "Scaling up would be blocked because " + missing(o)},
		),
		Condition{kind, False, vocabulary.ReasonNotScalingUp, ""},
	)
}

// scalingDown is True until the objects of surplus machines are gone. It is False while machines are missing.
func scalingDown(o *planner) Condition {
	const kind = vocabulary.ConditionScalingDown
	message := fmt.Sprintf("Scaling down from %d to %d replicas", len(o.Members), o.wanted()) + staleLine(o)
	return cmp.Or(
		list.When(
			!o.Orphaning && len(o.Members) > o.wanted() && len(o.live) >= o.wanted(),
			Condition{kind, True, kind, message},
		),
		Condition{kind, False, vocabulary.ReasonNotScalingDown, ""},
	)
}

// deleting reports the progress of the deletion of the set.
func deleting(o *planner) Condition {
	const kind = vocabulary.ConditionDeleting
	return cmp.Or(
		list.When(!o.Deleting, Condition{kind, False, vocabulary.ReasonNotDeleting, ""}),
		list.When(o.Orphaning, Condition{kind, True, kind, o.letsGo()}),
		list.When(len(o.Members) == 0, Condition{kind, True, kind, "Deletion completed"}),
		Condition{kind, True, kind, "Deleting " + phrase.Count(len(o.Members), "Machine") + staleLine(o)},
	)
}

// paused says whether the set is paused, and by whom.
func paused(o *planner) Condition {
	if why := o.Pauses; len(why) > 0 {
		return Condition{vocabulary.ConditionPaused, True, vocabulary.ConditionPaused, strings.Join(why, ", ")}
	}
	return Condition{vocabulary.ConditionPaused, False, vocabulary.ReasonNotPaused, ""}
}

// staleLine names the machines whose deletion takes longer than staleAfter; empty: none.
func staleLine(o *planner) string {
	names := list.Map(pointers(o.Members, func(m Member) bool {
		return m.Deleting && !m.DeletingSince.IsZero() && !o.Now.Before(m.DeletingSince.Add(staleAfter))
	}), (*Member).name)
	if len(names) == 0 {
		return ""
	}
	return "\n* " + subject(names) + phrase.OneOf(len(names), " is ", " are ") + "in deletion since more than 15m"
}
