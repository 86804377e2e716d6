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

// statement is a sentence about a deletion or a drain. A user can change the deletion or the drain with the commands.
type statement struct {
	text     string
	commands []string
}

// String returns the sentence; a second line has the commands, if there are any.
func (s statement) String() string {
	if len(s.commands) == 0 {
		return s.text + "."
	}
	return s.text + ";\nto change that: " + joinCommands(s.commands) + "."
}

// statement describes what blocks a deletion and since when, and what happens next without a person and when.
func (s snapshot) statement() statement {
	m := s.machine
	if isHeld(m) {
		return s.holdStatement()
	}
	switch {
	case isDrainedWithoutDeletion(m):
		return s.drainStatement()
	case isTargetUnavailable(m):
		return s.targetUnavailableStatement()
	}
	switch deletionStage(m) {
	case v1alpha1.MachineDeletionPreDrainHooks:
		return s.hooksStatement("pre-drain", v1alpha1.AnnotationPreDrainHook)
	case v1alpha1.MachineDeletionPreTerminateHooks:
		return s.hooksStatement("pre-terminate", v1alpha1.AnnotationPreTerminateHook)
	case v1alpha1.MachineDeletionDrain:
		return s.drainStatement()
	case v1alpha1.MachineDeletionDetach:
		return s.detachStatement()
	case v1alpha1.MachineDeletionInstance:
		return s.instanceStatement()
	case v1alpha1.MachineDeletionNode:
		return s.newStatement(
			nil,
			"the instance is gone, and since %s the remains of node %s are removed",
			s.stageStartText(),
			s.nodeName(),
		)
	case v1alpha1.MachineDeletionRelease:
		return s.newStatement(
			nil,
			"instance and node have been gone since %s, and the object is removed next",
			s.stageStartText(),
		)
	default:
		return s.newStatement(
			nil,
			"the deletion was asked for at %s, and nothing is recorded yet%s",
			s.stageStartText(),
			s.overdueHint(),
		)
	}
}

// targetUnavailableStatement describes a deletion that waits for a target cluster that does not answer. The wait
// started at lastOperation.lastUpdateTime. Without this time, or for a Cluster API Machine, the wait started at
// currentOperation.since.
func (s snapshot) targetUnavailableStatement() statement {
	m := s.machine
	if observe.IsClusterAPIMachine(m) {
		return s.newStatement(
			[]string{s.requestCommandLine(request.Skip, kubecli.ExampleReasonFlag)},
			"since %s it waits: %s; it continues when that cluster answers; this step has no deadline; skip continues without the drain",
			kubecli.TimeWithAgeText(m.Status.CurrentOperation.Since.Time, s.now),
			s.waitText(),
		)
	}
	at := m.Status.LastOperation.LastUpdateTime.Time
	if at.IsZero() {
		at = m.Status.CurrentOperation.Since.Time
	}
	const own = "it continues when that cluster answers; this step has no deadline; "
	what := cmp.Or(m.Status.LastOperation.Description, "the target cluster does not answer")
	if isInstanceGone(m) {
		return s.newStatement(
			[]string{s.requestCommandLine(request.AbandonInstance, kubecli.ExampleReasonFlag)},
			"since %s it waits: %s; "+own+"abandon-instance removes the object and leaves the remains of node %s",
			kubecli.TimeWithAgeText(at, s.now),
			what,
			s.nodeName(),
		)
	}
	return s.newStatement(
		[]string{
			s.requestCommandLine(request.Skip, kubecli.ExampleReasonFlag),
			s.requestCommandLine(request.AbandonInstance, kubecli.ExampleReasonFlag),
		},
		"since %s it waits: %s; "+own+"skip continues without the drain; abandon-instance, the last resort, also leaves the instance running",
		kubecli.TimeWithAgeText(at, s.now),
		what,
	)
}

