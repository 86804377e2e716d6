package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Machine is what the status of a Machine says about its present step, and what the commands that change it need to
// know.
type Machine struct {
	Namespace, Name, Node string
	Class                 string // name of its class
	// namespace and name of the Secret with the credentials of its class, separated by a slash; empty: not known
	Secret  string
	Lenders []string // namespaces and names of the Secrets of other namespaces that its class names

	Owned     bool // a set replaces it when it fails
	Deleting  bool
	Step      string // of the vocabulary; empty: it is calm
	Cause     string
	BlockedBy []string
	Since     time.Time
	Deadline  time.Time // of the step; zero: none
	Stopped   time.Time // since when its creation waits for a person; zero: it does not

	Means    drain.Means // the present means of the drain; empty: no drain is under way
	Then     drain.Means // the means that follows at the end of the step; empty: the drain ends then
	Hook     string      // key of the first annotation that is a hook of the present stage; empty: none
	Now      time.Time   // of the decision
	Unserved string      // why no worker serves the provider of its class; empty: one does, or that is not known
}

// WaitsFor returns what a machine waits for; the zero Wait for a machine that is calm.
func (m Machine) WaitsFor() Wait {
	if m.Step == "" {
		return Wait{}
	}
	// these two come from an earlier report of this function
	m.BlockedBy = list.Where(
		m.BlockedBy,
		func(name string) bool { return name != vocabulary.BlockedNoWorker && name != vocabulary.BlockedCall },
	)
	w := Wait{Goal: m.goal(), Blockers: m.BlockedBy, Cause: m.cause(), Since: m.Since}
	w.Next, w.At = m.next()
	w.Again = m.refused()
	if m.Unserved != "" && m.calls() {
		w.Blockers = []string{vocabulary.BlockedNoWorker}
		w.Cause = m.Unserved
		w.Command = "millwright provider list -n " + m.Namespace
		return w
	}
	switch {
	case !m.slow():
	case m.Step == vocabulary.StepDeleteInstance: // it answers, perhaps, that the instance is still shutting down
		w.Blockers, w.Cause = []string{vocabulary.BlockedCall}, "the provider has not deleted the instance yet"
		w.Next, w.At = repeated(), time.Time{}
	default:
		w.Blockers, w.Cause = []string{vocabulary.BlockedCall}, "the provider has not answered the call "+m.Step
	}
	if m.Step == vocabulary.StepAwaitRecovery && len(w.Blockers) == 0 {
		w.Blockers = []string{vocabulary.BlockedNode}
	}
	w.Command = m.command(w)
	return w
}

// cause returns the cause without the name of the machine or of its node, so that machines with the same cause are one
// group.
func (m Machine) cause() string {
	cause := strings.TrimPrefix(m.Cause, "node "+m.Node+": ")
	if call, why, found := strings.Cut(cause, " of machine "+m.Name+": "); found && !strings.Contains(call, ":") {
		return why
	}
	return cause
}

// After which time a step that calls the provider counts as standing still. Each machine whose step lasts longer costs
// a signal and a write of its status. Sources: some clouds answer a create request only when the instance runs, after
// one to two minutes; an instance that shuts down in an orderly way takes longer.
const (
	slowCall     = 2 * time.Minute
	slowDeletion = 5 * time.Minute
)

// slow reports whether a step that calls the provider has lasted too long although nothing is known to block it.
func (m Machine) slow() bool {
	limit := slowCall
	if m.Step == vocabulary.StepDeleteInstance {
		limit = slowDeletion
	}
	return m.calls() && len(m.BlockedBy) == 0 && !m.Since.IsZero() && m.Now.Sub(m.Since) >= limit
}

// calls reports whether the machine's step is a call of its provider.
func (m Machine) calls() bool {
	switch m.Step {
	case vocabulary.StepCreateInstance,
		vocabulary.StepInitialiseInstance,
		vocabulary.StepInstanceStatus,
		vocabulary.StepDeleteInstance:
		return true
	default:
		return false
	}
}

// goal returns what the machine cannot do yet.
func (m Machine) goal() Words {
	switch {
	case m.Deleting:
		return Words{"waits to leave", "wait to leave"}
	case m.Means != "":
		return Words{"waits for its node to be empty", "wait for their nodes to be empty"}
	}
	switch m.Step {
	case vocabulary.StepAwaitNode:
		return Words{"waits for its node to join", "wait for their nodes to join"}
	case vocabulary.StepAwaitRecovery:
		return Words{"waits for its node to recover", "wait for their nodes to recover"}
	case vocabulary.StepAwaitReplacement:
		return Words{"waits to be replaced", "wait to be replaced"}
	case vocabulary.StepAwaitUpdate, vocabulary.StepUpdateInPlace:
		return Words{"waits for the update of its node", "wait for the updates of their nodes"}
	case vocabulary.StepSyncNode, vocabulary.StepPreserve:
		return Words{"waits for its node to be written", "wait for their nodes to be written"}
	case vocabulary.StepHeld, vocabulary.StepDrain:
		return Words{"waits for its node to be empty", "wait for their nodes to be empty"}
	default:
		return Words{"waits for its instance", "wait for their instances"}
	}
}

