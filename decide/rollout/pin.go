package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Pin keeps the machines on an old set although the template belongs to another set. A change of the template or a
// retry ends the pin.
type Pin struct {
	Set      string    // name of the old set that has the machines
	Revision int64     // revision of Set when the pin began
	Since    time.Time // when the pin began, in whole seconds
	Why      string    // why the template is not rolled out, as a clause such as "2 machines of it failed, 1 allowed"
	By       string    // actor and reason of the pin, such as "ann: lunch"; empty: an automatic rollback
}

// AutoRollback is the policy for automatic rollbacks. The zero value means no automatic rollback.
type AutoRollback struct {
	RollsBackOnDeadline bool          // roll back when the progress deadline passes
	MaxFailed           int           // if Failed is set, roll back when more than MaxFailed new machines have failed
	HasMaxFailed        bool          // MaxFailed applies, even if it is 0
	BakeTime            time.Duration // how long failures count after the rollout is complete; zero: not at all
}

// DenialReason is the reason why the cloud never created the instance of a machine.
type DenialReason string

// The denials. An empty Denial means that the instance exists or existed, or that none of these reasons applies.
const (
	DeniedByNetwork     DenialReason = "Network"     // the cloud or the target cluster is unreachable, or returns errors
	DeniedByWorker      DenialReason = "Worker"      // no worker serves the provider
	DeniedByCredentials DenialReason = "Credentials" // the credentials are missing, or the cloud rejects them
	DeniedByQuota       DenialReason = "Quota"       // a quota or the capacity of the cloud is used up
	DeniedBySecret      DenialReason = "Secret"      // a Secret that the template names is missing, or must not be used
	DeniedByTemplate    DenialReason = "Template"    // the cloud or an object that the template names may be the reason
)

// InstanceSource identifies the provider, the account, the instance type and the object that are used to create the
// instances of a set. An empty field is unknown.
type InstanceSource struct {
	Provider     string
	Account      string // Secret that has only credentials
	InstanceType string // instance type
	Object       string // Secret with the user data; in Cluster API, the infrastructure template
}

// isKnownToDiffer reports whether two sources are known to differ in the reason of a denial. An unknown field counts as
// equal. With DeniedByTemplate, an unknown Object counts as different.
func (s InstanceSource) isKnownToDiffer(from InstanceSource, by DenialReason) bool {
	provider := areKnownToDiffer(s.Provider, from.Provider)
	account := provider || areKnownToDiffer(s.Account, from.Account)
	switch by {
	case DeniedByWorker:
		return provider
	case DeniedByCredentials:
		return account
	case DeniedByQuota:
		return account || areKnownToDiffer(s.InstanceType, from.InstanceType)
	case DeniedBySecret: // either of the two Secrets may have the problem
		return account || s.Account+from.Account == "" && areKnownToDiffer(s.Object, from.Object)
	case DeniedByTemplate:
		return s.Object == "" || s.Object != from.Object
	default:
		return false
	}
}

func areKnownToDiffer(x, y string) bool { return x != "" && y != "" && x != y }

// activePin returns the pin that is in force; nil: there is none. A pin is valid for one attempt at one template.
func (p *planner) activePin() *Pin {
	r := p.facts.Progress
	if r.Pin == nil || p.templateSet == nil || p.templateSet.Name != r.Set || p.facts.RetryCount > r.Attempt ||
		p.setByName(r.Pin.Set) == nil {
		return nil
	}
	return r.Pin
}

// setByName returns the set with this name; nil: no such set exists, or it is being deleted.
func (p *planner) setByName(name string) *setPlan {
	return list.FindFirst(p.sets, func(set *setPlan) bool { return set.Name == name })
}

// beginPin records the pin that a person requested or that an automatic rollback needs. found is false if no pin is
// needed. The next decision acts on the pin.
func (p *planner) beginPin() (d Decision, found bool) {
	record, _ := p.currentProgress()
	pin, lacks := p.nextPin(record)
	if pin == nil || lacks != "" {
		return d, false
	}
	if p.turnWait != nil && p.isNewAttempt() { // a rollout that waits for its turn has no record
		record = p.newAttemptProgress()
	}
	record.Pin = pin
	d.Record, d.Why = p.unrecordedProgress(record), pin.Sentence(p.highestRevision(), p.facts.Now)
	d.limitLists()
	return d, true
}

