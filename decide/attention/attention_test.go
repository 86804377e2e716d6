package attention_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/health"
	"millwright/decide/inplace"
	"millwright/decide/nodesync"
	"millwright/decide/preserve"
)

// factsEdit changes the facts of a machine.
type factsEdit func(*attention.MachineFacts)

// readyConditions returns the conditions of a node whose condition Ready has this status.
func readyConditions(status string) []health.Condition {
	return []health.Condition{{Type: vocabulary.ConditionReady, Status: status, Reason: "KubeletNotReady"}}
}

// runningMachine returns the facts of a Running machine without a set and without pending work; its node is healthy and
// matches the node template.
func runningMachine(edits ...factsEdit) attention.MachineFacts {
	f := attention.MachineFacts{
		Facts: health.Facts{
			Phase:       vocabulary.PhaseRunning,
			Node:        health.Node{NodeName: "m-1"},
			Replacement: health.Replacement{Alone: true},
		},
		Finalizer:  true,
		ProviderID: "virtual:///eu/i-1",
		NodeExists: true,
		Conditions: readyConditions("True"),
		Wanted:     nodesync.WantedState{MachineName: "m-1"},
		Carries:    nodesync.Node{Finalizer: true},
	}
	changes := nodesync.Decide(f.Wanted, f.Carries)
	f.Carries.Labels, f.Carries.Annotations = changes.Labels.Set, changes.Annotations.Set
	for _, e := range edits {
		e(&f)
	}
	return f
}

func withPhase(p string) factsEdit { return func(f *attention.MachineFacts) { f.Phase = p } }

func withUnhealthyNode(f *attention.MachineFacts) { f.Conditions = readyConditions("False") }
func withoutNode(f *attention.MachineFacts)       { f.NodeExists = false }
func withDeletingNode(f *attention.MachineFacts)  { f.NodeDeleting = true }
func withoutReadyComponents(f *attention.MachineFacts) {
	f.NodeWaits = "its critical components are not ready"
}

func withoutTargetCluster(f *attention.MachineFacts)   { f.NoTargetCluster, f.NodeExists = true, false }
func withDeletion(f *attention.MachineFacts)           { f.Deleting = true }
func withoutFinalizer(f *attention.MachineFacts)       { f.Finalizer = false }
func withoutInstance(f *attention.MachineFacts)        { f.ProviderID = "" }
func withOutdatedConditions(f *attention.MachineFacts) { f.Uncopied = true }
func withUnsyncedNode(f *attention.MachineFacts)       { f.Carries.Finalizer = false }
func withReplacementDue(f *attention.MachineFacts)     { f.Due = true }
func withReplacementGrant(f *attention.MachineFacts)   { f.Granted = true }
func withoutNodeName(f *attention.MachineFacts)        { f.NodeName, f.NodeExists = "", false }
func withFoundNode(f *attention.MachineFacts)          { f.NodeFound = "ip-10-0-0-1" }
func withEndedDrain(f *attention.MachineFacts)         { f.Emptied = true }
func withRequiredGrant(f *attention.MachineFacts)      { f.Alone = false }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// asPreservedMachine makes a machine preserved until noon. The machine's node shows the preservation.
func asPreservedMachine(f *attention.MachineFacts) {
	f.Preserved = true
	f.Preservation = preserve.Facts{
		OnMachine: preserve.Annotation{
			Present: true,
			Text:    vocabulary.ValuePreserveNow,
		},
		NodeExists: true,
		Expiry:     noon,
		Timeout:    time.Hour,
		Drained:    "Drained",
	}
	f.Preservation.Failed = f.Phase == vocabulary.PhaseFailed
	d := preserve.Decide(f.Preservation)
	f.Preservation.Tainted, f.Preservation.Condition = d.Node.AddsTaint, d.Node.Condition
	yes := preserve.Annotation{Present: true, Text: "true"}
	f.Preservation.ScaleDownDisabled, f.Preservation.DisabledByUs = yes, yes
}

// asFormerlyPreservedMachine changes a machine to one whose preservation has ended. The machine's node still shows the
// preservation.
func asFormerlyPreservedMachine(f *attention.MachineFacts) {
	f.Preservation = preserve.Facts{NodeExists: true, Expiry: noon, Condition: &preserve.Condition{True: true}}
}

