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

// Stage is what Cluster API's own controllers do with a Machine.
type Stage string

// The stages, in their order.
const (
	StageBootstrap       Stage = "Bootstrap"       // its bootstrap data are made
	StageInfrastructure  Stage = "Infrastructure"  // its instance is made
	StageJoin            Stage = "Join"            // its node joins
	StageRecover         Stage = "Recover"         // its node has joined, and is not healthy
	StageUpdate          Stage = "Update"          // a runtime extension updates it in place
	StagePaused          Stage = "Paused"          // a person has stopped Cluster API's controllers for it
	StageDelete          Stage = "Delete"          // it is being deleted, and nothing more is known
	StageHooks           Stage = "Hooks"           // hooks keep it from its drain, or from the deletion of its instance
	StageOwnDrain        Stage = "OwnDrain"        // Millwright drains its node, and its hook keeps the machine meanwhile
	StageDrain           Stage = "Drain"           // its node is drained
	StageDetach          Stage = "Detach"          // its volumes are detached
	StageDeleteInstance  Stage = "DeleteInstance"  // its instance is deleted
	StageDeleteBootstrap Stage = "DeleteBootstrap" // its bootstrap configuration is deleted
	StageDeleteNode      Stage = "DeleteNode"      // its Node object is deleted
)

// After which time a stage counts as standing still. Each machine whose stage lasts longer costs a write of its set's
// status. Sources: an instance takes one to five minutes, kubeadm a few more; a drain waits 30 s for each pod by
// default, and a cloud has five minutes to delete an instance, as in docs/provider.md.
const (
	slowBootstrap = 2 * time.Minute
	slowInstance  = 5 * time.Minute
	slowJoin      = 10 * time.Minute
	slowRecovery  = 2 * time.Minute
	slowUpdate    = 10 * time.Minute // Source: an update in place restarts kubelet, and may reboot the machine
	slowDrain     = 2 * time.Minute
	slowDetach    = 2 * time.Minute
	slowHandling  = 2 * time.Minute // until a controller of Cluster API looks at a machine
)

// stage holds what is said about a stage.
type stage struct {
	step    string // of the vocabulary
	goal    Words
	blocker string
	cause   string // a clause; the message of Cluster API follows it
	slow    time.Duration
	next    Words // at the deadline
}

func stages() map[Stage]stage {
	leaves := Words{"waits to leave", "wait to leave"}
	return map[Stage]stage{
		StageBootstrap: {
			vocabulary.StepCreateInstance,
			Words{"waits for its bootstrap data", "wait for their bootstrap data"},
			vocabulary.BlockedBootstrapNotReady, "the bootstrap data are not ready", slowBootstrap,
			Words{},
		},
		StageInfrastructure: {
			vocabulary.StepCreateInstance,
			Words{"waits for its instance", "wait for their instances"},
			vocabulary.BlockedInfrastructureNotReady, "the infrastructure is not ready", slowInstance,
			Words{},
		},
		StageJoin: {
			vocabulary.StepAwaitNode,
			Words{"waits for its node to join", "wait for their nodes to join"},
			vocabulary.BlockedNodeNotJoined, "no node has joined", slowJoin,
			Words{},
		},
		StageRecover: {
			vocabulary.StepAwaitRecovery,
			Words{"waits for its node to recover", "wait for their nodes to recover"},
			vocabulary.BlockedNode, "the node is not healthy", slowRecovery,
			Words{},
		},
		StageUpdate: {
			vocabulary.StepAwaitUpdate,
			Words{"waits for its update in place", "wait for their updates in place"},
			vocabulary.BlockedInPlaceUpdate, "the update in place does not end", slowUpdate,
			Words{},
		},
		StagePaused: {
			"",
			Words{"waits to be resumed", "wait to be resumed"},
			vocabulary.BlockedPaused,
			"the Machine is paused",
			0,
			Words{},
		},
		StageDelete: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedMachineNotDeleted,
			"the deletion does not end",
			slowHandling,
			Words{},
		},
		StageHooks: {vocabulary.StepAwaitHooks, leaves, "", "", 0, Words{}},
		StageOwnDrain: {
			vocabulary.StepDrain,
			leaves,
			vocabulary.BlockedNodeDrain,
			"Millwright drains the node",
			slowDrain,
			Words{},
		},
		StageDrain: {
			vocabulary.StepDrain, leaves, vocabulary.BlockedNodeDrain, "Cluster API drains the node", slowDrain,
			Words{"it goes on without the pods that are left", "they go on without the pods that are left"},
		},
		StageDetach: {
			vocabulary.StepAwaitDetach, leaves, vocabulary.BlockedVolumeDetach, "volumes are attached to the node", slowDetach,
			Words{"it goes on without the volumes", "they go on without the volumes"},
		},
		StageDeleteInstance: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedInfrastructureNotDeleted,
			"the infrastructure is not deleted",
			slowDeletion,
			Words{},
		},
		StageDeleteBootstrap: {
			vocabulary.StepDeleteInstance,
			leaves,
			vocabulary.BlockedBootstrapNotDeleted,
			"the bootstrap configuration is not deleted",
			slowDeletion,
			Words{},
		},
		StageDeleteNode: {
			vocabulary.StepDeleteNode,
			leaves,
			vocabulary.BlockedNodeNotDeleted,
			"the Node object is not deleted",
			slowHandling,
			Words{},
		},
	}
}

