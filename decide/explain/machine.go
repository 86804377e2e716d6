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

// Machine holds the facts from a Machine's status about its current step, and the names that the commands need.
type Machine struct {
	Namespace, Name, NodeName string
	ClassName                 string // name of the machine's class
	// CredentialsSecret is the namespace and name of the class's credentials Secret, separated by a slash; empty: unknown.
	CredentialsSecret     string
	OtherNamespaceSecrets []string // namespace/name of the Secrets in other namespaces that the machine's class names

	ReplacedBySet     bool // a set replaces the machine when it fails
	Deleting          bool
	Step              string // name of the step, from package vocabulary; empty: the machine waits for nothing
	Cause             string
	BlockedBy         []string
	Since             time.Time
	Deadline          time.Time // deadline of the step; zero: none
	CreationStoppedAt time.Time // when the machine's creation began to wait for a person; zero: it does not wait

	Means          drain.RemovalMeans // the drain's current means; empty: no drain
	NextMeans      drain.RemovalMeans // the next means, after this step; empty: the drain ends after this step
	HookKey        string             // key of the first hook annotation of the current stage; empty: none
	Now            time.Time          // time of the decision
	UnservedReason string             // why no worker serves the class's provider; empty: a worker does, or unknown
}

// CurrentWait returns the WaitState of the machine. If the machine waits for nothing, CurrentWait returns the zero
// WaitState.
func (m Machine) CurrentWait() WaitState {
	if m.Step == "" {
		return WaitState{}
	}
	// BlockedNoWorker and BlockedCall are removed, because they come from an earlier result of CurrentWait.
	m.BlockedBy = list.Filter(
		m.BlockedBy,
		func(name string) bool {
			return name != vocabulary.BlockedByMissingWorker && name != vocabulary.BlockedByProviderCall
		},
	)
	w := WaitState{Goal: m.goal(), Step: m.Step, Blockers: m.BlockedBy, Cause: m.cause(), Since: m.Since}
	w.NextEvent, w.NextEventTime = m.nextEvent()
	w.IsRepeated = m.isCreationRefused()
	if m.UnservedReason != "" && m.CallsProvider() {
		w.Blockers = []string{vocabulary.BlockedByMissingWorker}
		w.Cause = m.UnservedReason
		w.Command = "millwright provider list -n " + m.Namespace
		return w
	}
	switch {
	case !m.isSlow():
	case m.Step == vocabulary.StepDeleteInstance: // the provider may answer that the instance is still shutting down
		w.Blockers, w.Cause = []string{vocabulary.BlockedByProviderCall}, "the provider has not deleted the instance yet"
		w.NextEvent, w.NextEventTime = repeatedCallEvent(), time.Time{}
	default:
		w.Blockers, w.Cause = []string{vocabulary.BlockedByProviderCall}, "the provider has not answered the call "+m.Step
	}
	if m.Step == vocabulary.StepAwaitRecovery && len(w.Blockers) == 0 {
		w.Blockers = []string{vocabulary.BlockedByUnhealthyNode}
	}
	w.Command = m.command(w)
	return w
}

// cause returns the cause without the names of the machine and its node, so that machines with the same cause form one
// group.
func (m Machine) cause() string {
	cause := strings.TrimPrefix(m.Cause, "node "+m.NodeName+": ")
	if call, why, found := strings.Cut(cause, " of machine "+m.Name+": "); found && !strings.Contains(call, ":") {
		return why
	}
	return cause
}

// Durations after which a step that calls the provider counts as blocked. If the step lasts longer, each machine causes
// a signal and a write of its status. Sources: some clouds answer a create request only when the instance runs, after
// one to two minutes; an orderly shutdown takes longer.
const (
	slowCallAfter     = 2 * time.Minute
	slowDeletionAfter = 5 * time.Minute
)

// isSlow reports whether a step that calls the provider has lasted too long without a known blocker.
func (m Machine) isSlow() bool {
	limit := slowCallAfter
	if m.Step == vocabulary.StepDeleteInstance {
		limit = slowDeletionAfter
	}
	return m.CallsProvider() && len(m.BlockedBy) == 0 && !m.Since.IsZero() && m.Now.Sub(m.Since) >= limit
}

// CallsProvider reports whether the machine's step is a call of its provider.
func (m Machine) CallsProvider() bool {
	switch m.Step {
	case vocabulary.StepCreateInstance,
		vocabulary.StepInitialiseInstance,
		vocabulary.StepGetInstanceStatus,
		vocabulary.StepDeleteInstance:
		return true
	default:
		return false
	}
}