// nextPin returns the pin that a person requested or that an automatic rollback needs, and the missing object that
// prevents the pin.
func (p *planner) nextPin(record Progress) (pin *Pin, lacks string) {
	for _, due := range []*Pin{p.automaticPin(record), p.requestedPin()} {
		if due == nil {
			continue
		}
		if missing := p.setByName(due.Set).MissingObject(); missing == "" || pin == nil || lacks != "" {
			pin, lacks = due, missing
		}
	}
	return pin, lacks
}

// blockedPinSentence returns a sentence about a pin that a missing object prevents, or an empty string.
func (p *planner) blockedPinSentence() string {
	record, _ := p.currentProgress()
	pin, lacks := p.nextPin(record)
	if lacks == "" {
		return ""
	}
	revision := p.highestRevision()
	return cmp.Or(
		phrase.TextIf(
			pin.By != "",
			"revision %d is not pinned to revision %d, as requested%s",
			revision, pin.Revision, phrase.ActorText(pin.By),
		),
		fmt.Sprintf("revision %d failed (%s) and does not go back to revision %d", revision, pin.Why, pin.Revision),
	) + ": " + lacks + " does not exist any more"
}

// requestedPin returns the pin that a person requested, or nil if there is no request or the requested pin is already
// in force.
func (p *planner) requestedPin() *Pin {
	if p.facts.PinRevision == 0 || p.templateSet == nil {
		return nil
	}
	to := p.setByRevision(p.facts.PinRevision)
	if to == nil || !p.canReturnToSet(to) || p.pin != nil && p.pin.Set == to.Name {
		return nil
	}
	return p.newPin(to, p.facts.PinRequestedBy, "")
}

// automaticPin returns the pin of an automatic rollback; nil: no rollback is due. The rollback returns to the last
// revision whose rollout was complete, because otherwise Millwright could alternate forever between two bad revisions.
func (p *planner) automaticPin(record Progress) *Pin {
	to := p.lastGoodSet()
	if to == nil || p.pin != nil || p.stopReason() != "" || !p.isAutoRollbackActive(record) {
		return nil
	}
	a := p.facts.RollbackPolicy
	if a.HasMaxFailed && len(record.Failed) > a.MaxFailed {
		return p.newPin(to, "", fmt.Sprintf("%s of it failed, %d allowed", machineCountText(len(record.Failed)), a.MaxFailed))
	}
	if !a.RollsBackOnDeadline || !p.isLate() || p.suspectMachineCount() == 0 {
		return nil
	}
	deadline := phrase.DurationText(p.facts.ProgressDeadline.Round(time.Second))
	suspects := p.suspectMachineCount()
	return p.newPin(to, "", fmt.Sprintf(
		"no progress for %s: %s of it %s not available",
		deadline, machineCountText(suspects), phrase.SingularOrPlural(suspects, "is", "are"),
	))
}

func (p *planner) newPin(to *setPlan, by, why string) *Pin {
	return &Pin{
		Set:      to.Name,
		Revision: to.Revision,
		Since:    p.facts.Now.Truncate(time.Second),
		By:       by,
		Why:      why,
	}
}

// isAutoRollbackActive reports whether failed machines count. Failed machines count during the rollout, and for the
// bake time after the rollout.
func (p *planner) isAutoRollbackActive(record Progress) bool {
	return record.Completed.IsZero() || p.facts.Now.Before(record.Completed.Add(p.facts.RollbackPolicy.BakeTime))
}

// canReturnToSet reports whether a pin can move the machines to a set if no object is missing.
func (p *planner) canReturnToSet(set *setPlan) bool { return set != p.templateSet && !set.Current }

