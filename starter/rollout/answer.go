package rollout

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/rollout"
	"millwright/decide/rollout/simulate"
	"millwright/starter/kubecli"
)

// stateWord is the state of a rollout in one word, for lists and programs.
type stateWord string

// The states of a rollout. If several states apply, the first of this list counts.
const (
	stateDeleting         stateWord = "Deleting"         // the deployment is being deleted
	stateInvalid          stateWord = "Invalid"          // nothing can be done with the deployment
	stateRolledBack       stateWord = "RolledBack"       // an automatic rollback keeps the machines on a former revision
	statePinned           stateWord = "Pinned"           // a person keeps the machines on a former revision
	stateUndoing          stateWord = "Undoing"          // a return to a former template is requested
	stateComplete         stateWord = "Complete"         // all machines have the template
	statePaused           stateWord = "Paused"           // a person has paused the deployment
	stateHeld             stateWord = "Held"             // a person holds the rollout of this revision
	stateLate             stateWord = "Late"             // the progress deadline has passed
	stateWaitsForApproval stateWord = "WaitsForApproval" // a step waits for a person
	stateWaitsForTime     stateWord = "WaitsForTime"     // a step waits until a time
	stateBlocked          stateWord = "Blocked"          // something blocks the deployment or one of its machines
	stateWaitsForTurn     stateWord = "WaitsForTurn"     // other deployments of the policy are rolled out first
	stateProgressing      stateWord = "Progressing"
)

// state returns the state of the rollout, and since when it has the state; the time is zero if it is not known.
func (s snapshot) state() (word stateWord, since time.Time) {
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return stateDeleting, s.tree.object.GetDeletionTimestamp().Time
	case o.InvalidReason != "":
		return stateInvalid, time.Time{}
	case d.Pin != nil && d.Pin.By != "":
		return statePinned, d.Pin.Since
	case d.Pin != nil:
		return stateRolledBack, d.Pin.Since
	case d.BeginsPin():
		return stateRolledBack, time.Time{}
	case d.Rollback != nil:
		return stateUndoing, time.Time{}
	case d.Complete:
		return stateComplete, o.Progress.Completed
	case o.Paused:
		return statePaused, time.Time{}
	case o.HoldReason != "":
		return stateHeld, time.Time{}
	default:
		return s.stateInMotion()
	}
}

// stateInMotion is state for a rollout that nobody has stopped.
func (s snapshot) stateInMotion() (word stateWord, since time.Time) {
	d, operation := s.decision, s.tree.operation
	if operation != nil {
		since = operation.Since.Time
	} else if i := s.currentSetIndex(); i >= 0 {
		since = s.tree.Sets[i].createdAt
	}
	switch {
	case d.Late:
		return stateLate, s.deadline()
	case d.Pause != nil && d.Pause.Approve:
		return stateWaitsForApproval, s.progressRecord().Reached
	case d.Pause != nil:
		return stateWaitsForTime, s.progressRecord().Reached
	case operation != nil && len(operation.BlockedBy) > 0:
		return stateBlocked, since
	case d.HoldBy == rollout.HeldByTurn:
		return stateWaitsForTurn, since
	default:
		return stateProgressing, since
	}
}

// deadline returns when the progress deadline passes or has passed; zero if it does not run.
func (s snapshot) deadline() time.Time {
	d := s.decision
	switch {
	case d.Late:
		for _, c := range s.status.Conditions {
			if c.Type == string(v1alpha1.MachineDeploymentProgressing) {
				return c.LastUpdateTime // the condition says since then that the deadline has passed
			}
		}
	case s.facts.ProgressDeadline != nil && d.Pause == nil:
		return d.Recheck
	}
	return time.Time{}
}

