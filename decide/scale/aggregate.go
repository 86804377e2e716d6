package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what a condition about all machines says. Source: Cluster API.
const (
	maxLines = 3 // different messages
	maxNames = 3 // machines that one message names
)

// ready merges what is said of each machine's readiness.
func ready(o Observed) Condition {
	var t tally
	for _, m := range o.Members {
		answer, why := m.readiness()
		t.add(m.Name, answer, why)
	}
	return t.condition(o, "MachinesReady", "Ready")
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
	var t tally
	for _, m := range o.Members {
		switch {
		case m.UpToDate != "":
			t.add(m.Name, m.UpToDate, m.UpToDateWhy)
		case !o.Now.Before(m.Created.Add(youngUntil)):
			t.add(m.Name, Unknown, "Condition UpToDate not yet reported")
		}
	}
	return t.condition(o, "MachinesUpToDate", "UpToDate")
}

// remediating tells which machines are replaced because they failed or are unhealthy, and which of these wait.
func remediating(o Observed) Condition {
	const kind = "Remediating"
	if o.ListFailed {
		return unlisted(kind)
	}
	why := map[string]string{}
	for _, s := range postponed(o, o.live()) {
		why[s.name] = s.message
	}
	var replaced []said
	var others []string
	for _, m := range o.Members {
		switch {
		case m.toReplace(), m.Marked && m.HealthCheck == False && !m.protected():
			replaced = append(replaced, said{m.Name, cmp.Or(why[m.Name], saysDeleting)})
		case m.HealthCheck == False, m.Failed && !m.Deleting:
			others = append(others, m.Name)
		}
	}
	switch {
	case len(replaced) > 0:
		return Condition{kind, True, "Remediating", strings.Join(lines(replaced, maxLines, "other issues"), "\n")}
	case len(others) > 0:
		return Condition{kind, False, "NotRemediating", subject(others) + be(others) + "not healthy (not to be remediated by MachineSet)"}
	default:
		return Condition{kind, False, "NotRemediating", ""}
	}
}

// tally collects what is said of each machine.
type tally struct {
	all             int
	issues, unknown []said
}

func (t *tally) add(name string, a Answer, message string) {
	t.all++
	switch a {
	case True:
	case False:
		t.issues = append(t.issues, said{name, message})
	default:
		t.unknown = append(t.unknown, said{name, message})
	}
}

// condition is False when one machine says no, then Unknown when one does not know, else True.
func (t *tally) condition(o Observed, kind, word string) Condition {
	text := lines(t.issues, maxLines, "other issues")
	text = append(text, lines(t.unknown, maxLines-min(len(text), maxLines), "status unknown")...)
	c := Condition{Type: kind, Message: strings.Join(text, "\n")}
	switch {
	case o.ListFailed:
		return unlisted(kind)
	case t.all == 0:
		c.Status, c.Reason = True, "NoReplicas"
	case len(t.issues) > 0:
		c.Status, c.Reason = False, "Not"+word
	case len(t.unknown) > 0:
		c.Status, c.Reason = Unknown, word+"Unknown"
	default:
		c.Status, c.Reason = True, word
	}
	return c
}

// lines says each message once, with the machines that it is about: the most frequent first, then by the machines' names.
func lines(all []said, most int, rest string) []string {
	names := map[string][]string{}
	var messages []string
	for _, s := range all { // by name
		if names[s.message] == nil {
			messages = append(messages, s.message)
		}
		names[s.message] = append(names[s.message], s.name)
	}
	slices.SortStableFunc(messages, func(a, b string) int { return cmp.Compare(len(names[b]), len(names[a])) })
	var result []string
	left := 0
	for i, message := range messages {
		if i >= most {
			left += len(names[message])
			continue
		}
		result = append(result, "* "+subject(names[message])+": "+strings.ReplaceAll(message, "\n", "\n  "))
	}
	switch {
	case left == 1:
		result = append(result, "And 1 Machine with "+rest)
	case left > 1:
		result = append(result, fmt.Sprintf("And %d Machines with %s", left, rest))
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

func be(names []string) string {
	if len(names) == 1 {
		return " is "
	}
	return " are "
}
