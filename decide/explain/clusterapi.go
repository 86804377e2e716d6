package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Stage is a stage that Cluster API's own controllers carry out for a Machine.
type Stage string

// The stages, in the order of a Machine's life.
const (
	StageBootstrap       Stage = "Bootstrap"       // the machine's bootstrap data are being created
	StageInfrastructure  Stage = "Infrastructure"  // the machine's instance is being created
	StageJoin            Stage = "Join"            // the machine's node is joining
	StageRecover         Stage = "Recover"         // the machine's node has joined and is not healthy
	StageUpdate          Stage = "Update"          // a runtime extension is updating the machine in place
	StagePaused          Stage = "Paused"          // a person has paused Cluster API's controllers for the machine
	StageUnknownDeletion Stage = "Delete"          // the machine is being deleted, and the details are unknown
	StageAwaitHooks      Stage = "Hooks"           // hooks delay the machine's drain, or the deletion of its instance
	StageMillwrightDrain Stage = "OwnDrain"        // Millwright's hook keeps the machine while Millwright drains its node
	StageClusterAPIDrain Stage = "Drain"           // Cluster API drains the machine's node
	StageDetachVolumes   Stage = "Detach"          // the machine's volumes are being detached
	StageDeleteInstance  Stage = "DeleteInstance"  // the machine's instance is being deleted
	StageDeleteBootstrap Stage = "DeleteBootstrap" // the machine's bootstrap configuration is being deleted
	StageDeleteNode      Stage = "DeleteNode"      // the machine's Node object is being deleted
)

// Durations after which a stage counts as blocked. If the stage lasts longer, each machine causes a write of its set's
// status. Sources: an instance takes one to five minutes, and kubeadm a few more; by default, a drain waits 30 s for
// each pod; docs/provider.md gives a cloud five minutes to delete an instance.
const (
	slowBootstrapAfter = 2 * time.Minute
	slowInstanceAfter  = 5 * time.Minute
	slowJoinAfter      = 10 * time.Minute
	slowRecoveryAfter  = 2 * time.Minute
	slowUpdateAfter    = 10 * time.Minute // Source: an in-place update restarts kubelet, and may reboot the machine
	slowDrainAfter     = 2 * time.Minute
	slowDetachAfter    = 2 * time.Minute
	slowHandlingAfter  = 2 * time.Minute // time until a controller of Cluster API has handled a machine
)

// stageTexts holds the texts for a stage.
type stageTexts struct {
	stepName      string // name of the step, from package vocabulary
	goal          PhraseForms
	blocker       string
	cause         string // a clause; Cluster API's message follows the clause
	slowAfter     time.Duration
	deadlineEvent Event // what happens at the deadline
}

