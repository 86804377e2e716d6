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

// ClusterAPIMember is what only the machines of Cluster API have. Only the files clusterapi*.go read it.
type ClusterAPIMember struct {
	// Unacknowledged: another set moved the machine to this set to be updated in place, and the size of this set does not
	// count it yet.
	Unacknowledged bool
	Moved          bool // another set moved the machine to this set, and its update in place has not begun
}

// ClusterAPISet is what only the sets of Cluster API have. Only the files clusterapi*.go read it.
type ClusterAPISet struct {
	// Twin: the set has the deployment's present template, but another set is Current. A rollback to this set would change
	// nothing.
	Twin bool
	// Lacks names the object that its template refers to and that does not exist, such as "KubeadmConfigTemplate
	// shop/join". No rollback returns to it. Empty: none.
	Lacks    string
	Answer   Answer   // what an extension said about its machines and the current set; zero: it was not asked
	Transfer Transfer // as its annotations have it
}

// ClusterAPIDeployment is what only the deployments of Cluster API have. Only the files clusterapi*.go read it.
type ClusterAPIDeployment struct {
	Extension bool // with RollingUpdate: machines are updated in place where an extension can do that
	// Suspended says why nothing is done, whatever is asked for: not even a set is deleted. Empty: the deployment is not
	// suspended.
	Suspended string
	// NoCreate is why no set is created for the template, although it has none. Zero: one is created.
	NoCreate Problem
	// Wake is when to decide again although nothing changes, because another set has to become the current one then. Zero:
	// never.
	Wake time.Time
	// Machines holds the facts for the conditions of Cluster API. Nil: the conditions are those of MCM's kinds.
	Machines *scale.DeploymentMachines
}

// Answer is what a runtime extension of Cluster API said about the machines of a former set. The zero Answer: it was
// not asked.
type Answer struct {
	Set      string    // UID of the set whose template the machines would get
	Possible bool      // the extension can bring them to it in place
	Failed   bool      // the extension gave no answer
	Why      string    // why it cannot, or why it gave no answer
	At       time.Time // when it was asked
}

// AskAgain is the pause before an extension that gave no answer is asked again. Source: ours; a person who repairs it
// waits at most half a minute.
const AskAgain = 30 * time.Second

// Transfer is what the annotations of a set say about machines that move between sets to be updated in place. The zero
// Transfer: no machine moves.
type Transfer struct {
	To   string `json:",omitempty"` // name of the set that gets the surplus of this one
	From string `json:",omitempty"` // names of the sets whose surplus this one gets, sorted, separated by commas
	// names of machines that were moved to this set and that its size counts, sorted, separated by commas
	Acknowledged string `json:",omitempty"`
}

func (s Set) transfer() Transfer { return s.ClusterAPI.Transfer }

// Twin reports whether the set has the deployment's present template although another set is Current.
func (s Set) Twin() bool { return s.ClusterAPI.Twin }

// Lacks names the object without which no rollback can return to the set; empty: none.
func (s Set) Lacks() string { return s.ClusterAPI.Lacks }

func (o Observed) suspended() string { return o.ClusterAPI.Suspended }

// refused returns why no set is created for the template.
func (o Observed) refused() Problem { return o.ClusterAPI.NoCreate }

func (o Observed) wake() time.Time { return o.ClusterAPI.Wake }

// countsNoUnavailable reports whether the status has no number of unavailable machines.
func (o Observed) countsNoUnavailable() bool { return o.ClusterAPI.Machines != nil }

// aboutMachines returns the conditions about machines, Available first.
func (p *planner) aboutMachines() []Condition {
	if p.o.ClusterAPI.Machines == nil {
		return []Condition{p.isAvailable()}
	}
	return p.ofClusterAPI()
}

// ofClusterAPI returns the conditions of a MachineDeployment of Cluster API, Available first.
func (p *planner) ofClusterAPI() []Condition {
	return append(
		[]Condition{p.isAvailableInClusterAPI()},
		list.Map(
			scale.OfDeployment(p.o.Now, p.o.Replicas, p.o.Deletion, *p.o.ClusterAPI.Machines),
			func(c scale.Condition) Condition {
				return Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message}
			},
		)...)
}

// isAvailableInClusterAPI reports whether enough machines are available. Source of reasons and messages: Cluster API.
func (p *planner) isAvailableInClusterAPI() Condition {
	const kind = vocabulary.ConditionAvailable
	_, unavailable := Bounds(p.o)
	needed, available := p.o.Replicas-min(unavailable, p.o.Replicas), p.count().Available
	bounds := ""
	if p.o.Strategy == RollingUpdate {
		bounds = fmt.Sprintf(
			" (spec.strategy.rollout.maxUnavailable is %s, spec.replicas is %d)",
			p.o.Unavailable,
			p.o.Replicas,
		)
	}
	message := cmp.Or(
		phrase.If(p.o.Deleting, "Deletion in progress"),
		fmt.Sprintf("%d available replicas, at least %d required%s", available, needed, bounds),
	)
	return cmp.Or(
		list.When(p.o.ClusterAPI.Machines.Unsized, Condition{
			Type:    kind,
			Status:  vocabulary.StatusUnknown,
			Reason:  vocabulary.ReasonWaitingForReplicasSet,
			Message: "Waiting for spec.replicas set",
		}),
		list.When(available >= needed, Condition{Type: kind, Status: vocabulary.StatusTrue, Reason: kind}),
		Condition{Type: kind, Status: vocabulary.StatusFalse, Reason: vocabulary.ReasonNotAvailable, Message: message},
	)
}

// String returns a bound as it stands in a spec.
func (b Bound) String() string { return fmt.Sprint(b.Value) + phrase.If(b.Percent, "%%") }