// goal returns the text for what the machine cannot do yet.
func (m Machine) goal() PhraseForms {
	switch {
	case m.Deleting:
		return PhraseForms{"waits to leave", "wait to leave"}
	case m.Means != "":
		return PhraseForms{"waits for its node to be empty", "wait for their nodes to be empty"}
	}
	switch m.Step {
	case vocabulary.StepAwaitNode:
		return PhraseForms{"waits for its node to join", "wait for their nodes to join"}
	case vocabulary.StepAwaitRecovery:
		return PhraseForms{"waits for its node to recover", "wait for their nodes to recover"}
	case vocabulary.StepAwaitReplacement:
		return PhraseForms{"waits to be replaced", "wait to be replaced"}
	case vocabulary.StepAwaitUpdate, vocabulary.StepPrepareInPlaceUpdate:
		return PhraseForms{"waits for the update of its node", "wait for the updates of their nodes"}
	case vocabulary.StepSyncNode, vocabulary.StepWritePreservation:
		return PhraseForms{"waits for its node to be written", "wait for their nodes to be written"}
	case vocabulary.StepHeldByOperator, vocabulary.StepDrain:
		return PhraseForms{"waits for its node to be empty", "wait for their nodes to be empty"}
	default:
		return PhraseForms{"waits for its instance", "wait for their instances"}
	}
}

// nextEvent returns what happens at the end of the step, and the time. The deletion of an instance has no
// deadline, because the provider's call is repeated.
func (m Machine) nextEvent() (Event, time.Time) {
	switch {
	case m.Step == vocabulary.StepHeldByOperator:
		return Event{PhraseForms{
			"nothing more happens until somebody resumes it",
			"nothing more happens until somebody resumes them",
		}, ""}, time.Time{}
	case m.waitsOnlyForVolumes() && !m.Now.Before(m.Deadline): // the drain's next report will arrive soon
		return Event{
			PhraseForms{"it goes on without the volume now", "they go on without the volumes now"},
			"goes on",
		}, time.Time{}
	case m.waitsOnlyForVolumes():
		return Event{PhraseForms{"it goes on without the volume", "they go on without the volumes"}, "goes on"}, m.Deadline
	case m.Means != "":
		return m.drainEndEvent()
	case m.CallsProvider() && (m.Deleting || m.isCreationRefused()):
		return m.callRetryEvent()
	case m.Deadline.IsZero():
		return m.writeRetryEvent(), time.Time{}
	}
	switch m.Step {
	case vocabulary.StepAwaitReplacement, vocabulary.StepAwaitPreservationEnd:
		return Event{}, time.Time{}
	}
	end := m.deadlineEvent()
	if m.CallsProvider() && m.repeatsCall() && m.UnservedReason == "" {
		advice := phrase.TextIf(m.BlockedBy[0] == "ResourceExhausted", ": ask the cloud for more, or scale down")
		again := retryWords()
		end.Singular, end.Plural = again.Singular+advice+"; "+end.Singular, again.Plural+advice+"; "+end.Plural
	}
	return end, m.Deadline
}

// deadlineEvent returns what happens at the deadline of the step if the machine has not reached the step's goal. The
// text of deadlineEvent begins with this condition, because a machine that is healthy but slow does not fail.
func (m Machine) deadlineEvent() Event {
	unless := PhraseForms{"if its instance is not ready", "if their instances are not ready"}
	switch m.Step {
	case vocabulary.StepAwaitNode:
		unless = PhraseForms{"if its node has not joined", "if their nodes have not joined"}
	case vocabulary.StepAwaitRecovery:
		unless = PhraseForms{"if its node has not recovered", "if their nodes have not recovered"}
	case vocabulary.StepAwaitUpdate, vocabulary.StepPrepareInPlaceUpdate:
		unless = PhraseForms{"if its update has not ended", "if their updates have not ended"}
	}
	return m.failureEvent(unless)
}

// failureEvent returns what happens to a machine that has not reached the step's goal at the deadline. A short text
// names the replacement only for a node that was healthy before: a machine that still boots has nothing to replace.
func (m Machine) failureEvent(unless PhraseForms) Event {
	short := "gives up"
	if m.Step == vocabulary.StepAwaitRecovery {
		short = "replaced"
	}
	if !m.ReplacedBySet {
		return Event{
			PhraseForms{unless.Singular + ", it counts as failed", unless.Plural + ", they count as failed"},
			"gives up",
		}
	}
	return Event{PhraseForms{unless.Singular + ", it is replaced", unless.Plural + ", they are replaced"}, short}
}