func textsByStage() map[Stage]stageTexts {
	leaves := PhraseForms{"waits to leave", "wait to leave"}
	return map[Stage]stageTexts{
		StageBootstrap: {
			vocabulary.StepCreateInstance,
			PhraseForms{"waits for its bootstrap data", "wait for their bootstrap data"},
			vocabulary.BlockedByBootstrapNotReady, "the bootstrap data are not ready", slowBootstrapAfter,
			Event{},
		},
		StageInfrastructure: {
			vocabulary.StepCreateInstance,
			PhraseForms{"waits for its instance", "wait for their instances"},
			vocabulary.BlockedByInfrastructureNotReady, "the infrastructure is not ready", slowInstanceAfter,
			Event{},
		},
		StageJoin: {
			vocabulary.StepAwaitNode,
			PhraseForms{"waits for its node to join", "wait for their nodes to join"},
			vocabulary.BlockedByNodeNotJoined, "no node has joined", slowJoinAfter,
			Event{},
		},
		StageRecover: {
			vocabulary.StepAwaitRecovery,
			PhraseForms{"waits for its node to recover", "wait for their nodes to recover"},
			vocabulary.BlockedByUnhealthyNode, "the node is not healthy", slowRecoveryAfter,
			Event{},
		},
		StageUpdate: {
			vocabulary.StepAwaitUpdate,
			PhraseForms{"waits for its update in place", "wait for their updates in place"},
			vocabulary.BlockedByInPlaceUpdate, "the update in place does not end", slowUpdateAfter,
			Event{},
		},
		StagePaused: {
			"",
			PhraseForms{"waits to be resumed", "wait to be resumed"},
			vocabulary.BlockedByPause,
			"the Machine is paused",
			0,
			Event{},
		},
		StageUnknownDeletion: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedByMachineNotDeleted,
			"the deletion does not end",
			slowHandlingAfter,
			Event{},
		},
		StageAwaitHooks: {vocabulary.StepAwaitHooks, leaves, "", "", 0, Event{}},
		StageMillwrightDrain: {
			vocabulary.StepDrain,
			leaves,
			vocabulary.BlockedByNodeDrain,
			"Millwright drains the node",
			slowDrainAfter,
			Event{},
		},
		StageClusterAPIDrain: {
			vocabulary.StepDrain, leaves, vocabulary.BlockedByNodeDrain, "Cluster API drains the node", slowDrainAfter,
			podsLeftBehindEvent(),
		},
		StageDetachVolumes: {
			vocabulary.StepAwaitDetach,
			leaves,
			vocabulary.BlockedByVolumeDetach,
			"volumes are attached to the node",
			slowDetachAfter,
			Event{PhraseForms{"it goes on without the volumes", "they go on without the volumes"}, "goes on"},
		},
		StageDeleteInstance: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedByInfrastructureNotDeleted,
			"the infrastructure is not deleted",
			slowDeletionAfter,
			Event{},
		},
		StageDeleteBootstrap: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedByBootstrapNotDeleted,
			"the bootstrap configuration is not deleted",
			slowDeletionAfter,
			Event{},
		},
		StageDeleteNode: {
			vocabulary.StepDeleteNode,
			leaves,
			vocabulary.BlockedByNodeNotDeleted,
			"the Node object is not deleted",
			slowHandlingAfter,
			Event{},
		},
	}
}

// ClusterAPIMachine holds the facts from a Cluster API Machine's status about its current stage, and the names that the
// commands need. Cluster API's own controllers carry the stages out.
type ClusterAPIMachine struct {
	Namespace, Name string
	Stage           Stage // current stage; empty: the machine waits for nothing
	Message         string
	Since           time.Time // when the stage began, or the latest known time before its beginning
	Deadline        time.Time // when Cluster API continues without waiting; zero: never
	Hooks           []string  // keys of the hook annotations that delay the deletion of the machine, in their order
	DescribedObject string    // object that the command describes, as KIND NAME; empty: the Machine
	Unhandled       bool      // no controller of Cluster API has handled the machine in this stage
	// in the stage OwnDrain: the Millwright Machine that shows the state of the drain, if known
	DrainingMachine Machine
	// HasFailed means that the object that the stage creates existed and is gone, or that the stage has failed. Such a
	// machine counts as blocked at once.
	HasFailed bool
	Now       time.Time // time of the decision
}

// StepName returns the machine's step, from package vocabulary; empty: the machine waits for nothing.
func (m ClusterAPIMachine) StepName() string { return textsByStage()[m.Stage].stepName }

// maxClusterAPIMessageBytes bounds the length of Cluster API's message in a cause. Source: Cluster API's message about
// a drain names each pod, and a condition must have room for three causes.
const maxClusterAPIMessageBytes = 400

// CurrentWait returns the WaitState of the machine. If the machine waits for nothing, CurrentWait returns the zero
// WaitState.
func (m ClusterAPIMachine) CurrentWait() WaitState {
	of, known := textsByStage()[m.Stage]
	switch {
	case !known:
		return WaitState{}
	case m.DrainingMachine.Step != "":
		return m.DrainingMachine.CurrentWait()
	}
	message := strings.Join(strings.Fields(m.Message), " ")
	w := WaitState{
		Goal:  of.goal,
		Step:  of.stepName,
		Since: m.Since,
		Cause: of.cause + phrase.TextIf(message != "", ": %s", phrase.TruncateText(message, maxClusterAPIMessageBytes)),
	}
	if !m.Deadline.IsZero() {
		w.NextEvent, w.NextEventTime = of.deadlineEvent, m.Deadline
	}
	switch {
	case m.Unhandled:
		w.Cause = "no controller of Cluster API has looked at it"
		w.NextEvent, w.NextEventTime = Event{}, time.Time{}
	case m.Stage == StageAwaitHooks:
		w.Cause = fmt.Sprintf(
			"%s %s %s it",
			phrase.SingularOrPlural(len(m.Hooks), "the hook", "the hooks"),
			strings.Join(m.Hooks, ", "),
			phrase.SingularOrPlural(len(m.Hooks), "keeps", "keep"),
		)
	}
	if m.isSlow() {
		w.Blockers, w.Command = m.blockers(of), m.command()
	}
	return w
}

