package rollout

import (
	"cmp"
	"fmt"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// ClusterAPIMember holds the facts that only machines of Cluster API have. Only the files clusterapi*.go read
// ClusterAPIMember.
type ClusterAPIMember struct {
	// Unacknowledged means that another set moved the machine to this set for an in-place update, and that this set's
	// size does not include the machine yet.
	Unacknowledged bool
	Moved          bool // another set moved the machine to this set, and the machine's in-place update has not begun
}

// ClusterAPISet holds the facts that only sets of Cluster API have. Only the files clusterapi*.go read ClusterAPISet.
type ClusterAPISet struct {
	// DuplicatesTemplate means that the set has the deployment's current template, although another set is Current. A
	// rollback to such a set would change nothing, because the deployment already has its template. A pin can move the
	// machines to such a set, for example to the set before a restart.
	DuplicatesTemplate bool
	// MissingObject names the missing object that the set's template refers to, such as "KubeadmConfigTemplate shop/join";
	// empty: none is missing. A set that lacks an object is never the target of a rollback.
	MissingObject string
	// an extension's answer whether this set's machines can be updated to the current template; zero: no answer
	// requested
	ExtensionAnswer ExtensionAnswer
	Transfer        MachineTransfer // the set's transfer annotations
}

// ClusterAPIDeployment holds the facts that only deployments of Cluster API have. Only the files clusterapi*.go read
// ClusterAPIDeployment.
type ClusterAPIDeployment struct {
	UsesExtension bool // the strategy RollingUpdate updates machines in place if an extension can do so
	// RequiresExtension means that a rollout stops if the extension cannot update the machines of a set in place; without
	// it, the rollout replaces these machines.
	RequiresExtension bool
	// TemplateOwner is the object that writes the deployment's template, such as "the topology of Cluster shop/web"; empty:
	// people or their tools write it. A rollback by an edit of the template would last until TemplateOwner writes again.
	TemplateOwner string
	// SuspensionReason is the reason why Millwright neither changes the deployment nor deletes its sets, whatever the spec
	// requests. SuspensionReason is empty if the deployment is not suspended.
	SuspensionReason string
	// RecheckTime is the time at which another set becomes current although no object changes. The next decision follows
	// at RecheckTime; zero: never.
	RecheckTime time.Time
	// Machines holds the facts for Cluster API's conditions; nil: the deployment has MCM's conditions.
	Machines *scale.DeploymentMachines
}

// foreignTemplateReason returns why a rollback must not edit the template; empty: it may.
func (p *planner) foreignTemplateReason() string {
	owner := p.facts.ClusterAPI.TemplateOwner
	return phrase.TextIf(owner != "", "%s writes the template, and would write it again: pin the revision instead", owner)
}

// ExtensionAnswer is the answer of a Cluster API runtime extension about the machines of an old set; zero: no request
// was sent.
type ExtensionAnswer struct {
	TargetSetUID string    // UID of the set with the template to which the machines would be updated
	Possible     bool      // the extension can update the machines in place to the template of the set
	Failed       bool      // the extension did not answer
	Why          string    // reason why Possible is false or Failed is true
	RequestedAt  time.Time // time of the request to the extension
}

// ExtensionRetryInterval is the time between a failed request to an extension and its retry. Source: own choice, so
// that a person who repairs the extension waits for at most 30 s.
const ExtensionRetryInterval = 30 * time.Second

// MachineTransfer is the content of the set's annotations for machines that move between sets for in-place updates;
// zero: no machine moves.
type MachineTransfer struct {
	To string `json:",omitempty"` // name of the set that receives this set's surplus machines
	// sorted names of the sets whose surplus machines this set receives, comma-separated
	From string `json:",omitempty"`
	// Acknowledged has the names of the machines that were moved to this set and are part of its size, sorted and
	// comma-separated.
	Acknowledged string `json:",omitempty"`
}

func (s MachineSet) machineTransfer() MachineTransfer { return s.ClusterAPI.Transfer }

// IsTemplateDuplicate reports whether the set has the deployment's current template although another set is Current.
func (s MachineSet) IsTemplateDuplicate() bool { return s.ClusterAPI.DuplicatesTemplate }

// MissingObject names the missing object that prevents a rollback to the set; empty: none is missing.
func (s MachineSet) MissingObject() string {
	return cmp.Or(s.ClusterAPI.MissingObject, s.missingClass())
}

func (o Facts) suspensionReason() string { return o.ClusterAPI.SuspensionReason }

func (o Facts) recheckTime() time.Time { return o.ClusterAPI.RecheckTime }

// omitsUnavailableCount reports whether the status omits the number of unavailable machines.
func (o Facts) omitsUnavailableCount() bool { return o.ClusterAPI.Machines != nil }

// machineConditions returns the conditions about machines. The first condition is Available.
func (p *planner) machineConditions() []Condition {
	if p.facts.ClusterAPI.Machines == nil {
		return []Condition{p.availableCondition()}
	}
	return p.clusterAPIConditions()
}

// clusterAPIConditions returns the conditions of a Cluster API MachineDeployment. The first condition is Available.
func (p *planner) clusterAPIConditions() []Condition {
	return append(
		[]Condition{p.clusterAPIAvailableCondition()},
		list.Map(
			scale.DeploymentConditions(p.facts.Now, p.facts.Replicas, p.facts.Deletion, *p.facts.ClusterAPI.Machines),
			func(c scale.Condition) Condition {
				return Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message}
			},
		)...)
}

// clusterAPIAvailableCondition returns the condition Available, which is True if enough machines are available. Source
// of reasons and messages: Cluster API.
func (p *planner) clusterAPIAvailableCondition() Condition {
	const kind = vocabulary.ConditionAvailable
	_, unavailable := SurgeAndUnavailable(p.facts)
	needed, available := p.facts.Replicas-min(unavailable, p.facts.Replicas), p.countMachines().Available
	bounds := ""
	if p.facts.Strategy == RollingUpdate {
		bounds = fmt.Sprintf(
			" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			p.facts.MaxUnavailable,
			p.facts.Replicas,
		)
	}
	message := cmp.Or(
		phrase.TextIf(p.facts.Deleting, "Deletion in progress"),
		fmt.Sprintf("%d available replicas, at least %d required%s", available, needed, bounds),
	)
	return cmp.Or(
		list.ValueIf(p.facts.ClusterAPI.Machines.ReplicasUnset, Condition{
			Type:    kind,
			Status:  vocabulary.StatusUnknown,
			Reason:  vocabulary.ReasonReplicasNotSet,
			Message: "Waiting for spec.replicas set",
		}),
		list.ValueIf(available >= needed, Condition{Type: kind, Status: vocabulary.StatusTrue, Reason: kind}),
		Condition{Type: kind, Status: vocabulary.StatusFalse, Reason: vocabulary.ReasonNotAvailable, Message: message},
	)
}

// String returns the value in the form of a spec, such as "3" or "25%".
func (b IntOrPercent) String() string { return fmt.Sprint(b.Value) + phrase.TextIf(b.IsPercent, "%%") }
