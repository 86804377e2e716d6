package scale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/preflight"
)

// Bounds of what a condition about all machines says. Source: Cluster API.
const (
	maxLines = 3 // different messages
	maxNames = 3 // machines that one message names
)

// ready merges what is said of each machine's readiness.
func ready(o Observed) Condition {
	t := tally{}
	for _, m := range o.Members {
		answer, why := m.readiness()
		t.add(m.Name, answer, why)
	}
	return t.condition(vocabulary.ConditionMachinesReady, "Ready")
}

// readiness is what a member says about itself. One that is being deleted is not ready whatever its node says.
func (m Member) readiness() (Answer, string) {
	switch {
	case m.Deleting:
		return False, cmp.Or(m.ReadyWhy, "Deleting: Machine deletion in progress")
	case m.Ready == "":
		return Unknown, cmp.Or(m.ReadyWhy, "Condition Ready not yet reported")
	default:
		return m.Ready, cmp.Or(m.ReadyWhy, "phase "+cmp.Or(m.Phase, "new"))
	}
}

// upToDate merges whether the machines are what the template makes. A machine is given a moment until that is known.
func upToDate(o Observed) Condition {
	t := tally{}
	for _, m := range o.Members {
		switch {
		case m.UpToDate != "":
			t.add(m.Name, m.UpToDate, m.UpToDateWhy)
		case !o.Now.Before(m.Created.Add(youngUntil)):
			t.add(m.Name, Unknown, "Condition UpToDate not yet reported")
		}
	}
	return t.condition(vocabulary.ConditionMachinesUpToDate, "UpToDate")
}

// remediating tells which machines are replaced because they failed or are unhealthy, and which of these wait.
func remediating(o Observed) Condition {
	const kind = vocabulary.ConditionRemediating
	why := map[string]string{}
	for _, s := range postponed(o, o.live()) {
		why[s.name] = s.message
	}
	var replaced []said
	var others []string
	for _, m := range o.Members {
		switch {
		case m.toReplace(), m.marked() && !m.protected():
			replaced = append(replaced, said{m.Name, cmp.Or(why[m.Name], saysDeleting)})
		case m.HealthCheck == False, m.Failed && !m.Deleting:
			others = append(others, m.Name)
		}
	}
	are := phrase.OneOf(len(others), " is ", " are ")
	message := phrase.If(len(others) > 0, "%snot healthy (not to be remediated by MachineSet)", subject(others)+are)
	return cmp.Or(
		when(len(replaced) > 0, kind, True, kind, strings.Join(lines(replaced, maxLines, "other issues"), "\n")),
		Condition{kind, False, "NotRemediating", message},
	)
}

// tally collects what is said of each machine.
type tally map[Answer][]said

func (t tally) add(name string, a Answer, message string) {
	if a != True && a != False {
		a = Unknown
	}
	t[a] = append(t[a], said{name, message})
}

// condition is False when one machine says no, then Unknown when one does not know, else True.
func (t tally) condition(kind, word string) Condition {
	text := lines(t[False], maxLines, "other issues")
	text = append(text, lines(t[Unknown], maxLines-min(len(text), maxLines), "status unknown")...)
	message := strings.Join(text, "\n")
	return cmp.Or(
		when(len(t) == 0, kind, True, "NoReplicas", ""),
		when(len(t[False]) > 0, kind, False, "Not"+word, message),
		when(len(t[Unknown]) > 0, kind, Unknown, word+"Unknown", message),
		Condition{kind, True, word, ""},
	)
}

// lines says each message once, with the machines that it is about: the most frequent first, then by the machines' names.
func lines(all []said, most int, rest string) []string {
	names := map[string][]string{}
	for _, s := range all { // by name
		names[s.message] = append(names[s.message], s.name)
	}
	messages := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(names[b]), len(names[a])), cmp.Compare(names[a][0], names[b][0]), cmp.Compare(a, b))
	})
	var result []string
	left := len(all)
	for _, message := range messages[:min(most, len(messages))] {
		result = append(result, "* "+subject(names[message])+": "+strings.ReplaceAll(message, "\n", "\n  "))
		left -= len(names[message])
	}
	if left > 0 {
		result = append(result, "And "+phrase.Count(left, "Machine")+" with "+rest)
	}
	return result
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

