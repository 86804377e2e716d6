package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/phrase"
)

// MaxShortLength bounds a short text, in characters. Source: the other columns of `kubectl get` take 40 to 60 of the 120
// columns of a wide terminal.
const MaxShortLength = 60

// minShortCauseLength is how much of a cause is kept, in characters, before the next event is left out.
const minShortCauseLength = 20

// Event is what happens next if no person acts. The zero Event means that nothing happens.
type Event struct {
	PhraseForms

	Short string // the event in one or two words, without a subject; empty: the short text does not name the event
}

// newEvent returns an event with the same words for one object and for several objects.
func newEvent(words, short string) Event { return Event{PhraseForms{words, words}, short} }

// ShortText describes the wait of one object in at most MaxShortLength characters: the cause, and the next event with
// its time. Sentence has all details. A WaitState needs only Blockers, or Step and Cause. The zero WaitState has an
// empty text.
func (w WaitState) ShortText(now time.Time) string {
	if w.Cause == "" && !w.IsBlocked() {
		return ""
	}
	return shortText("", w.shortCause(), w.shortEvent("", now), "")
}

// shortCause returns the cause in a few words. The words depend on the first blocker, never on the text of Cause. For
// an object that is not blocked, the words depend on the step.
func (w WaitState) shortCause() string {
	if !w.IsBlocked() {
		return cmp.Or(shortSteps()[w.Step], w.Cause)
	}
	kind, name, _ := strings.Cut(w.Blockers[0], " ")
	if strings.ContainsAny(kind, "./") { // the key of a hook
		return "hook " + kind
	}
	words := cmp.Or(shortCauses()[kind], kind)
	if !strings.Contains(words, "%s") {
		return words
	}
	return strings.TrimRight(fmt.Sprintf(words, strings.ReplaceAll(name, " and ", ", ")), ": ")
}

// shortEvent returns the next event and its time in hours and minutes. The parameter from is empty, or a word in front
// of the time.
func (w WaitState) shortEvent(from string, now time.Time) string {
	if w.NextEvent.Short == "" || w.NextEventTime.IsZero() {
		return w.NextEvent.Short
	}
	return w.NextEvent.Short + " " + from + shortClockText(w.NextEventTime, now)
}

// maxCutWordLength is the length of the longest word that a short text leaves out instead of cutting it. English words
// of messages are rarely longer.
const maxCutWordLength = 12

// shortText joins the parts of a short text, and shortens the cause to the room that the other parts leave. The
// parameter more names further causes.
func shortText(count, cause, event, more string) string {
	event = phrase.TextIf(event != "", "; %s", event)
	room := MaxShortLength - len([]rune(count+event+more))
	if room < minShortCauseLength {
		event, room = "", room+len([]rune(event))
	}
	if letters := []rune(cause); len(letters) > room {
		cut := string(letters[:room-1])
		if word := strings.LastIndexByte(cut, ' '); word >= len(cut)-maxCutWordLength {
			cut = cut[:word] // a longer word is a name, whose beginning says more than nothing
		}
		cause = strings.TrimRight(cut, " ,;:") + "…"
	}
	return count + cause + event + more
}

// shortText describes the group in at most MaxShortLength characters. The parameter of is the number of machines of the
// set or deployment, and others the number of its other causes.
func (g GroupedWait) shortText(of, others int, now time.Time) string {
	count := phrase.TextIf(g.MachineCount > 0, "%d/%d ", g.MachineCount, of)
	from := phrase.TextIf(g.timesDiffer, "from ")
	return shortText(count, g.shortCause(), g.shortEvent(from, now), phrase.TextIf(others > 0, " +%d", others))
}

// shortClockText returns the hour and minute of a time in UTC, with month and day if the day is not that of now.
func shortClockText(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format("15:04 MST")
	}
	return t.Format("01-02 15:04 MST")
}

