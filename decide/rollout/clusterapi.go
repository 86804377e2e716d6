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
	// size does not count the machine yet.
	Unacknowledged bool
	Moved          bool // another set moved the machine to this set, and the machine's in-place update has not begun
}

// ClusterAPISet holds the facts that only sets of Cluster API have. Only the files clusterapi*.go read ClusterAPISet.
type ClusterAPISet struct {
	// Twin means that the set has the deployment's current template, although another set is Current. A rollback that
	// writes the template of a Twin would change nothing. A pin can return to a Twin, such as the set before a restart.
	Twin bool
	// Lacks names the missing object that the set's template refers to, such as "KubeadmConfigTemplate shop/join";
	// empty: none is missing. No rollback returns to a set that lacks an object.
	Lacks string
	// an extension's answer whether this set's machines can be updated to the current template; zero: not asked
	Answer   ExtensionAnswer
	Transfer MachineTransfer // the set's transfer annotations
}

// ClusterAPIDeployment holds the facts that only deployments of Cluster API have. Only the files clusterapi*.go read
// ClusterAPIDeployment.
type ClusterAPIDeployment struct {
	Extension bool // RollingUpdate updates machines in place where an extension can do so
	// Suspended is the reason why the deployment changes nothing and deletes no set, whatever the spec requests; empty:
	// the deployment is not suspended.
	Suspended string
	// Wake is the time of the next decision if no object changes: another set becomes current at Wake; zero: never.
	Wake time.Time
	// Machines holds the facts for Cluster API's conditions; nil: the deployment has the conditions of MCM's kinds.
	Machines *scale.DeploymentMachines
}

// ExtensionAnswer is the answer of a Cluster API runtime extension about the machines of an old set; zero: the
// extension was not asked.
type ExtensionAnswer struct {
	Set      string    // UID of the set whose template the machines would get
	Possible bool      // the extension can update the machines to that template in place
	Failed   bool      // the extension gave no answer
	Why      string    // reason why Possible is false or Failed is true
	At       time.Time // time of the question
}

// ExtensionRetryInterval is the pause before an extension that gave no answer is asked again. Source: own choice, so
// that a person who repairs the extension waits at most 30 s.
const ExtensionRetryInterval = 30 * time.Second

// MachineTransfer is the content of a set's annotations about machines that move between sets for in-place updates;
// zero: no machine moves.
type MachineTransfer struct {
	To   string `json:",omitempty"` // name of the set that gets this set's surplus
	From string `json:",omitempty"` // sorted names of the sets whose surplus this set gets, comma-separated
	// Acknowledged has the sorted, comma-separated names of the machines that were moved to this set and that its size
	// counts.
	Acknowledged string `json:",omitempty"`
}

func (s MachineSet) machineTransfer() MachineTransfer { return s.ClusterAPI.Transfer }

// IsTemplateDuplicate reports whether the set has the deployment's current template although another set is Current.
func (s MachineSet) IsTemplateDuplicate() bool { return s.ClusterAPI.Twin }

// MissingObject names the missing object that prevents a rollback to the set; empty: none is missing.
func (s MachineSet) MissingObject() string { return cmp.Or(s.ClusterAPI.Lacks, s.missingClass()) }

func (o Facts) suspensionReason() string { return o.ClusterAPI.Suspended }

func (o Facts) wakeTime() time.Time { return o.ClusterAPI.Wake }

// hasNoUnavailableCount reports whether the status has no count of unavailable machines.
func (o Facts) hasNoUnavailableCount() bool { return o.ClusterAPI.Machines != nil }

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
		[]Condition{p.clusterAPIAvailable()},
		list.Map(
			scale.DeploymentConditions(p.facts.Now, p.facts.Replicas, p.facts.Deletion, *p.facts.ClusterAPI.Machines),
			func(c scale.Condition) Condition {
				return Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message}
			},
		)...)
}

// clusterAPIAvailable returns the condition Available: whether enough machines are available. Source of reasons and
// messages: Cluster API.
func (p *planner) clusterAPIAvailable() Condition {
	const kind = vocabulary.ConditionAvailable
	_, unavailable := SurgeAndUnavailable(p.facts)
	needed, available := p.facts.Replicas-min(unavailable, p.facts.Replicas), p.countMachines().Available
	bounds := ""
	if p.facts.Strategy == RollingUpdate {
		bounds = fmt.Sprintf(
			" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			p.facts.Unavailable,
			p.facts.Replicas,
		)
	}
	message := cmp.Or(
		phrase.TextIf(p.facts.Deleting, "Deletion in progress"),
		fmt.Sprintf("%d available replicas, at least %d required%s", available, needed, bounds),
	)
	return cmp.Or(
		list.ValueIf(p.facts.ClusterAPI.Machines.Unsized, Condition{
			Type:    kind,
			Status:  vocabulary.StatusUnknown,
			Reason:  vocabulary.ReasonWaitingForReplicasSet,
			Message: "Waiting for spec.replicas set",
		}),
		list.ValueIf(available >= needed, Condition{Type: kind, Status: vocabulary.StatusTrue, Reason: kind}),
		Condition{Type: kind, Status: vocabulary.StatusFalse, Reason: vocabulary.ReasonNotAvailable, Message: message},
	)
}

// String returns the bound as a spec contains it, such as "3" or "25%".
func (b IntOrPercent) String() string { return fmt.Sprint(b.Value) + phrase.TextIf(b.Percent, "%%") }