// lastGoodSet returns the set to which an automatic rollback returns; nil: there is none. The good set is the set of
// the last complete rollout. If the rollout of the template is complete, the good set is the set of the complete
// rollout before. If no complete rollout is recorded, the good set is the set with the highest revision among the old
// sets that have an available machine.
func (p *planner) lastGoodSet() *setPlan {
	if p.templateSet == nil {
		return nil
	}
	r := p.facts.Progress
	good := list.ValueIf(r.Good == p.templateSet.Name, r.FormerGood)
	if good = cmp.Or(good, r.Good); good != "" {
		return list.FindFirst(p.sets, func(set *setPlan) bool { return set.Name == good && p.canReturnToSet(set) })
	}
	serving := list.Filter(
		p.sets,
		func(set *setPlan) bool { return p.canReturnToSet(set) && set.availableMachineCount > 0 },
	)
	if len(serving) == 0 {
		return nil
	}
	return slices.MaxFunc(serving, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
}

// isTemplateAtFault reports whether the failure of a machine counts against the template. The template is not the cause
// if a person requested the deletion or the replacement, if the cloud also denies machines of the good set, or if the
// machine was healthy once and no bake time runs.
func (p *planner) isTemplateAtFault(m Member, baking bool) bool {
	return !m.RemovalRequested && (baking || !m.Joined) && !p.isAlsoDeniedForGoodSet(m)
}

// isAlsoDeniedForGoodSet reports whether the cloud denies a machine of the good set for the same reason, or would deny
// it.
func (p *planner) isAlsoDeniedForGoodSet(m Member) bool {
	good := p.lastGoodSet()
	if m.DenialReason == "" || good == nil {
		return false
	}
	alike := func(other Member) bool { return !other.Deleting && other.DenialReason == m.DenialReason }
	return slices.ContainsFunc(good.Machines, alike) || !p.templateSet.Source.isKnownToDiffer(good.Source, m.DenialReason)
}

// suspectMachineCount returns how many new machines are not available, perhaps because of their template. If there is
// none, the rollout waits for drains of old machines, for budgets or for people.
func (p *planner) suspectMachineCount() int {
	return list.CountWhere(p.templateSet.Machines, func(m Member) bool {
		return !m.Deleting && !m.Available && !m.Updating && !m.isPreserved() && p.isTemplateAtFault(m, false)
	})
}

// degradedCondition returns the condition Degraded. An empty Reason means that no pin is in force or due.
func (p *planner) degradedCondition() Condition {
	if p.pin == nil {
		blocked := p.blockedPinSentence()
		return list.ValueIf(blocked != "", Condition{
			Type: vocabulary.ConditionDegraded, Status: "True", Message: blocked,
			Reason: vocabulary.ReasonDeploymentRollbackTemplateNotFound,
		})
	}
	return Condition{
		Type: vocabulary.ConditionDegraded, Status: "True", Message: p.pin.Sentence(p.templateSet.Revision, p.facts.Now),
		Reason: p.pin.Reason(),
	}
}

// reconcileCondition returns the condition Reconciling or Stalled, which tools such as kstatus read. If Reason is
// empty, neither condition is True. progressing is the condition Progressing.
func (p *planner) reconcileCondition(progressing Condition) Condition {
	c := Condition{
		Type: vocabulary.ConditionReconciling, Status: "True", Reason: progressing.Reason, Message: progressing.Message,
	}
	degraded := p.degradedCondition()
	switch {
	case p.facts.Deleting, p.pin == nil && progressing.Status != "False" && p.needsNoChange():
		return Condition{}
	case p.pin != nil:
		c.Type, c.Reason, c.Message = vocabulary.ConditionStalled, degraded.Reason, degraded.Message
	case progressing.Status == "False":
		c.Type = vocabulary.ConditionStalled
	case c.Reason == vocabulary.ReasonNewMachineSetAvailable:
		c.Reason = vocabulary.ReasonScaling
	}
	return c
}

// needsNoChange reports whether Millwright has no machines left to change. With OnDelete, people delete the old
// machines, so Millwright does not wait for the deletion.
func (p *planner) needsNoChange() bool {
	c := p.countMachines()
	served := c.Replicas == p.facts.Replicas && c.Available+c.PreservedFailed >= p.facts.Replicas
	return p.isComplete() || p.facts.Strategy == OnDelete && served
}

// Sentence returns a sentence with the revision that a pin replaces, the reason, and the time at which the pin began.
// The sentence does not name the command that ends the pin.
func (pin *Pin) Sentence(revision int64, now time.Time) string {
	return pin.SentenceWithoutTime(revision) + " since " + phrase.ClockText(pin.Since, now)
}

// SentenceWithoutTime returns the text of Sentence without the time.
func (pin *Pin) SentenceWithoutTime(revision int64) string {
	if pin.By != "" {
		return fmt.Sprintf("revision %d is pinned%s: back on revision %d", revision, phrase.ActorText(pin.By), pin.Revision)
	}
	return fmt.Sprintf("revision %d failed (%s): back on revision %d", revision, pin.Why, pin.Revision)
}

// Reason returns the reason of the condition Degraded.
func (pin *Pin) Reason() string {
	return cmp.Or(phrase.TextIf(pin.By != "", vocabulary.ReasonPinned), vocabulary.ReasonRolledBack)
}