func TestPlanMachine(t *testing.T) {
	result := func(r string) func(*attention.MachineFacts) {
		return func(f *attention.MachineFacts) { f.UpdateResult = r }
	}
	our := func(reason string) factsEdit {
		return func(f *attention.MachineFacts) {
			f.Update = inplace.Node{Candidate: true, Selected: true, Cordoned: true, Reason: reason, Since: noon}
		}
	}
	const why = "no longer preserved, as nobody requests it: node has the condition of a preserved machine, its end is still recorded"
	for _, row := range []struct {
		name  string
		facts attention.MachineFacts
		need  attention.Need
		why   string
	}{
		{"running with a healthy node", runningMachine(), attention.NeedNothing, "running"},
		{"new object", attention.MachineFacts{}, attention.NeedInstance, "new: our finalizer is missing"},
		{"no instance", runningMachine(withoutInstance, withPhase("")), attention.NeedInstance, "has no initialised instance yet"},
		{"no instance, whatever the phase", runningMachine(withoutInstance), attention.NeedInstance, "has no initialised instance yet"},
		{"instance recorded, not initialised", runningMachine(withPhase("")), attention.NeedInstance, "has no initialised instance yet"},
		{"creation keeps failing", runningMachine(withPhase("CrashLoopBackOff")), attention.NeedInstance, "has no initialised instance yet"},
		{"node not registered", runningMachine(withPhase("Pending"), withoutNode), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; node m-1 has not joined yet"},
		{"node not ready", runningMachine(withPhase("Pending"), withUnhealthyNode), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; node m-1: Ready is False (KubeletNotReady)"},
		{"node has joined", runningMachine(withPhase("Pending")), attention.NeedStatusUpdate, "node m-1 has joined"},
		{"the name of the node is not known", runningMachine(withPhase("Pending"), withoutNodeName), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; no node has its provider ID yet"},
		{"a node has its provider ID", runningMachine(withPhase("Pending"), withoutNodeName, withFoundNode), attention.NeedNodeName, "node ip-10-0-0-1 has the provider ID of its instance"},
		{"without a target it needs none", runningMachine(withPhase("Available"), withoutTargetCluster, withoutNodeName, withFoundNode), attention.NeedNothing, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"node goes before it has joined", runningMachine(withPhase("Pending"), withDeletingNode), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; node m-1 is being deleted"},
		{"critical components are not ready: it has not joined", runningMachine(withPhase("Pending"), withoutReadyComponents), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; node m-1: its critical components are not ready"},
		{"an unhealthy node does not wait for them", runningMachine(withPhase("Unknown"), withoutReadyComponents), attention.NeedStatusUpdate, "node m-1 is healthy again"},
		{"nor does a node that is well", runningMachine(withoutReadyComponents), attention.NeedNothing, "running"},
		{"node got sick", runningMachine(withUnhealthyNode), attention.NeedStatusUpdate, "node m-1: Ready is False (KubeletNotReady)"},
		{"node went missing", runningMachine(withoutNode), attention.NeedStatusUpdate, "node m-1 is not registered"},
		{"node is being deleted", runningMachine(withDeletingNode), attention.NeedStatusUpdate, "node m-1 is being deleted"},
		{"still sick", runningMachine(withPhase("Unknown"), withUnhealthyNode), attention.NeedRecovery, "node m-1: Ready is False (KubeletNotReady)"},
		{"still missing", runningMachine(withPhase("Unknown"), withoutNode), attention.NeedRecovery, "node m-1 is not registered"},
		{"its node still goes", runningMachine(withPhase("Unknown"), withDeletingNode), attention.NeedRecovery, "node m-1 is being deleted"},
		{"well again", runningMachine(withPhase("Unknown")), attention.NeedStatusUpdate, "node m-1 is healthy again"},
		{"well again when it was due", runningMachine(withPhase("Unknown"), withReplacementDue), attention.NeedStatusUpdate, "node m-1 is healthy again"},
		{"a lone machine is due", runningMachine(withPhase("Unknown"), withUnhealthyNode, withReplacementDue), attention.NeedStatusUpdate, "to be replaced: node m-1: Ready is False (KubeletNotReady)"},
		{"below a deployment it waits", runningMachine(withPhase("Unknown"), withUnhealthyNode, withReplacementDue, withRequiredGrant), attention.NeedRecovery, "node m-1: Ready is False (KubeletNotReady)"},
		{"until it is granted", runningMachine(withPhase("Unknown"), withUnhealthyNode, withReplacementDue, withRequiredGrant, withReplacementGrant), attention.NeedStatusUpdate, "its replacement was granted"},
		{"marked by a person, although all is well", runningMachine(withReplacementGrant), attention.NeedStatusUpdate, "its replacement was granted"},
		{"marked by a person before it has an instance", runningMachine(withReplacementGrant, withoutInstance, withPhase("")), attention.NeedStatusUpdate, "its replacement was granted"},
		{"conditions to copy", runningMachine(withOutdatedConditions), attention.NeedStatusUpdate, "conditions of the node are not copied yet; running"},
		{"conditions to copy of a sick node", runningMachine(withPhase("Unknown"), withUnhealthyNode, withOutdatedConditions), attention.NeedStatusUpdate, "conditions of the node are not copied yet; node m-1: Ready is False (KubeletNotReady)"},
		{"conditions to copy before it has joined", runningMachine(withPhase("Pending"), withUnhealthyNode, withOutdatedConditions), attention.NeedStatusUpdate, "conditions of the node are not copied yet; instance virtual:///eu/i-1 exists; node m-1: Ready is False (KubeletNotReady)"},
		{"with a change of phase they are copied anyway", runningMachine(withUnhealthyNode, withOutdatedConditions), attention.NeedStatusUpdate, "node m-1: Ready is False (KubeletNotReady)"},
		{"without a node there is nothing to copy or to sync", runningMachine(withPhase("Unknown"), withoutNode, withOutdatedConditions, withUnsyncedNode), attention.NeedRecovery, "node m-1 is not registered"},
		{"node lacks something", runningMachine(withUnsyncedNode), attention.NeedNodeSync, "node lacks our finalizer"},
		{"node lacks something and has not joined", runningMachine(withPhase("Pending"), withUnhealthyNode, withUnsyncedNode), attention.NeedNodeSync, "node lacks our finalizer"},
		{"node lacks something and is sick", runningMachine(withPhase("Unknown"), withUnhealthyNode, withUnsyncedNode), attention.NeedNodeSync, "node lacks our finalizer"},
		{"health comes before what a node lacks", runningMachine(withUnhealthyNode, withUnsyncedNode), attention.NeedStatusUpdate, "node m-1: Ready is False (KubeletNotReady)"},
		{"conditions come before what a node lacks", runningMachine(withOutdatedConditions, withUnsyncedNode), attention.NeedStatusUpdate, "conditions of the node are not copied yet; running"},
		{"no target", runningMachine(withPhase("Pending"), withoutTargetCluster), attention.NeedStatusUpdate, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"no target, and known to be available", runningMachine(withPhase("Available"), withoutTargetCluster), attention.NeedNothing, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"no target, and no instance yet", runningMachine(withPhase(""), withoutTargetCluster, withoutInstance), attention.NeedInstance, "has no initialised instance yet"},
		{"no target any more", runningMachine(withoutTargetCluster), attention.NeedStatusUpdate, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"a target came", runningMachine(withPhase("Available"), withoutNode), attention.NeedNodeJoin, "instance virtual:///eu/i-1 exists; node m-1 has not joined yet"},
		{"a target came, and the node has joined", runningMachine(withPhase("Available")), attention.NeedStatusUpdate, "node m-1 has joined"},
		{"failed: its set's business", runningMachine(withPhase("Failed"), withoutNode), attention.NeedNothing, "failed: to be replaced"},
		{"a phase of another controller", runningMachine(withPhase("Dreaming"), withUnhealthyNode), attention.NeedNothing, "phase Dreaming"},
		{"its agent updates it", runningMachine(withPhase("InPlaceUpdating"), withUnhealthyNode), attention.NeedRecovery, "in-place update: node m-1: Ready is False (KubeletNotReady)"},
		{"its agent is done", runningMachine(withPhase("InPlaceUpdating"), result("successful")), attention.NeedStatusUpdate, "the in-place update has ended: successful"},
		{"it failed, and may be mended", runningMachine(withPhase("InPlaceUpdateFailed"), result("failed")), attention.NeedRecovery, "in-place update: node m-1 is healthy"},
		{"updated", runningMachine(withPhase("InPlaceUpdateSuccessful")), attention.NeedStatusUpdate, "updated in place; node m-1 is healthy"},
		{"it is our turn in an update", runningMachine(withPhase("InPlaceUpdating"), our("DrainSuccessful")), attention.NeedInPlaceUpdate, "in-place update: Ready"},
		{"its node has to be empty", runningMachine(our("SelectedForUpdate")), attention.NeedDrain, "in-place update: the node has to be empty; running"},
		{"to be preserved", runningMachine(asFormerlyPreservedMachine), attention.NeedPreservation, why},
		{"preserved", runningMachine(asPreservedMachine), attention.NeedPreservationEnd, "preserved; running"},
		{"failed, and to be preserved", runningMachine(withPhase("Failed"), withUnhealthyNode, asPreservedMachine, asFormerlyPreservedMachine), attention.NeedPreservation, why},
		{"failed, and preserved", runningMachine(withPhase("Failed"), withUnhealthyNode, asPreservedMachine), attention.NeedPreservationEnd, "failed, and preserved"},
		{"failed, preserved and well again", runningMachine(withPhase("Failed"), asPreservedMachine), attention.NeedStatusUpdate, "node m-1 is healthy again"},
		{"to be deleted", runningMachine(withDeletion), attention.NeedDeletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted, and a node has its provider ID: it has to be drained", runningMachine(withDeletion, withoutNodeName, withFoundNode), attention.NeedNodeName, "node ip-10-0-0-1 has the provider ID of its instance"},
		{"to be deleted, and nothing is left to drain", runningMachine(withDeletion, withoutNodeName, withFoundNode, withEndedDrain), attention.NeedDeletion, "deletion was asked for"},
		{"to be deleted when it has failed", runningMachine(withDeletion, withPhase("Failed")), attention.NeedDeletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted when its replacement was granted", runningMachine(withDeletion, withReplacementGrant), attention.NeedDeletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted while it is created", runningMachine(withDeletion, withoutInstance, withPhase("")), attention.NeedDeletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted, and past the drain", runningMachine(withDeletion, func(f *attention.MachineFacts) { f.Emptied, f.Conditions = true, readyConditions("False") }), attention.NeedDeletion, "deletion was asked for"},
		{"deleted without finalizer", runningMachine(withDeletion, withoutFinalizer), attention.NeedNothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.PlanMachine(row.facts)
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, d.Decision)
			assert.Equal(t, row.need == attention.NeedNothing, d.NeedsNothing())
			assert.Nil(t, d.Health, "without a time no timeout is judged")
		})
	}
}

// forAllEditCombinations calls check with every combination of edits of a machine in this phase.
func forAllEditCombinations(p string, check func(attention.MachineFacts)) {
	edits := []factsEdit{
		withUnhealthyNode,
		withoutNode,
		withDeletingNode,
		withoutReadyComponents,
		withoutTargetCluster,
		withoutFinalizer,
		withoutInstance,
		withOutdatedConditions,
		withUnsyncedNode,
		withReplacementDue,
		withReplacementGrant,
		withRequiredGrant,
	}
	for bits := range 1 << len(edits) {
		f := runningMachine(withPhase(p))
		for i, e := range edits {
			if bits>>i&1 == 1 {
				e(&f)
			}
		}
		check(f)
	}
}

func TestFailedMachineNeedsNothing(t *testing.T) {
	forAllEditCombinations("Failed", func(f attention.MachineFacts) {
		require.Equal(
			t,
			attention.Decision{Need: attention.NeedNothing, Why: "failed: to be replaced"},
			attention.PlanMachine(f).Decision,
			"%+v",
			f,
		)
	})
}

func TestOnlyASettledMachineNeedsNothing(t *testing.T) {
	for _, p := range []string{"", "CrashLoopBackOff", "Pending", "Available", "Running", "Unknown"} {
		forAllEditCombinations(p, func(f attention.MachineFacts) {
			joined := p == "Running" && f.NodeExists && f.Conditions[0].Status == "True" && !f.NodeDeleting && !f.Uncopied &&
				f.Carries.Finalizer &&
				!f.NoTargetCluster
			calm := f.Finalizer && f.ProviderID != "" && !f.Granted && (joined || p == "Available" && f.NoTargetCluster)
			require.Equal(t, calm, attention.PlanMachine(f).NeedsNothing(), "%+v", f)
		})
	}
}

// During an outage of the target no node is known, and nobody has anything to decide about a Running machine.
func TestARunningMachineOfATargetThatIsNotConnectedNeedsNothing(t *testing.T) {
	down := func(f *attention.MachineFacts) {
		f.TargetDown = "the target cluster of namespace shop is not connected"
	}
	d := attention.PlanMachine(runningMachine(withoutNode, down))
	assert.Equal(t, attention.NeedNothing, d.Need)
	assert.Equal(t, "the target cluster of namespace shop is not connected", d.Why)
	assert.Equal(t, attention.NeedStatusUpdate, attention.PlanMachine(runningMachine(withoutNode)).Need)
}
