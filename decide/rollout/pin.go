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

// Pin keeps the machines on an old set although the template has another set. A change of the template ends the pin,
// and so does a retry.
type Pin struct {
	Set      string    // name of the set that has the machines instead of Progress.Set
	Revision int64     // revision of Set when the pin began
	Since    time.Time // when the pin began, in whole seconds
	Why      string    // why the template is not rolled out, as a clause: "2 machines of it failed, 1 allowed"
	By       string    // who requested the pin, and why: "ann: lunch"; empty: an automatic rollback
}

// AutoRollback is the policy for automatic rollbacks. The zero value means no automatic rollback.
type AutoRollback struct {
	OnDeadline bool          // roll back when the progress deadline passes
	MaxFailed  int           // if Failed is set, roll back when more than MaxFailed new machines have failed
	Failed     bool          // MaxFailed applies, even if it is 0
	Bake       time.Duration // how long failures count after the rollout is complete; zero: they do not
}

// Denial is the reason why the cloud has never made the instance of a machine.
type Denial string

// The denials. An empty Denial means that the instance exists or existed, or that the reason is not one of these.
const (
	DeniedByNetwork     Denial = "Network"     // the cloud or the target cluster cannot be reached, or fails
	DeniedByWorker      Denial = "Worker"      // no worker serves the provider
	DeniedByCredentials Denial = "Credentials" // the credentials are missing, or the cloud rejects them
	DeniedByQuota       Denial = "Quota"       // a quota or the capacity of the cloud is used up
	DeniedBySecret      Denial = "Secret"      // one of the Secrets that the template names is missing, or must not be used
	DeniedByTemplate    Denial = "Template"    // the reason may be the cloud, or an object that the template names
)

// Source identifies the provider, the account, the instance type and the object from which the instances of a set are
// made. An empty field is unknown.
type Source struct {
	Provider string
	Account  string // Secret that has only credentials
	Type     string // instance type
	Object   string // Secret with the user data; in Cluster API, the infrastructure template
}