// statusAnswer is the status of a rollout in JSON and YAML. Unknown and empty fields are omitted. Numbers are numbers of
// machines.
type statusAnswer struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	State     stateWord `json:"state"`
	Since     time.Time `json:"since,omitzero"` // since when the rollout has the state
	Sentence  string    `json:"sentence"`       // what the rollout does next, or what it waits for
	WaitsFor  string    `json:"waitsFor,omitempty"`
	BlockedBy []string  `json:"blockedBy,omitempty"`
	Complete  bool      `json:"complete"` // all machines have the template, or the revision on which a person keeps them

	Revision        int64 `json:"revision,omitempty"`
	Desired         int   `json:"desired"`
	Updated         int   `json:"updated"`
	Ready           int   `json:"ready"`
	Available       int   `json:"available"`
	PreservedFailed int   `json:"preservedFailed,omitempty"`

	Strategy string             `json:"strategy"`
	Step     *stepAnswer        `json:"step,omitempty"`     // the step of the policy that is active
	Deadline time.Time          `json:"deadline,omitzero"`  // when the progress deadline passes or has passed
	Pinned   *pinAnswer         `json:"pinned,omitempty"`   // the former revision that the machines have instead
	Policy   string             `json:"policy,omitempty"`   // name of the RolloutPolicy
	Sets     []setAnswer        `json:"sets,omitempty"`     // the sets that have machines, and the current set; the newest first
	Machines []machineAnswer    `json:"machines,omitempty"` // the machines that the rollout waits for
	Commands []kubecli.NextStep `json:"commands,omitempty"` // the commands that may help now, the most likely first
}

// stepAnswer is a step of a RolloutPolicy.
type stepAnswer struct {
	Number        int       `json:"number"` // from 1
	Of            int       `json:"of"`
	Size          int       `json:"size"` // number of new machines at which the step waits
	Reached       time.Time `json:"reached,omitzero"`
	NeedsApproval bool      `json:"needsApproval,omitempty"`
	Until         time.Time `json:"until,omitzero"` // when the step ends by itself
}

// pinAnswer is a former revision that the machines have instead of the template's.
type pinAnswer struct {
	Revision int64     `json:"revision"`
	Since    time.Time `json:"since,omitzero"`
	Why      string    `json:"why"`
	By       string    `json:"by,omitempty"` // actor and reason; empty: an automatic rollback
}

// setAnswer is one MachineSet of a deployment.
type setAnswer struct {
	Name        string `json:"name"`
	Revision    int64  `json:"revision,omitempty"`
	Template    string `json:"template,omitempty"` // name of the class or of the infrastructure template
	Current     bool   `json:"current"`            // the set has the deployment's template
	Replicas    int    `json:"replicas"`
	Machines    int    `json:"machines"`
	Ready       int    `json:"ready"`
	Available   int    `json:"available"`
	Terminating int    `json:"terminating"`
}

// machineAnswer is a machine that a rollout waits for.
type machineAnswer struct {
	Name          string    `json:"name"`
	Node          string    `json:"node,omitempty"`
	Phase         string    `json:"phase"`
	Since         time.Time `json:"since,omitzero"`
	LastOperation string    `json:"lastOperation,omitempty"`
	Deleting      bool      `json:"deleting,omitempty"`
}

// answer returns the fields that JSON and YAML print for a rollout, with the advice at the end.
func (s snapshot) answer(advice []string) statusAnswer {
	word, since := s.state()
	c := s.status.Counts
	a := statusAnswer{
		Kind: s.tree.kind, Namespace: s.tree.object.GetNamespace(), Name: s.tree.object.GetName(),
		State: word, Since: since,
		Sentence: s.sentenceWithoutName(s.formatTimeWithDate), Complete: s.isRequestFulfilled(),
		Revision: s.decision.Revision, Desired: s.facts.Replicas, Updated: s.countUpdatedMachines(),
		Ready: c.Ready, Available: c.Available, PreservedFailed: c.PreservedFailed,
		Strategy: s.tree.strategy, Step: s.stepAnswer(), Deadline: s.deadline(),
	}
	if o := s.tree.operation; o != nil {
		a.WaitsFor, a.BlockedBy = o.WaitsFor, o.BlockedBy
	}
	if s.tree.policy != nil {
		a.Policy = s.tree.policy.Name
	}
	if pin := s.decision.Pin; pin != nil {
		a.Pinned = &pinAnswer{pin.Revision, pin.Since, pin.Why, pin.By}
	}
	for _, i := range s.shownSets() {
		a.Sets = append(a.Sets, s.setAnswer(i))
	}
	for _, m := range s.awaitedMachines() {
		a.Machines = append(a.Machines, machineAnswer{
			m.name, m.node, m.phase, m.phaseBeginTime, kubecli.CollapseSpaces(m.lastOperation), m.isBeingDeleted,
		})
	}
	a.Commands = kubecli.NextSteps(advice)
	return a
}