// UpstreamMachine is what the status of a Machine of Cluster API says about its present stage, and what the commands
// that change it need to know. Cluster API's own controllers carry the stages out.
type UpstreamMachine struct {
	Namespace, Name string
	Stage           Stage // empty: it is calm
	Message         string
	Since           time.Time // when the stage began, or the last known time before that
	Deadline        time.Time // when Cluster API goes on without what it waits for; zero: never
	Hooks           []string  // keys of the annotations that keep it, in their order
	Object          string    // the object that the command describes, as KIND NAME; empty: the Machine
	Unhandled       bool      // no controller of Cluster API has looked at the machine in this stage
	Drain           Machine   // of OwnDrain: what its drain waits for, if that is known
	// Lost: what the stage creates existed and is gone, or the stage has failed. It counts as standing still at once.
	Lost bool
	Now  time.Time // of the decision
}

// Step returns the step of the machine, as a word of the vocabulary; empty: it is calm.
func (m UpstreamMachine) Step() string { return stages()[m.Stage].step }

// longestUpstream bounds what Cluster API says in a cause. Source: a drain names each of its pods, and three causes fit
// into a condition.
const longestUpstream = 400

// WaitsFor returns what a machine waits for; the zero Wait for a machine that is calm.
func (m UpstreamMachine) WaitsFor() Wait {
	of, known := stages()[m.Stage]
	switch {
	case !known:
		return Wait{}
	case m.Drain.Step != "":
		return m.Drain.WaitsFor()
	}
	message := strings.Join(strings.Fields(m.Message), " ")
	w := Wait{
		Goal:  of.goal,
		Since: m.Since,
		Cause: of.cause + phrase.If(message != "", ": %s", phrase.Cut(message, longestUpstream)),
	}
	if !m.Deadline.IsZero() {
		w.Next, w.At = of.next, m.Deadline
	}
	switch {
	case m.Unhandled:
		w.Cause = "no controller of Cluster API has looked at it"
		w.Next, w.At = Words{}, time.Time{}
	case m.Stage == StageHooks:
		w.Cause = fmt.Sprintf(
			"%s %s %s it",
			phrase.OneOf(len(m.Hooks), "the hook", "the hooks"),
			strings.Join(m.Hooks, ", "),
			phrase.OneOf(len(m.Hooks), "keeps", "keep"),
		)
	}
	if m.slow() {
		w.Blockers, w.Command = m.blockers(of), m.command()
	}
	return w
}

// slow reports whether the stage counts as standing still.
func (m UpstreamMachine) slow() bool { return m.Lost || !m.Now.Before(m.stands()) }

// stands returns when the stage begins to count as standing still.
func (m UpstreamMachine) stands() time.Time {
	limit := stages()[m.Stage].slow
	if m.Unhandled {
		limit = slowHandling
	}
	return m.Since.Add(limit)
}

// StandsStillAt returns when the machine begins to count as standing still; zero: it is calm, or does so already.
func (m UpstreamMachine) StandsStillAt() time.Time {
	if m.Stage == "" || m.Drain.Step != "" || m.slow() {
		return time.Time{}
	}
	return m.stands()
}

func (m UpstreamMachine) blockers(of stage) []string {
	switch {
	case m.Unhandled:
		return []string{vocabulary.BlockedNotHandled}
	case m.Stage == StageHooks:
		return m.Hooks
	default:
		return []string{of.blocker}
	}
}

// command returns the command that changes what the machine waits for, or shows it. Both API groups have machines.
func (m UpstreamMachine) command() string {
	const machines = "machines.cluster.x-k8s.io"
	switch {
	case m.Unhandled:
		return "kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api"
	case m.Stage == StageHooks:
		return fmt.Sprintf("kubectl annotate %s -n %s %s %s-", machines, m.Namespace, m.Name, m.Hooks[0])
	case m.Stage == StageOwnDrain:
		return fmt.Sprintf("millwright drain explain %s/%s", m.Namespace, m.Name)
	case m.Stage == StagePaused:
		return fmt.Sprintf("kubectl annotate %s -n %s %s %s-", machines, m.Namespace, m.Name, vocabulary.AnnotationPaused)
	default:
		kind, name, _ := strings.Cut(cmp.Or(m.Object, machines+" "+m.Name), " ")
		return fmt.Sprintf("kubectl describe %s -n %s %s", kind, m.Namespace, name)
	}
}

// ofUpstream returns what machines of Cluster API wait for, in the order of their names.
func ofUpstream(machines []UpstreamMachine) []Wait {
	machines = list.SortedLarge(machines, func(a, b *UpstreamMachine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Map(machines, UpstreamMachine.WaitsFor)
}