// differs reports whether the reason of a denial is known to differ between two sources. An unknown field counts as
// equal, except for DeniedByTemplate: there, only a known and equal Object means that the reasons are the same.
func (s Source) differs(from Source, by Denial) bool {
	provider := areKnownToDiffer(s.Provider, from.Provider)
	account := provider || areKnownToDiffer(s.Account, from.Account)
	switch by {
	case DeniedByWorker:
		return provider
	case DeniedByCredentials:
		return account
	case DeniedByQuota:
		return account || areKnownToDiffer(s.Type, from.Type)
	case DeniedBySecret: // it is not known which of two Secrets has the problem
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
	if r.Pin == nil || p.template == nil || p.template.Name != r.Set || p.facts.Retry > r.Attempt ||
		p.setOfName(r.Pin.Set) == nil {
		return nil
	}
	return r.Pin
}

// setOfName returns the set with this name; nil: no such set exists, or it is being deleted.
func (p *planner) setOfName(name string) *setPlan {
	return list.FindFirst(p.sets, func(set *setPlan) bool { return set.Name == name })
}

// beginPin records the pin that a person requests or that an automatic rollback needs. found is false if there is none.
// The next decision acts on the pin.
func (p *planner) beginPin() (d Decision, found bool) {
	record, _ := p.currentProgress()
	pin, lacks := p.nextPin(record)
	if pin == nil || lacks != "" {
		return d, false
	}
	record.Pin = pin
	d.Record, d.Why = p.unrecordedProgress(record), pin.Sentence(p.highestRevision(), p.facts.Now)
	d.limitLists()
	return d, true
}

// nextPin returns the pin that a person requests or that an automatic rollback needs, and the missing object that
// prevents this pin.
func (p *planner) nextPin(record Progress) (pin *Pin, lacks string) {
	for _, due := range []*Pin{p.automaticPin(record), p.requestedPin()} {
		if due == nil {
			continue
		}
		if missing := p.setOfName(due.Set).MissingObject(); missing == "" || pin == nil || lacks != "" {
			pin, lacks = due, missing
		}
	}
	return pin, lacks
}

// blockedPinSentence says which pin is due but prevented by a missing object; empty: there is none.
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

// requestedPin returns the pin that a person requests; nil: there is no request, or its pin is in force.
func (p *planner) requestedPin() *Pin {
	if p.facts.PinTo == 0 || p.template == nil {
		return nil
	}
	to := p.setOfRevision(p.facts.PinTo)
	if to == nil || !p.canReturnToSet(to) || p.pin != nil && p.pin.Set == to.Name {
		return nil
	}
	return p.newPin(to, p.facts.PinBy, "")
}

// automaticPin returns the pin of an automatic rollback; nil: no rollback is due. The rollback returns to the last
// revision whose rollout was complete: otherwise two bad revisions would alternate forever.
func (p *planner) automaticPin(record Progress) *Pin {
	to := p.lastGoodSet()
	if to == nil || p.pin != nil || p.facts.StopReason() != "" || !p.isAutoRollbackActive(record) {
		return nil
	}
	a := p.facts.Automatic
	if a.Failed && len(record.Failed) > a.MaxFailed {
		return p.newPin(to, "", fmt.Sprintf("%s of it failed, %d allowed", machineCount(len(record.Failed)), a.MaxFailed))
	}
	if !a.OnDeadline || !p.isLate() || p.suspectCount() == 0 {
		return nil
	}
	deadline := phrase.DurationText(p.facts.Deadline.Round(time.Second))
	suspects := p.suspectCount()
	return p.newPin(to, "", fmt.Sprintf(
		"no progress for %s: %s of it %s not available",
		deadline, machineCount(suspects), phrase.SingularOrPlural(suspects, "is", "are"),
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

// isAutoRollbackActive reports whether failures count: from the start of a rollout until the rollout is complete, and
// for the bake time afterwards.
func (p *planner) isAutoRollbackActive(record Progress) bool {
	return record.Completed.IsZero() || p.facts.Now.Before(record.Completed.Add(p.facts.Automatic.Bake))
}

// canReturnToSet reports whether the machines can return to a set, unless an object is missing.
func (p *planner) canReturnToSet(set *setPlan) bool { return set != p.template && !set.Current }

// lastGoodSet returns the set to which an automatic rollback returns; nil: there is none. It is the set of the last
// complete rollout or, once the template's rollout is complete, of the complete rollout before. If no complete rollout
// is on record, it is the old set with the highest revision that has an available machine.
func (p *planner) lastGoodSet() *setPlan {
	if p.template == nil {
		return nil
	}
	r := p.facts.Progress
	good := list.ValueIf(r.Good == p.template.Name, r.FormerGood)
	if good = cmp.Or(good, r.Good); good != "" {
		return list.FindFirst(p.sets, func(set *setPlan) bool { return set.Name == good && p.canReturnToSet(set) })
	}
	serving := list.Filter(p.sets, func(set *setPlan) bool { return p.canReturnToSet(set) && set.availableMachines > 0 })
	if len(serving) == 0 {
		return nil
	}
	return slices.MaxFunc(serving, func(x, y *setPlan) int { return cmp.Compare(x.Revision, y.Revision) })
}

// isTemplateAtFault reports whether the failure of a machine counts against the template. Three kinds of failures do
// not count: a person requested the deletion or the replacement; the machine was healthy once, and no bake time runs;
// or the cloud would deny a machine of the good set as well.
func (p *planner) isTemplateAtFault(m Member, baking bool) bool {
	return !m.Requested && (baking || !m.Joined) && !p.isAlsoDeniedForGoodSet(m)
}

// isAlsoDeniedForGoodSet reports whether the cloud denies the instance of a machine of the good set as well, or would
// do so.
func (p *planner) isAlsoDeniedForGoodSet(m Member) bool {
	good := p.lastGoodSet()
	if m.Denied == "" || good == nil {
		return false
	}
	alike := func(other Member) bool { return !other.Deleting && other.Denied == m.Denied }
	return slices.ContainsFunc(good.Machines, alike) || !p.template.Source.differs(good.Source, m.Denied)
}

// suspectCount returns how many new machines are not available, perhaps because of their template. Without a suspect,
// the rollout waits for drains of old machines, for budgets or for people.
func (p *planner) suspectCount() int {
	return list.CountWhere(p.template.Machines, func(m Member) bool {
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
		Type: vocabulary.ConditionDegraded, Status: "True", Message: p.pin.Sentence(p.template.Revision, p.facts.Now),
		Reason: p.pin.Reason(),
	}
}

// reconcileCondition returns the condition Reconciling or Stalled for tools such as kstatus. An empty Reason means that
// neither holds. progressing is the condition Progressing.
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
// machines, so that Millwright does not wait for them.
func (p *planner) needsNoChange() bool {
	c := p.countMachines()
	served := c.Replicas == p.facts.Replicas && c.Available+c.PreservedFailed >= p.facts.Replicas
	return p.isComplete() || p.facts.Strategy == OnDelete && served
}

// Sentence says which revision a pin replaces, why, and since when. It does not name the command that ends the pin.
func (pin *Pin) Sentence(revision int64, now time.Time) string {
	return pin.Cause(revision) + " since " + phrase.ClockText(pin.Since, now)
}

// Cause is Sentence without the time.
func (pin *Pin) Cause(revision int64) string {
	if pin.By != "" {
		return fmt.Sprintf("revision %d is pinned%s: back on revision %d", revision, phrase.ActorText(pin.By), pin.Revision)
	}
	return fmt.Sprintf("revision %d failed (%s): back on revision %d", revision, pin.Why, pin.Revision)
}

// Reason returns the reason of the condition Degraded.
func (pin *Pin) Reason() string {
	return cmp.Or(phrase.TextIf(pin.By != "", vocabulary.ReasonPinned), vocabulary.ReasonRolledBack)
}