// next says what happens at the end of the step. The deletion of an instance has no end: its call is repeated.
func (m Machine) next() (Words, time.Time) {
	switch {
	case m.Step == vocabulary.StepHeld:
		return Words{
			"nothing more happens until somebody resumes it",
			"nothing more happens until somebody resumes them",
		}, time.Time{}
	case m.volumes() && !m.Now.Before(m.Deadline): // the report of what follows is on its way
		return Words{"it goes on without the volume now", "they go on without the volumes now"}, time.Time{}
	case m.volumes():
		return Words{"it goes on without the volume", "they go on without the volumes"}, m.Deadline
	case m.Means != "":
		return m.then()
	case m.calls() && (m.Deleting || m.refused()):
		return m.again()
	case m.Deadline.IsZero():
		return m.writtenAgain(), time.Time{}
	}
	switch m.Step {
	case vocabulary.StepAwaitReplacement, vocabulary.StepPreserved:
		return Words{}, time.Time{}
	}
	end := Words{"it fails and is replaced", "they fail and are replaced"}
	if !m.Owned { // it is not made, does not join or does not recover in time
		end = Words{"it counts as failed", "they count as failed"}
	}
	if m.calls() && m.repeats() && m.Unserved == "" {
		end = Words{triedAgain().One + "; " + end.One, triedAgain().Many + "; " + end.Many}
	}
	return end, m.Deadline
}

// triedAgain says what happens to a creation that the provider refuses, and to a write that an API server refuses.
func triedAgain() Words { return Words{"it is tried again", "they are tried again"} }

// again says when a refused call, or the call that deletes an instance, is tried again.
func (m Machine) again() (Words, time.Time) {
	switch {
	case m.refused():
		return triedAgain(), m.Stopped.Add(RecheckStuck)
	case !m.Deadline.IsZero() || !m.repeats():
		return Words{}, time.Time{}
	case m.endures():
		every := " at least every " + phrase.Length(RecheckStuck)
		return Words{repeated().One + every, repeated().Many + every}, time.Time{}
	default:
		return repeated(), time.Time{}
	}
}

// repeated says what happens to a call that fails.
func repeated() Words { return Words{"the call is repeated", "the calls are repeated"} }

// then says what a drain does at the end of its present means.
func (m Machine) then() (Words, time.Time) {
	switch {
	case m.Then == drain.Kill:
		return Words{"its pods are killed", "their pods are killed"}, m.Deadline
	case m.Then != "":
		return Words{"its pods are deleted", "their pods are deleted"}, m.Deadline
	case m.Means.Ordered() && m.Deadline.IsZero(): // evictions without an end
		return Words{}, time.Time{}
	default:
		return Words{"it goes on without the pods that are left", "they go on without the pods that are left"}, m.Deadline
	}
}

// volumes reports whether only volumes block the machine.
func (m Machine) volumes() bool {
	for _, name := range m.BlockedBy {
		if kind, _, _ := strings.Cut(name, " "); kind != drain.BlockedByVolume {
			return false
		}
	}
	return len(m.BlockedBy) > 0 && !m.Deadline.IsZero()
}

// writtenAgain says when a write that an API server refused is tried again; empty: none was refused.
func (m Machine) writtenAgain() Words {
	if !slices.Contains(m.BlockedBy, vocabulary.BlockedRefused) &&
		!slices.Contains(m.BlockedBy, vocabulary.BlockedNodeRefused) {
		return Words{}
	}
	every := " at least every " + phrase.Length(RefusedMost)
	return Words{triedAgain().One + every, triedAgain().Many + every}
}

// refused reports whether the provider has refused a creation until a person changes something.
func (m Machine) refused() bool {
	return m.calls() && !m.Deleting && !m.Stopped.IsZero() && m.repeats()
}

// endures reports whether what blocks the machine is a provider's refusal that stays until a person changes something.
func (m Machine) endures() bool {
	return slices.Contains([]string{
		"Unauthenticated",
		"PermissionDenied",
		"InvalidArgument",
		"FailedPrecondition",
		"OutOfRange",
		"Unimplemented",
		"AlreadyExists",
	}, m.BlockedBy[0])
}

// repeats reports whether a call is repeated without a person.
func (m Machine) repeats() bool {
	return len(m.BlockedBy) > 0 && !m.needsPerson(m.BlockedBy[0])
}