// retryWords returns the words for a retried creation or write.
func retryWords() PhraseForms { return PhraseForms{"it is tried again", "they are tried again"} }

// callRetryEvent returns the event and the time for the retry of a refused call, or of the call that deletes an
// instance.
func (m Machine) callRetryEvent() (Event, time.Time) {
	switch {
	case m.isCreationRefused():
		return Event{retryWords(), "retry"}, m.CreationStoppedAt.Add(StuckCallRetryPause)
	case !m.Deadline.IsZero() || !m.repeatsCall():
		return Event{}, time.Time{}
	case m.isLastingRefusal():
		every := " at least every " + phrase.DurationText(StuckCallRetryPause)
		again := repeatedCallEvent()
		again.Singular, again.Plural = again.Singular+every, again.Plural+every
		return again, time.Time{}
	default:
		return repeatedCallEvent(), time.Time{}
	}
}

// repeatedCallEvent returns the event of a repeated call.
func repeatedCallEvent() Event {
	return Event{PhraseForms{"the call is repeated", "the calls are repeated"}, ""}
}

// drainEndEvent returns what a drain does at the end of its current means, and the time.
func (m Machine) drainEndEvent() (Event, time.Time) {
	switch {
	case m.NextMeans == drain.MeansKill:
		return Event{
			PhraseForms{"the pods still on its node are killed", "the pods still on their nodes are killed"},
			"pods killed",
		}, m.Deadline
	case m.NextMeans != "":
		return Event{PhraseForms{
			"the pods still on its node are deleted",
			"the pods still on their nodes are deleted",
		}, "pods deleted"}, m.Deadline
	case m.Means.KeepsPodOrder() && m.Deadline.IsZero(): // the evictions have no deadline
		return Event{}, time.Time{}
	default:
		return podsLeftBehindEvent(), m.Deadline
	}
}

// podsLeftBehindEvent returns the event of a drain that ends before its pods are gone.
func podsLeftBehindEvent() Event {
	return Event{PhraseForms{
		"it goes on without the pods that are left",
		"they go on without the pods that are left",
	}, "goes on"}
}

// waitsOnlyForVolumes reports whether all blockers are volumes.
func (m Machine) waitsOnlyForVolumes() bool {
	for _, name := range m.BlockedBy {
		if kind, _, _ := strings.Cut(name, " "); kind != drain.BlockedByVolume {
			return false
		}
	}
	return len(m.BlockedBy) > 0 && !m.Deadline.IsZero()
}

// writeRetryEvent returns the event of the retry of a write that an API server refused; empty: no write was refused.
func (m Machine) writeRetryEvent() Event {
	if !slices.Contains(m.BlockedBy, vocabulary.BlockedByRefusedWrite) &&
		!slices.Contains(m.BlockedBy, vocabulary.BlockedByRefusedNodeWrite) {
		return Event{}
	}
	every := " at least every " + phrase.DurationText(MaxRefusedWriteRetryPause)
	return Event{PhraseForms{retryWords().Singular + every, retryWords().Plural + every}, ""}
}

// isCreationRefused reports whether the provider has refused the creation, and only a person can change that.
func (m Machine) isCreationRefused() bool {
	return m.CallsProvider() && !m.Deleting && !m.CreationStoppedAt.IsZero() && m.repeatsCall()
}

