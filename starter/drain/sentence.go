package drain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	observe "millwright/observe/drain"
	"millwright/starter/kubecli"
)

// sentence says what blocks a deletion, since when, and what happens without a person and when. A second line has the
// commands that change it.
func (s snapshot) sentence() string {
	m := s.machine
	if held(m) {
		return s.holding()
	}
	switch {
	case staying(m):
		return s.evictions()
	case targetAway(m):
		return s.targetUnavailable()
	}
	switch stage(m) {
	case v1alpha1.MachineDeletionPreDrainHooks:
		return s.hooked("pre-drain", v1alpha1.AnnotationPreDrainHook)
	case v1alpha1.MachineDeletionPreTerminateHooks:
		return s.hooked("pre-terminate", v1alpha1.AnnotationPreTerminateHook)
	case v1alpha1.MachineDeletionDrain:
		return s.evictions()
	case v1alpha1.MachineDeletionDetach:
		return s.detaching()
	case v1alpha1.MachineDeletionInstance:
		return s.terminating()
	case v1alpha1.MachineDeletionNode:
		return s.say(nil, "the instance is gone, and since %s the remains of node %s are removed", s.sinceStage(), s.node())
	case v1alpha1.MachineDeletionRelease:
		return s.say(nil, "instance and node have been gone since %s, and the object is removed next", s.sinceStage())
	default:
		return s.say(nil, "the deletion was asked for at %s, and nothing is recorded yet%s", s.sinceStage(), s.checkIfLate())
	}
}

// targetUnavailable describes a deletion that waits for a target cluster that does not answer. The time since when it
// waits is in status.currentOperation.
func (s snapshot) targetUnavailable() string {
	m := s.machine
	if observe.OfClusterAPI(m) {
		return s.say(
			[]string{s.command(request.Skip, kubecli.GiveReason)},
			"since %s it waits: %s; it continues when that cluster answers; this step has no deadline; skip continues without the drain",
			kubecli.Since(m.Status.CurrentOperation.Since.Time, s.now),
			s.waits(),
		)
	}
	at := m.Status.LastOperation.LastUpdateTime.Time
	if at.IsZero() {
		at = m.Status.CurrentOperation.Since.Time
	}
	const own = "it continues when that cluster answers; this step has no deadline; "
	what := cmp.Or(m.Status.LastOperation.Description, "the target cluster does not answer")
	if instanceGone(m) {
		return s.say(
			[]string{s.command(request.AbandonInstance, kubecli.GiveReason)},
			"since %s it waits: %s; "+own+"abandon-instance removes the object and leaves the remains of node %s",
			kubecli.Since(at, s.now),
			what,
			s.node(),
		)
	}
	return s.say(
		[]string{s.command(request.Skip, kubecli.GiveReason), s.command(request.AbandonInstance, kubecli.GiveReason)},
		"since %s it waits: %s; "+own+"skip continues without the drain; abandon-instance, the last resort, also leaves the instance running",
		kubecli.Since(at, s.now),
		what,
	)
}

// holding describes a deletion that is held. A hold does not stop the clock of its drain.
func (s snapshot) holding() string {
	m, commands, clock := s.machine, []string{s.command(request.Resume)}, "this step has no deadline"
	if at := observe.Deadlines(m, s.now).Next(); observe.Means(m).Ordered() && !at.IsZero() {
		clock = "its deadline is not moved: resumed after " + phrase.When(at, s.now) + ", it deletes pods"
		commands = append(commands, s.command(request.Extend, "--for 1h", kubecli.GiveReason))
	}
	who := cmp.Or(m.Annotations[v1alpha1.AnnotationHold], "by an unknown person")
	if staying(m) {
		return s.say(
			commands,
			"it is held (%s) while node %s is emptied for its %s, which began at %s: no pod is evicted until the hold ends; %s",
			who,
			s.node(),
			goal(m),
			s.sinceStage(),
			clock,
		)
	}
	if stage(m) == "" {
		return s.say(commands, "it is held (%s) before its first stage: nothing happens until the hold ends", who)
	}
	return s.say(
		commands,
		"it is held (%s) in stage %s, which began at %s: nothing more happens in it until the hold ends; %s",
		who,
		stage(m),
		s.sinceStage(),
		clock,
	)
}

