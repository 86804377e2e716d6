package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/verb"
	"millwright/observe"
)

// sentence tells a tired operator what blocks a deletion, since when, what happens by itself and when that is, and on a second
// line which command changes it.
func (s sight) sentence() string {
	m := s.machine
	if held(m) {
		return s.holding()
	}
	switch {
	case staying(m):
		return s.emptying()
	case targetAway(m):
		return s.unheard()
	}
	switch stage(m) {
	case v1alpha1.MachineDeletionPreDrainHooks:
		return s.hooked("pre-drain", v1alpha1.AnnotationPreDrainHook)
	case v1alpha1.MachineDeletionPreTerminateHooks:
		return s.hooked("pre-terminate", v1alpha1.AnnotationPreTerminateHook)
	case v1alpha1.MachineDeletionDrain:
		return s.emptying()
	case v1alpha1.MachineDeletionDetach:
		return s.detaching()
	case v1alpha1.MachineDeletionInstance:
		return s.terminating()
	case v1alpha1.MachineDeletionNode:
		return s.say(nil, "the instance is gone, and since %s what is left of node %s is removed", s.sinceStage(), s.node())
	case v1alpha1.MachineDeletionRelease:
		return s.say(nil, "instance and node are gone since %s, and the object is about to go", s.sinceStage())
	default:
		return s.say(nil, "the deletion was asked for at %s, and nothing is recorded yet%s", s.sinceStage(), s.doubtIfLate())
	}
}

// unheard tells of a target cluster that does not answer. The sentence of the status is as old as that is known.
func (s sight) unheard() string {
	m := s.machine
	at := m.Status.LastOperation.LastUpdateTime.Time
	if at.IsZero() {
		at = m.Status.CurrentOperation.Since.Time
	}
	const own = "it goes on by itself when that cluster answers, and no deadline ends that; "
	what := cmp.Or(m.Status.LastOperation.Description, "the target cluster does not answer")
	if instanceGone(m) {
		return s.say([]string{s.verb(release, giveReason)}, "since %s it waits: %s; "+own+"release lets the object go, and leaves what is there of node %s", since(at, s.now), what, s.node())
	}
	return s.say([]string{s.verb(skip, giveReason), s.verb(release, giveReason)},
		"since %s it waits: %s; "+own+"skip goes on without the drain, and release, the last resort, leaves the instance alone as well", since(at, s.now), what)
}

// holding tells of a deletion that a person stopped. The clock of its drain is not stopped.
func (s sight) holding() string {
	m, commands, clock := s.machine, []string{s.verb(resume)}, "no deadline ends that"
	if at := observe.StepDeadline(m, s.now); observe.DrainMeans(m) == drain.Evict && !at.IsZero() {
		clock = "its deadline is not moved: resumed after " + when(at, s.now) + ", it deletes pods"
		commands = append(commands, s.verb(extend, "--for 1h", giveReason))
	}
	who := cmp.Or(m.Annotations[v1alpha1.AnnotationHold], "nobody says who")
	if staying(m) {
		return s.say(commands, "it is held (%s) while node %s is emptied for its %s, which began at %s: no pod is asked until the hold is taken off; %s", who, s.node(), goal(m), s.sinceStage(), clock)
	}
	if stage(m) == "" {
		return s.say(commands, "it is held (%s) before its first stage: nothing is done until the hold is taken off", who)
	}
	return s.say(commands, "it is held (%s) in stage %s, which began at %s: nothing more is done in it until the hold is taken off; %s", who, stage(m), s.sinceStage(), clock)
}

// say begins with the machine and ends with the commands that change something.
func (s sight) say(commands []string, format string, args ...any) string {
	text := keyOf(s.machine) + ": " + fmt.Sprintf(format, args...)
	if len(commands) == 0 {
		return text + "."
	}
	return text + ";\nto change that: " + anyOf(commands) + "."
}