// isSlow reports whether the stage counts as blocked.
func (m ClusterAPIMachine) isSlow() bool { return m.HasFailed || !m.Now.Before(m.stageBlockerStart()) }

// stageBlockerStart returns the time from which the stage counts as blocked.
func (m ClusterAPIMachine) stageBlockerStart() time.Time {
	limit := textsByStage()[m.Stage].slowAfter
	if m.Unhandled {
		limit = slowHandlingAfter
	}
	return m.Since.Add(limit)
}

// BlockerStart returns the time at which the machine begins to count as blocked; zero: the machine waits for nothing,
// or is already blocked.
func (m ClusterAPIMachine) BlockerStart() time.Time {
	if m.Stage == "" || m.DrainingMachine.Step != "" || m.isSlow() {
		return time.Time{}
	}
	return m.stageBlockerStart()
}

func (m ClusterAPIMachine) blockers(of stageTexts) []string {
	switch {
	case m.Unhandled:
		return []string{vocabulary.BlockedByUnhandledMachine}
	case m.Stage == StageAwaitHooks:
		return m.Hooks
	default:
		return []string{of.blocker}
	}
}

// command returns the command that ends the machine's wait or shows the reason. Both API groups have machines, so the
// command names the group.
func (m ClusterAPIMachine) command() string {
	const machines = "machines.cluster.x-k8s.io"
	switch {
	case m.Unhandled:
		return "kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api"
	case m.Stage == StageAwaitHooks:
		return fmt.Sprintf("kubectl annotate %s -n %s %s %s-", machines, m.Namespace, m.Name, m.Hooks[0])
	case m.Stage == StageMillwrightDrain:
		return fmt.Sprintf("millwright drain explain %s/%s", m.Namespace, m.Name)
	case m.Stage == StagePaused:
		return fmt.Sprintf("kubectl annotate %s -n %s %s %s-", machines, m.Namespace, m.Name, vocabulary.AnnotationPaused)
	default:
		kind, name, _ := strings.Cut(cmp.Or(m.DescribedObject, machines+" "+m.Name), " ")
		return fmt.Sprintf("kubectl describe %s -n %s %s", kind, m.Namespace, name)
	}
}

// waitsOfClusterAPIMachines returns the Waits of Cluster API machines, sorted by machine name.
func waitsOfClusterAPIMachines(machines []ClusterAPIMachine) []WaitState {
	machines = list.SortedCopyOfLargeItems(
		machines,
		func(a, b *ClusterAPIMachine) int { return cmp.Compare(a.Name, b.Name) },
	)
	return list.Map(machines, ClusterAPIMachine.CurrentWait)
}

// HandOver holds the facts about a MachineSet or MachineDeployment of Cluster API that has Millwright's label, while
// Cluster API's controller may still change it.
type HandOver struct {
	Kind, Namespace string
	ClusterName     string
	Since           time.Time // beginning of the wait
}

// BlockedSummary returns the Summary of the object.
func (h HandOver) BlockedSummary(now time.Time) Summary {
	return summarizeWaits([]WaitState{{
		Blockers: []string{vocabulary.BlockedByHandOver},
		Cause: "Cluster API's controller may still change this " + h.Kind +
			", so Millwright waits until the controller has set the condition Paused",
		Since:     h.Since,
		NextEvent: newEvent("pause the Cluster, and resume it when the finalizer is Millwright's", ""),
		Command: fmt.Sprintf(
			`kubectl patch clusters.cluster.x-k8s.io -n %s %s --type=merge -p '{"spec":{"paused":true}}'`,
			h.Namespace,
			h.ClusterName,
		),
	}}, nil, 0, now)
}