// say returns a sentence that begins with the machine's name and ends with the commands, if there are any.
func (s snapshot) say(commands []string, format string, args ...any) string {
	text := kubecli.KeyOf(s.machine) + ": " + fmt.Sprintf(format, args...)
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

func (s snapshot) sinceStage() string { return kubecli.Since(stageSince(s.machine), s.now) }

func (s snapshot) node() string { return cmp.Or(cache.NodeNameOf(s.machine), "-") }

// command is the command line of a request.
func (s snapshot) command(name request.Command, flags ...string) string {
	return strings.Join(slices.Concat([]string{"millwright drain", string(name), kubecli.KeyOf(s.machine)}, flags), " ")
}

func (s snapshot) checkIfLate() string {
	if late(s.machine, s.now) {
		return ": check that bridge and workers run"
	}
	return ""
}

// hooked says which annotations hold the deletion, and how to remove them.
func (s snapshot) hooked(kind, prefix string) string {
	m := s.machine
	var names, commands []string
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		if key != prefix && !strings.HasPrefix(key, prefix+"/") {
			continue
		}
		name := key
		if value := m.Annotations[key]; value != "" {
			name += " (" + value + ")"
		}
		names = append(names, name)
		commands = append(commands, fmt.Sprintf("kubectl annotate machine -n %s %s %s-", m.Namespace, m.Name, key))
	}
	if len(names) == 0 {
		return s.say(nil, "since %s it waited for %s hooks; none is left; it continues now", s.sinceStage(), kind)
	}
	return s.say(
		commands,
		"since %s it waits for the owner of each %s hook to remove it: %s; this step has no deadline",
		s.sinceStage(),
		kind,
		strings.Join(names, ", "),
	)
}

// detaching describes volumes that are not detached from the node yet.
func (s snapshot) detaching() string {
	what := "the volumes"
	if len(s.volumes) > 0 {
		what = strings.Join(s.volumes, ", ")
	}
	end := "for --pv-detach-timeout of the workers; then it continues anyway"
	if at := observe.Deadlines(s.machine, s.now).Next(); !at.IsZero() {
		end = "until " + phrase.When(at, s.now) + "; then it continues anyway"
	}
	skip := fmt.Sprintf(
		"kubectl annotate machine -n %s %s %s=",
		s.machine.Namespace,
		s.machine.Name,
		v1alpha1.AnnotationExcludeDetach,
	)
	return s.say(
		[]string{skip},
		"since %s it waits until %s are detached from node %s, %s",
		s.sinceStage(),
		what,
		s.node(),
		end,
	)
}

// terminating describes the deletion of the instance at the provider, which has no deadline.
func (s snapshot) terminating() string {
	m := s.machine
	what := "instance " + m.Spec.ProviderID
	if m.Spec.ProviderID == "" {
		what = "its instance (if any)"
	}
	code, message := problem(m)
	if code == "" {
		return s.say(nil, "since %s the provider deletes %s, and this step has no deadline", s.sinceStage(), what)
	}
	return s.say(
		[]string{s.command(request.Retry), s.command(request.AbandonInstance, kubecli.GiveReason)},
		"since %s the deletion of %s at the provider is blocked by %s: %s; this step has no deadline: repair what blocks it; abandon-instance is the last resort and leaves the instance running",
		s.sinceStage(),
		what,
		code,
		strings.TrimSuffix(message, "."),
	)
}

// problem returns the code and the sentence of what blocks the deletion of an instance.
func problem(m *v1alpha1.Machine) (code, message string) {
	last := m.Status.LastOperation
	if o := m.Status.CurrentOperation; o != nil {
		code = strings.Join(o.BlockedBy, ", ")
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