// isLastingRefusal reports whether the blocker is a provider's refusal that lasts until a person changes something.
func (m Machine) isLastingRefusal() bool {
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

// repeatsCall reports whether the call is repeated without a person.
func (m Machine) repeatsCall() bool {
	return len(m.BlockedBy) > 0 && !m.needsPerson(m.BlockedBy[0])
}

// needsPerson reports whether a call's problem lasts until a person changes something.
func (m Machine) needsPerson(reason string) bool {
	return reason == vocabulary.BlockedByRefusedWrite || NeedsPerson([]string{reason})
}

// command returns the command that removes the machine's blocker or shows it; empty: no such command is known.
func (m Machine) command(w WaitState) string {
	if !w.IsBlocked() {
		return ""
	}
	kind, name, _ := strings.Cut(w.Blockers[0], " ")
	name, _, _ = strings.Cut(name, " and ")
	if command := cmp.Or(m.drainBlockerCommand(kind, name), m.classProblemCommand(kind)); command != "" {
		return command
	}
	switch {
	case kind == vocabulary.BlockedByRefusedWrite:
		return fmt.Sprintf("kubectl describe machine -n %s %s", m.Namespace, m.Name)
	case m.HookKey != "":
		return fmt.Sprintf("kubectl annotate machine -n %s %s %s-", m.Namespace, m.Name, m.HookKey)
	// the command shows the running call, or the time of the next call
	case kind == "ResourceExhausted", kind == vocabulary.BlockedByProviderCall:
		return fmt.Sprintf("millwright explain machine/%s -n %s", m.Name, m.Namespace)
	case kind == vocabulary.ConditionReplacementHeld: // the nodes are a more likely cause than the machines
		return "kubectl get nodes"
	case m.Step == vocabulary.StepAwaitReplacement:
		return fmt.Sprintf("kubectl delete machine -n %s %s", m.Namespace, m.Name)
	case m.CallsProvider():
		return fmt.Sprintf("millwright provider check -n %s %s", m.Namespace, m.ClassName)
	default:
		return ""
	}
}

// drainBlockerCommand returns the command against a blocker of a node or a drain; empty: another kind of blocker.
func (m Machine) drainBlockerCommand(kind, name string) string {
	switch kind {
	case vocabulary.BlockedByHold:
		return m.drainCommand("resume")
	case vocabulary.BlockedByUnavailableTarget:
		if !m.Deleting { // the message names the Secret
			return fmt.Sprintf("kubectl get secrets -n %s", m.Namespace)
		}
		return m.drainCommand("skip") + requiredReasonFlag
	case vocabulary.BlockedByUnhealthyNode, vocabulary.BlockedByRefusedNodeWrite, vocabulary.BlockedByOwnershipDoubt:
		return "kubectl describe node " + m.NodeName
	case drain.BlockedByBudget:
		return "kubectl edit pdb" + objectArguments(name)
	case drain.BlockedByVolume:
		return "kubectl describe pv " + name
	case drain.BlockedByNamespace,
		drain.BlockedByProtection,
		drain.BlockedByCompletion,
		drain.BlockedByTermination,
		drain.BlockedByError:
		return m.drainCommand("explain")
	default:
		return ""
	}
}

// classProblemCommand returns the command that helps to correct a class or its Secret.
func (m Machine) classProblemCommand(reason string) string {
	switch reason {
	case vocabulary.ReasonClassNotFound:
		return "kubectl get machineclasses -n " + m.Namespace
	case vocabulary.ReasonClassInvalid, "InvalidArgument", "OutOfRange", "Unimplemented":
		return fmt.Sprintf("kubectl edit machineclass -n %s %s", m.Namespace, m.ClassName)
	case vocabulary.ReasonSecretNotFound, vocabulary.ReasonSecretInvalid, "Unauthenticated", "PermissionDenied":
		switch {
		case m.CredentialsSecret == "":
			return fmt.Sprintf("kubectl describe machineclass -n %s %s", m.Namespace, m.ClassName)
		case reason == vocabulary.ReasonSecretNotFound:
			return "kubectl create secret generic" + objectArguments(m.CredentialsSecret) + " --from-file …"
		default:
			return "kubectl edit secret" + objectArguments(m.CredentialsSecret)
		}
	case vocabulary.ReasonSecretNotAllowed:
		return cmp.Or(
			m.allowSecretsCommand(),
			fmt.Sprintf("kubectl describe machineclass -n %s %s", m.Namespace, m.ClassName),
		)
	default:
		return ""
	}
}

// allowSecretsCommand returns the command that lets the class use its Secrets of another namespace; empty: the Secrets
// are in several namespaces.
func (m Machine) allowSecretsCommand() string {
	from, names := "", ""
	for _, key := range m.OtherNamespaceSecrets {
		namespace, name, _ := strings.Cut(key, "/")
		if from != "" && from != namespace {
			return ""
		}
		from, names = namespace, names+" "+name
	}
	return phrase.TextIf(
		names != "",
		"kubectl annotate secret -n %s%s %s=%s",
		from,
		names,
		vocabulary.AnnotationAllowedClassNamespaces,
		m.Namespace,
	)
}

// requiredReasonFlag ends a command that requires a reason.
const requiredReasonFlag = " --reason …"

func (m Machine) drainCommand(command string) string {
	return fmt.Sprintf("millwright drain %s %s/%s", command, m.Namespace, m.Name)
}

// objectArguments returns kubectl's arguments that name an object of a namespace.
func objectArguments(key string) string {
	namespace, name, found := strings.Cut(key, "/")
	if !found {
		return " " + key
	}
	return " -n " + namespace + " " + cmp.Or(name, "-")
}