// stepAnswer returns the active step of the policy; nil if no step is active.
func (s snapshot) stepAnswer() *stepAnswer {
	o, p := s.facts, s.progressRecord()
	if !s.decision.Rolling || p.Step >= len(o.Steps) {
		return nil
	}
	a := &stepAnswer{
		Number: p.Step + 1, Of: len(o.Steps), Size: s.stepSize(p.Step), Reached: p.Reached,
		NeedsApproval: o.Steps[p.Step].NeedsApproval,
	}
	if pause := s.decision.Pause; pause != nil {
		a.Until = pause.Until
	}
	return a
}

func (s snapshot) setAnswer(i int) setAnswer {
	set := s.facts.Sets[i]
	count := func(is func(rollout.Member) bool) int { return list.CountWhere(set.Machines, is) }
	return setAnswer{
		Name: set.Name, Revision: set.Revision, Template: s.tree.Sets[i].templateName,
		Current: i == s.currentSetIndex(), Replicas: set.Replicas, Machines: len(set.Machines),
		Ready:       count(func(m rollout.Member) bool { return m.Ready && !m.Deleting }),
		Available:   count(func(m rollout.Member) bool { return m.Available }),
		Terminating: count(func(m rollout.Member) bool { return m.Deleting }),
	}
}

// revisionAnswer is one revision of a deployment, as JSON and YAML show it.
type revisionAnswer struct {
	Revision    int64     `json:"revision,omitempty"`
	Formerly    []string  `json:"formerly,omitempty"` // former revisions of the same template
	Set         string    `json:"set"`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
	Replicas    int32     `json:"replicas"`
	Template    string    `json:"template,omitempty"` // name of the class or of the infrastructure template
	Current     bool      `json:"current"`
	ChangeCause string    `json:"changeCause,omitempty"`
	Failed      string    `json:"failed,omitempty"` // why and since when a pin replaces the revision
}

// revisionAnswers returns the revisions of the deployment, the newest last.
func (s snapshot) revisionAnswers() []revisionAnswer {
	answers := []revisionAnswer{}
	for _, i := range s.setIndicesByRevision() {
		set, facts := s.tree.Sets[i], s.facts.Sets[i]
		a := revisionAnswer{
			Revision: facts.Revision, Set: set.name, CreatedAt: set.createdAt, Replicas: set.replicas,
			Template: set.templateName, Current: i == s.currentSetIndex(),
			ChangeCause: kubecli.CollapseSpaces(set.changeCause), Failed: set.pinReason,
		}
		if facts.History != "" {
			a.Formerly = strings.Split(facts.History, ",")
		}
		answers = append(answers, a)
	}
	return answers
}

// templateAnswer is the template of one revision in JSON and YAML.
type templateAnswer struct {
	Revision int64  `json:"revision"` // revision of the set now; a former revision may have been asked for
	Set      string `json:"set"`
	Template any    `json:"template"` // in the form of the deployment's spec.template
}

// planAnswer is the plan of a rollout in JSON and YAML.
type planAnswer struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Notes     []string   `json:"notes,omitempty"` // what the plan leaves out, and which policy applies
	Now       []sizeItem `json:"now,omitempty"`   // the sizes of the sets before the first step
	Steps     []planStep `json:"steps"`
	End       string     `json:"end,omitempty"` // why the plan does not complete the rollout, or how long it takes

	Complete       bool    `json:"complete"`                 // the rollout is complete after the last step
	MinimumSeconds float64 `json:"minimumSeconds,omitempty"` // least time of the rollout, with --create and --delete
}

// planStep is one step of a plan.
type planStep struct {
	Action string     `json:"action"`
	Sizes  []sizeItem `json:"sizes"` // the sizes of the sets after the step
}

// sizeItem is the size of a set.
type sizeItem struct {
	Set      string `json:"set"`
	Replicas int    `json:"replicas"`
}

func sizeItems(sizes []simulate.PredictedSetSize) []sizeItem {
	return list.Map(sizes, func(s simulate.PredictedSetSize) sizeItem { return sizeItem{s.Set, s.Replicas} })
}

// sortedByKey sorts snapshots by namespace and name.
func sortedByKey(all []snapshot) []snapshot {
	slices.SortFunc(all, func(a, b snapshot) int {
		x, y := a.tree.object, b.tree.object
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return all
}