// shortCauses returns a few words for each kind of blocker; %s stands for the name in the blocker. A kind without an
// entry is shown as it is.
func shortCauses() map[string]string {
	return map[string]string{
		drain.BlockedByBudget:      "PDB %s",
		drain.BlockedByProtection:  "do-not-disrupt: pod %s",
		drain.BlockedByCompletion:  "must complete: pod %s",
		drain.BlockedByVolume:      "attached: volume %s",
		drain.BlockedByTermination: "does not end: pod %s",
		drain.BlockedByNamespace:   "namespace of pod %s",
		drain.BlockedByError:       "request fails: pod %s",

		"ResourceExhausted":  "no quota or capacity",
		"Unauthenticated":    "wrong credentials",
		"PermissionDenied":   "credentials lack a right",
		"InvalidArgument":    "provider refuses the class",
		"OutOfRange":         "provider refuses the class",
		"Unimplemented":      "provider does not support this",
		"FailedPrecondition": "provider refuses the call",
		"Unavailable":        "cloud does not answer",
		"DeadlineExceeded":   "cloud answers too late",
		"Internal":           "cloud reports an internal error",

		vocabulary.BlockedByMissingApproval:   "waits for approval",
		vocabulary.BlockedByProviderCall:      "call of the provider takes long",
		vocabulary.BlockedByHold:              "held by an operator",
		vocabulary.BlockedByRefusedWrite:      "API server refuses a write",
		vocabulary.BlockedByUnhealthyNode:     "node is not healthy",
		vocabulary.BlockedByRefusedNodeWrite:  "API server refuses to change the node",
		vocabulary.BlockedByMissingWorker:     "no worker serves the provider",
		vocabulary.BlockedByOwnershipDoubt:    "owner of the node in doubt",
		vocabulary.BlockedByPause:             "paused",
		vocabulary.BlockedByStoppedScaleUp:    "set must not create machines",
		vocabulary.BlockedByRolloutStep:       "pause between two steps",
		vocabulary.BlockedByTurn:              "waits for its turn",
		vocabulary.BlockedByUnavailableTarget: "target cluster does not answer",
		vocabulary.BlockedByHandOver:          "hand-over from Cluster API",

		vocabulary.BlockedByUnhandledMachine:         "Cluster API has not looked at it",
		vocabulary.BlockedByBootstrapNotReady:        "bootstrap data not ready",
		vocabulary.BlockedByInfrastructureNotReady:   "infrastructure not ready",
		vocabulary.BlockedByNodeNotJoined:            "node has not joined",
		vocabulary.BlockedByInPlaceUpdate:            "update in place does not end",
		vocabulary.BlockedByNodeDrain:                "node is being drained",
		vocabulary.BlockedByVolumeDetach:             "volumes are attached",
		vocabulary.BlockedByInfrastructureNotDeleted: "infrastructure not deleted",
		vocabulary.BlockedByBootstrapNotDeleted:      "bootstrap data not deleted",
		vocabulary.BlockedByNodeNotDeleted:           "Node object not deleted",
		vocabulary.BlockedByMachineNotDeleted:        "deletion does not end",

		vocabulary.ConditionReplacementHeld:       "failed machines are not replaced",
		vocabulary.ReasonMaxRetryReached:          "failed machines: retry limit reached",
		vocabulary.ReasonInvalid:                  "spec is invalid",
		vocabulary.ReasonMachineSetInvalid:        "spec of the set is invalid",
		vocabulary.ReasonPolicyInvalid:            "RolloutPolicy cannot apply",
		vocabulary.ReasonTemplateNotFound:         "template or class does not exist",
		vocabulary.ReasonClassNotFound:            "class does not exist",
		vocabulary.ReasonClassInvalid:             "class is invalid",
		vocabulary.ReasonSecretNotFound:           "Secret does not exist",
		vocabulary.ReasonSecretInvalid:            "Secret is invalid",
		vocabulary.ReasonSecretNotAllowed:         "Secret does not allow the class",
		vocabulary.ReasonPreflightCheckFailed:     "preflight check fails",
		vocabulary.ReasonMachineCreationFailed:    "API server refuses the machines",
		vocabulary.ReasonFailedDelete:             "API server refuses the deletion",
		vocabulary.ReasonProgressDeadlineExceeded: "rollout makes no progress",
		vocabulary.ReasonExtensionFailed:          "runtime extension fails",
		vocabulary.ReasonNotUpdatedInPlace:        "update in place is not possible",
		vocabulary.ReasonScaleUpStopped:           "scale-up is stopped",
		vocabulary.ReasonRolledBack:               "rolled back",
	}
}

// shortSteps returns a few words for each step that nothing blocks. The steps of sets and deployments that change
// machines have no entry: their causes say what is done.
func shortSteps() map[string]string {
	return map[string]string{
		vocabulary.StepCreateInstance:       "creating the instance",
		vocabulary.StepInitialiseInstance:   "initialising the instance",
		vocabulary.StepGetInstanceStatus:    "checking the instance",
		vocabulary.StepAwaitNode:            "boots; its node joins",
		vocabulary.StepAwaitRecovery:        "node is not healthy",
		vocabulary.StepAwaitUpdate:          "node is being updated",
		vocabulary.StepAwaitReplacement:     "waits to be replaced",
		vocabulary.StepSyncNode:             "writing the node",
		vocabulary.StepPrepareInPlaceUpdate: "preparing the update in place",
		vocabulary.StepWritePreservation:    "writing the preservation",
		vocabulary.StepAwaitPreservationEnd: "preserved",
		vocabulary.StepAnnounceTermination:  "announcing the end of the node",
		vocabulary.StepQueuedForDrain:       "waits for its turn to be drained",
		vocabulary.StepDrain:                "draining the node",
		vocabulary.StepEvictPods:            "evicting pods",
		vocabulary.StepDeleteInOrder:        "deleting pods in order",
		vocabulary.StepDeletePods:           "deleting pods",
		vocabulary.StepKillPods:             "killing pods",
		vocabulary.StepDrained:              "drained",
		vocabulary.StepDrainForced:          "drained by force",
		vocabulary.StepAwaitHooks:           "waits for deletion hooks",
		vocabulary.StepAwaitDetach:          "detaching volumes",
		vocabulary.StepDeleteInstance:       "deleting the instance",
		vocabulary.StepDeleteNode:           "deleting the Node object",
		vocabulary.StepHeldByOperator:       "held by an operator",
		vocabulary.StepAwaitTurn:            "waits for its turn",
		vocabulary.StepAwaitApproval:        "waits for approval",
		vocabulary.StepDeploymentPaused:     "paused",
		vocabulary.StepDeploymentInvalid:    "spec is invalid",
		vocabulary.StepGuardSecrets:         "guarding its Secrets",
		vocabulary.StepReleaseSecrets:       "releasing its Secrets",
		vocabulary.StepWriteRefused:         "API server refuses a write",
	}
}