// wanted is the size that counts.
func (o Observed) wanted() int {
	if o.Deleting {
		return 0
	}
	return o.Replicas
}

// when is a condition that is told only sometimes; the zero Condition at other times.
func when(holds bool, kind string, status Answer, reason, message string) Condition {
	if !holds {
		return Condition{}
	}
	return Condition{kind, status, reason, message}
}

// created tells whether the machines that are missing are being made.
func created(o Observed) Condition {
	const kind = vocabulary.ConditionMachinesCreated
	lacks, blocked, failed := o.wanted() > len(o.live()), strings.Join(blockers(o), "; "), o.LastFailure
	return cmp.Or(
		when(lacks && len(o.Missing) > 0, kind, False, "TemplateNotFound", missing(o)),
		when(lacks && len(preflight.Decide(o.Preflight)) > 0, kind, False, "PreflightCheckFailed", blocked),
		when(lacks && blocked != "", kind, False, "ScaleUpStopped", blocked),
		when(lacks && o.Invalid != "", kind, False, "MachineSetInvalid", o.Invalid),
		when(lacks && failed.Message != "" && !failed.Deleting, kind, False, "MachineCreationFailed", failed.Message),
		Condition{kind, True, kind, ""},
	)
}

// scalingUp is True until the wanted machines are there and each has been ready once. A machine that was ready and is not
// any more is no scaling.
func scalingUp(o Observed) Condition {
	const kind = vocabulary.ConditionScalingUp
	live := o.live()
	joining := list.Count(live, func(m Member) bool { return !m.Joined && !m.Failed })
	message := fmt.Sprintf("Scaling up from %d to %d replicas", len(live), o.Replicas)
	if why := phrase.Parts(slices.Concat(blockers(o), o.pauses(), []string{o.Invalid})...); len(why) > 0 { // whatever it is
		message += " is blocked because:\n* " + strings.Join(why, "\n* ")
	}
	waits := fmt.Sprintf("Scaling up to %d replicas: waiting for %s to become ready", o.Replicas, machines(joining))
	return cmp.Or(
		when(len(live) < o.wanted(), kind, True, kind, message),
		when(len(live) == o.wanted() && joining > 0, kind, True, kind, waits),
		when(!o.Deleting && len(o.Missing) > 0, kind, False, "NotScalingUp", "Scaling up would be blocked because "+missing(o)),
		Condition{kind, False, "NotScalingUp", ""},
	)
}

// scalingDown is True until the objects of surplus machines are gone, and not while machines are missing.
func scalingDown(o Observed) Condition {
	const kind = vocabulary.ConditionScalingDown
	message := fmt.Sprintf("Scaling down from %d to %d replicas", len(o.Members), o.wanted()) + staleLine(o)
	return cmp.Or(
		when(len(o.Members) > o.wanted() && len(o.live()) >= o.wanted(), kind, True, kind, message),
		Condition{kind, False, "NotScalingDown", ""},
	)
}

// deleting tells how far the deletion of the set is.
func deleting(o Observed) Condition {
	const kind = vocabulary.ConditionDeleting
	return cmp.Or(
		when(!o.Deleting, kind, False, "NotDeleting", ""),
		when(len(o.Members) == 0, kind, True, kind, "Deletion completed"),
		Condition{kind, True, kind, "Deleting " + phrase.Count(len(o.Members), "Machine") + staleLine(o)},
	)
}

// paused tells whether somebody wants the set to rest, and who.
func paused(o Observed) Condition {
	if why := o.pauses(); len(why) > 0 {
		return Condition{vocabulary.ConditionPaused, True, vocabulary.ConditionPaused, strings.Join(why, ", ")}
	}
	return Condition{vocabulary.ConditionPaused, False, "NotPaused", ""}
}

// staleLine names the machines whose deletion takes long; empty when there are none.
func staleLine(o Observed) string {
	var names []string
	for _, m := range o.Members {
		if m.Deleting && !m.DeletingSince.IsZero() && !o.Now.Before(m.DeletingSince.Add(staleAfter)) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "\n* " + subject(names) + phrase.OneOf(len(names), " is ", " are ") + "in deletion since more than 15m"
}