// holdStatement describes a deletion or drain that is held. A hold does not move the deadline of the drain.
func (s snapshot) holdStatement() statement {
	m, commands, clock := s.machine, []string{s.requestCommandLine(request.Resume)}, "this step has no deadline"
	if at := observe.DeadlineFacts(m, s.now).
		NextDeadline(); observe.CurrentRemovalMeans(m).KeepsPodOrder() &&
		!at.IsZero() {
		clock = "its deadline is not moved: resumed after " + phrase.TimeText(at, s.now) + ", it deletes pods"
		commands = append(commands, s.requestCommandLine(request.Extend, "--for 1h", kubecli.ExampleReasonFlag))
	}
	who := cmp.Or(m.Annotations[v1alpha1.AnnotationHold], "by an unknown person")
	if isDrainedWithoutDeletion(m) {
		return s.newStatement(
			commands,
			"it is held (%s) while node %s is emptied for its %s, which began at %s: no pod is evicted until the hold ends; %s",
			who,
			s.nodeName(),
			drainPurpose(m),
			s.stageStartText(),
			clock,
		)
	}
	if deletionStage(m) == "" {
		return s.newStatement(commands, "it is held (%s) before its first stage: nothing happens until the hold ends", who)
	}
	return s.newStatement(
		commands,
		"it is held (%s) in stage %s, which began at %s: nothing more happens in it until the hold ends; %s",
		who,
		deletionStage(m),
		s.stageStartText(),
		clock,
	)
}

// newStatement returns a sentence that begins with the machine's name.
func (s snapshot) newStatement(commands []string, format string, args ...any) statement {
	return statement{kubecli.KeyOfObject(s.machine) + ": " + fmt.Sprintf(format, args...), commands}
}

// joinCommands joins commands to "`a`, `b` or `c`".
func joinCommands(commands []string) string {
	last := len(commands) - 1
	if last == 0 {
		return "`" + commands[0] + "`"
	}
	return "`" + strings.Join(commands[:last], "`, `") + "` or `" + commands[last] + "`"
}

func (s snapshot) stageStartText() string {
	return kubecli.TimeWithAgeText(deletionStageStart(s.machine), s.now)
}

func (s snapshot) nodeName() string { return cmp.Or(cache.NodeNameOfMachine(s.machine), "-") }

// requestCommandLine returns the command line of a request.
func (s snapshot) requestCommandLine(name request.Command, flags ...string) string {
	return strings.Join(
		slices.Concat([]string{"millwright drain", string(name), kubecli.KeyOfObject(s.machine)}, flags),
		" ",
	)
}

func (s snapshot) overdueHint() string {
	if isOverdue(s.machine, s.now) {
		return ": check that bridge and workers run"
	}
	return ""
}

// hooksStatement names the hook annotations that delay the deletion, and the commands that remove the annotations.
func (s snapshot) hooksStatement(kind, prefix string) statement {
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
		return s.newStatement(
			nil,
			"since %s it waited for %s hooks; none is left; it continues now",
			s.stageStartText(),
			kind,
		)
	}
	return s.newStatement(
		commands,
		"since %s it waits for the owner of each %s hook to remove it: %s; this step has no deadline",
		s.stageStartText(),
		kind,
		strings.Join(names, ", "),
	)
}

// detachStatement describes volumes that are not detached from the node yet.
func (s snapshot) detachStatement() statement {
	what := "the volumes"
	if len(s.volumes) > 0 {
		what = strings.Join(s.volumes, ", ")
	}
	end := "for --pv-detach-timeout of the workers; then it continues anyway"
	if at := observe.DeadlineFacts(s.machine, s.now).NextDeadline(); !at.IsZero() {
		end = "until " + phrase.TimeText(at, s.now) + "; then it continues anyway"
	}
	skip := fmt.Sprintf(
		"kubectl annotate machine -n %s %s %s=",
		s.machine.Namespace,
		s.machine.Name,
		v1alpha1.AnnotationExcludeDetach,
	)
	return s.newStatement(
		[]string{skip},
		"since %s it waits until %s are detached from node %s, %s",
		s.stageStartText(),
		what,
		s.nodeName(),
		end,
	)
}

// instanceStatement describes the deletion of the instance at the provider, which has no deadline.
func (s snapshot) instanceStatement() statement {
	m := s.machine
	what := "instance " + m.Spec.ProviderID
	if m.Spec.ProviderID == "" {
		what = "its instance (if any)"
	}
	code, message := deletionError(m)
	if code == "" {
		return s.newStatement(
			nil,
			"since %s the provider deletes %s, and this step has no deadline",
			s.stageStartText(),
			what,
		)
	}
	return s.newStatement(
		[]string{
			s.requestCommandLine(request.Retry),
			s.requestCommandLine(request.AbandonInstance, kubecli.ExampleReasonFlag),
		},
		"since %s the deletion of %s at the provider is blocked by %s: %s; this step has no deadline: repair what blocks it; abandon-instance is the last resort and leaves the instance running",
		s.stageStartText(),
		what,
		code,
		strings.TrimSuffix(message, "."),
	)
}

// deletionError returns the code and the message of the error that blocks the deletion of an instance; empty if there
// is no error.
func deletionError(m *v1alpha1.Machine) (code, message string) {
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