// needsPerson reports whether a problem of a call stays until a person changes something.
func (m Machine) needsPerson(reason string) bool {
	return reason == vocabulary.BlockedRefused || NeedsPerson([]string{reason})
}

// command returns the command that changes what blocks the machine, or shows it; empty if none is known.
func (m Machine) command(w Wait) string {
	if !w.Blocked() {
		return ""
	}
	kind, name, _ := strings.Cut(w.Blockers[0], " ")
	name, _, _ = strings.Cut(name, " and ")
	if command := cmp.Or(m.ofDrain(kind, name), m.ofClass(kind)); command != "" {
		return command
	}
	switch {
	case kind == vocabulary.BlockedRefused:
		return fmt.Sprintf("kubectl describe machine -n %s %s", m.Namespace, m.Name)
	case m.Hook != "":
		return fmt.Sprintf("kubectl annotate machine -n %s %s %s-", m.Namespace, m.Name, m.Hook)
	case kind == "ResourceExhausted", kind == vocabulary.BlockedCall: // it shows the open call, or when the next one is
		return fmt.Sprintf("millwright explain machine/%s -n %s", m.Name, m.Namespace)
	case kind == vocabulary.ConditionReplacementHeld: // the machines are hardly the cause
		return "kubectl get nodes"
	case m.Step == vocabulary.StepAwaitReplacement:
		return fmt.Sprintf("kubectl delete machine -n %s %s", m.Namespace, m.Name)
	case m.calls():
		return fmt.Sprintf("millwright provider check -n %s %s", m.Namespace, m.Class)
	default:
		return ""
	}
}

// ofDrain returns the command against a blocker of this kind and name, if it is one of a node or of a drain.
func (m Machine) ofDrain(kind, name string) string {
	switch kind {
	case vocabulary.BlockedHold:
		return m.starter("resume")
	case vocabulary.BlockedTargetUnavailable:
		return m.starter("skip") + giveReason
	case vocabulary.BlockedNode, vocabulary.BlockedNodeRefused, vocabulary.BlockedOwnership:
		return "kubectl describe node " + m.Node
	case drain.BlockedByBudget:
		return "kubectl edit pdb" + in(name)
	case drain.BlockedByVolume:
		return "kubectl describe pv " + name
	case drain.BlockedByNamespace,
		drain.BlockedByProtection,
		drain.BlockedByWork,
		drain.BlockedByEnding,
		drain.BlockedByError:
		return m.starter("explain")
	default:
		return ""
	}
}

// ofClass returns the command against a problem with the class, its Secret or what they say.
func (m Machine) ofClass(reason string) string {
	switch reason {
	case vocabulary.ReasonClassNotFound:
		return "kubectl get machineclasses -n " + m.Namespace
	case vocabulary.ReasonClassInvalid, "InvalidArgument", "OutOfRange", "Unimplemented":
		return fmt.Sprintf("kubectl edit machineclass -n %s %s", m.Namespace, m.Class)
	case vocabulary.ReasonSecretNotFound, vocabulary.ReasonSecretInvalid, "Unauthenticated", "PermissionDenied":
		switch {
		case m.Secret == "":
			return fmt.Sprintf("kubectl describe machineclass -n %s %s", m.Namespace, m.Class)
		case reason == vocabulary.ReasonSecretNotFound:
			return "kubectl create secret generic" + in(m.Secret) + " --from-file …"
		default:
			return "kubectl edit secret" + in(m.Secret)
		}
	case vocabulary.ReasonSecretNotAllowed:
		return cmp.Or(m.allow(), fmt.Sprintf("kubectl describe machineclass -n %s %s", m.Namespace, m.Class))
	default:
		return ""
	}
}

// allow returns the command that lets the class use its Secrets of another namespace; empty if they are in several.
func (m Machine) allow() string {
	from, names := "", ""
	for _, key := range m.Lenders {
		namespace, name, _ := strings.Cut(key, "/")
		if from != "" && from != namespace {
			return ""
		}
		from, names = namespace, names+" "+name
	}
	return phrase.If(
		names != "",
		"kubectl annotate secret -n %s%s %s=%s",
		from,
		names,
		vocabulary.AnnotationAllowedClassNamespaces,
		m.Namespace,
	)
}

// giveReason ends a command that needs a reason.
const giveReason = " --reason …"

func (m Machine) starter(command string) string {
	return fmt.Sprintf("millwright drain %s %s/%s", command, m.Namespace, m.Name)
}

// in returns the arguments that name an object of a namespace.
func in(key string) string {
	namespace, name, found := strings.Cut(key, "/")
	if !found {
		return " " + key
	}
	return " -n " + namespace + " " + cmp.Or(name, "-")
}