// anyOf joins commands to "`a`, `b` or `c`".
func anyOf(commands []string) string {
	last := len(commands) - 1
	if last == 0 {
		return "`" + commands[0] + "`"
	}
	return "`" + strings.Join(commands[:last], "`, `") + "` or `" + commands[last] + "`"
}

func (s sight) sinceStage() string { return since(stageSince(s.machine), s.now) }

func (s sight) node() string { return orDash(s.machine.Labels[v1alpha1.LabelNode]) }

// verb is the command line of one of the verbs.
func (s sight) verb(name verb.Verb, flags ...string) string {
	line := "starter drain " + string(name) + " " + keyOf(s.machine)
	for _, flag := range flags {
		line += " " + flag
	}
	return line
}

const giveReason = "--reason …"

func (s sight) doubtIfLate() string {
	if late(s.machine, s.now) {
		return ": nobody seems to work, so see whether bridge and workers run"
	}
	return ""
}

// hooked tells who holds the deletion by annotations, and how each is taken off.
func (s sight) hooked(kind, prefix string) string {
	m := s.machine
	var keys, names, commands []string
	for key := range m.Annotations {
		if key == prefix || strings.HasPrefix(key, prefix+"/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := key
		if value := m.Annotations[key]; value != "" {
			name += " (" + value + ")"
		}
		names = append(names, name)
		commands = append(commands, fmt.Sprintf("kubectl annotate machine -n %s %s %s-", m.Namespace, m.Name, key))
	}
	if len(keys) == 0 {
		return s.say(nil, "since %s it waited for %s hooks; none is left, and it is about to go on", s.sinceStage(), kind)
	}
	return s.say(commands, "since %s it waits until whoever set the %s hook takes it off: %s; no deadline ends that", s.sinceStage(), kind, strings.Join(names, ", "))
}

// detaching tells of volumes that are not detached from the node yet.
func (s sight) detaching() string {
	what := "the volumes"
	if len(s.volumes) > 0 {
		what = strings.Join(s.volumes, ", ")
	}
	end := "for as long as workers are told to wait (--pv-detach-timeout), and then it goes on without"
	if at := observe.StepDeadline(s.machine, s.now); !at.IsZero() {
		end = "until " + when(at, s.now) + ", and then it goes on without"
	}
	skip := fmt.Sprintf("kubectl annotate machine -n %s %s %s=", s.machine.Namespace, s.machine.Name, v1alpha1.AnnotationExcludeDetach)
	return s.say([]string{skip}, "since %s it waits until %s are detached from node %s, %s", s.sinceStage(), what, s.node(), end)
}

// terminating tells of the provider, which has no deadline.
func (s sight) terminating() string {
	m := s.machine
	what := "instance " + m.Spec.ProviderID
	if m.Spec.ProviderID == "" {
		what = "whatever instance it may have"
	}
	code, message := problem(m)
	if code == "" {
		return s.say(nil, "since %s the provider deletes %s, and no deadline ends that", s.sinceStage(), what)
	}
	return s.say([]string{s.verb(retry), s.verb(release, giveReason)},
		"since %s the provider is to delete %s, and it is blocked by %s: %s; no deadline ends that, mending it does; release is the last resort, and leaves the instance alone",
		s.sinceStage(), what, code, strings.TrimSuffix(message, "."))
}

// problem is what stands against the deletion of an instance: its code, and a sentence.
func problem(m *v1alpha1.Machine) (code, message string) {
	last := m.Status.LastOperation
	if o := m.Status.CurrentOperation; o != nil {
		code = o.LastError
	}
	if last.Type == v1alpha1.MachineOperationDelete && last.State == v1alpha1.MachineStateFailed {
		code = cmp.Or(code, last.ErrorCode)
	}
	if code == "" {
		return "", ""
	}
	message = strings.TrimPrefix(last.Description, "Cloud provider message - ")
	for _, c := range m.Status.Conditions {
		if (c.Type == v1alpha1.MachineInstanceReady || c.Type == v1alpha1.MachineClassReady) && c.Reason == code {
			message = c.Message
		}
	}
	return code, message
}
