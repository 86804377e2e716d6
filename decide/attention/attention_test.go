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

// edit changes the facts of a machine.
type edit func(*attention.MachineFacts)

// ready returns the conditions of a node whose condition Ready has that status.
func ready(status string) []health.Condition {
	return []health.Condition{{Type: vocabulary.ConditionReady, Status: status, Reason: "KubeletNotReady"}}
}

// running returns the facts of a machine that is calm: lone, Running, with a node that is well and carries what it
// should.
func running(edits ...edit) attention.MachineFacts {
	f := attention.MachineFacts{
		Facts: health.Facts{
			Phase:       vocabulary.PhaseRunning,
			Node:        health.Node{NodeName: "m-1"},
			Replacement: health.Replacement{Alone: true},
		},
		Finalizer:  true,
		ProviderID: "virtual:///eu/i-1",
		NodeExists: true,
		Conditions: ready("True"),
		Wanted:     nodesync.Wanted{MachineName: "m-1"},
		Carries:    nodesync.Node{Finalizer: true},
	}
	changes := nodesync.Decide(f.Wanted, f.Carries)
	f.Carries.Labels, f.Carries.Annotations = changes.Labels.Set, changes.Annotations.Set
	for _, e := range edits {
		e(&f)
	}
	return f
}

func phase(p string) edit { return func(f *attention.MachineFacts) { f.Phase = p } }

func sick(f *attention.MachineFacts)       { f.Conditions = ready("False") }
func noNode(f *attention.MachineFacts)     { f.NodeExists = false }
func nodeGoing(f *attention.MachineFacts)  { f.NodeDeleting = true }
func nodeHeld(f *attention.MachineFacts)   { f.NodeWaits = "its critical components are not ready" }
func noTarget(f *attention.MachineFacts)   { f.NoTarget, f.NodeExists = true, false }
func deleting(f *attention.MachineFacts)   { f.Deleting = true }
func released(f *attention.MachineFacts)   { f.Finalizer = false }
func noInstance(f *attention.MachineFacts) { f.ProviderID = "" }
func uncopied(f *attention.MachineFacts)   { f.Uncopied = true }
func unsynced(f *attention.MachineFacts)   { f.Carries.Finalizer = false }
func due(f *attention.MachineFacts)        { f.Due = true }
func granted(f *attention.MachineFacts)    { f.Granted = true }
func nameless(f *attention.MachineFacts)   { f.NodeName, f.NodeExists = "", false }
func found(f *attention.MachineFacts)      { f.NodeFound = "ip-10-0-0-1" }
func emptied(f *attention.MachineFacts)    { f.Emptied = true }
func inSet(f *attention.MachineFacts)      { f.Alone = false }

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// preserved is a machine whose preservation is on record, and whose node says so.
func preserved(f *attention.MachineFacts) {
	f.Preserved = true
	f.Preservation = preserve.Facts{
		OnMachine: preserve.Annotation{
			Present: true,
			Text:    vocabulary.PreserveNow,
		},
		NodeExists: true,
		Expiry:     noon,
		Timeout:    time.Hour,
		Drained:    "Drained",
	}
	f.Preservation.Failed = f.Phase == vocabulary.PhaseFailed
	d := preserve.Decide(f.Preservation)
	f.Preservation.Tainted, f.Preservation.Condition = d.Node.Taint, d.Node.Condition
	yes := preserve.Annotation{Present: true, Text: "true"}
	f.Preservation.ScaleDownDisabled, f.Preservation.DisabledByUs = yes, yes
}

// unpreserved is a machine that was preserved: its node still says so.
func unpreserved(f *attention.MachineFacts) {
	f.Preservation = preserve.Facts{NodeExists: true, Expiry: noon, Condition: &preserve.Condition{True: true}}
}

func TestMachine(t *testing.T) {
	result := func(r string) func(*attention.MachineFacts) {
		return func(f *attention.MachineFacts) { f.UpdateResult = r }
	}
	our := func(reason string) edit {
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
		{"running with a healthy node", running(), attention.Nothing, "running"},
		{"new object", attention.MachineFacts{}, attention.Instance, "new: our finalizer is missing"},
		{"no instance", running(noInstance, phase("")), attention.Instance, "has no initialised instance yet"},
		{"no instance, whatever the phase", running(noInstance), attention.Instance, "has no initialised instance yet"},
		{"instance recorded, not initialised", running(phase("")), attention.Instance, "has no initialised instance yet"},
		{"creation keeps failing", running(phase("CrashLoopBackOff")), attention.Instance, "has no initialised instance yet"},
		{"node not registered", running(phase("Pending"), noNode), attention.Node, "instance virtual:///eu/i-1 exists; node m-1 is not registered"},
		{"node not ready", running(phase("Pending"), sick), attention.Node, "instance virtual:///eu/i-1 exists; node m-1: Ready is False (KubeletNotReady)"},
		{"node has joined", running(phase("Pending")), attention.Health, "node m-1 has joined"},
		{"the name of the node is not known", running(phase("Pending"), nameless), attention.Node, "instance virtual:///eu/i-1 exists; no node has its provider ID yet"},
		{"a node has its provider ID", running(phase("Pending"), nameless, found), attention.Name, "node ip-10-0-0-1 has the provider ID of its instance"},
		{"without a target it needs none", running(phase("Available"), noTarget, nameless, found), attention.Nothing, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"node goes before it has joined", running(phase("Pending"), nodeGoing), attention.Node, "instance virtual:///eu/i-1 exists; node m-1 is being deleted"},
		{"critical components are not ready: it has not joined", running(phase("Pending"), nodeHeld), attention.Node, "instance virtual:///eu/i-1 exists; node m-1: its critical components are not ready"},
		{"an unhealthy node does not wait for them", running(phase("Unknown"), nodeHeld), attention.Health, "node m-1 is healthy again"},
		{"nor does a node that is well", running(nodeHeld), attention.Nothing, "running"},
		{"node got sick", running(sick), attention.Health, "node m-1: Ready is False (KubeletNotReady)"},
		{"node went missing", running(noNode), attention.Health, "node m-1 is not registered"},
		{"node is being deleted", running(nodeGoing), attention.Health, "node m-1 is being deleted"},
		{"still sick", running(phase("Unknown"), sick), attention.Recovery, "node m-1: Ready is False (KubeletNotReady)"},
		{"still missing", running(phase("Unknown"), noNode), attention.Recovery, "node m-1 is not registered"},
		{"its node still goes", running(phase("Unknown"), nodeGoing), attention.Recovery, "node m-1 is being deleted"},
		{"well again", running(phase("Unknown")), attention.Health, "node m-1 is healthy again"},
		{"well again when it was due", running(phase("Unknown"), due), attention.Health, "node m-1 is healthy again"},
		{"a lone machine is due", running(phase("Unknown"), sick, due), attention.Health, "to be replaced: node m-1: Ready is False (KubeletNotReady)"},
		{"below a deployment it waits", running(phase("Unknown"), sick, due, inSet), attention.Recovery, "node m-1: Ready is False (KubeletNotReady)"},
		{"until it is granted", running(phase("Unknown"), sick, due, inSet, granted), attention.Health, "its replacement was granted"},
		{"marked by a person, although all is well", running(granted), attention.Health, "its replacement was granted"},
		{"marked by a person before it has an instance", running(granted, noInstance, phase("")), attention.Health, "its replacement was granted"},
		{"conditions to copy", running(uncopied), attention.Health, "conditions of the node are not copied yet; running"},
		{"conditions to copy of a sick node", running(phase("Unknown"), sick, uncopied), attention.Health, "conditions of the node are not copied yet; node m-1: Ready is False (KubeletNotReady)"},
		{"conditions to copy before it has joined", running(phase("Pending"), sick, uncopied), attention.Health, "conditions of the node are not copied yet; instance virtual:///eu/i-1 exists; node m-1: Ready is False (KubeletNotReady)"},
		{"with a change of phase they are copied anyway", running(sick, uncopied), attention.Health, "node m-1: Ready is False (KubeletNotReady)"},
		{"without a node there is nothing to copy or to sync", running(phase("Unknown"), noNode, uncopied, unsynced), attention.Recovery, "node m-1 is not registered"},
		{"node lacks something", running(unsynced), attention.Sync, "node lacks our finalizer"},
		{"node lacks something and has not joined", running(phase("Pending"), sick, unsynced), attention.Sync, "node lacks our finalizer"},
		{"node lacks something and is sick", running(phase("Unknown"), sick, unsynced), attention.Sync, "node lacks our finalizer"},
		{"health comes before what a node lacks", running(sick, unsynced), attention.Health, "node m-1: Ready is False (KubeletNotReady)"},
		{"conditions come before what a node lacks", running(uncopied, unsynced), attention.Health, "conditions of the node are not copied yet; running"},
		{"no target", running(phase("Pending"), noTarget), attention.Health, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"no target, and known to be available", running(phase("Available"), noTarget), attention.Nothing, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"no target, and no instance yet", running(phase(""), noTarget, noInstance), attention.Instance, "has no initialised instance yet"},
		{"no target any more", running(noTarget), attention.Health, "instance virtual:///eu/i-1 exists; there is no target cluster"},
		{"a target came", running(phase("Available"), noNode), attention.Node, "instance virtual:///eu/i-1 exists; node m-1 is not registered"},
		{"a target came, and the node has joined", running(phase("Available")), attention.Health, "node m-1 has joined"},
		{"failed: its set's business", running(phase("Failed"), noNode), attention.Nothing, "failed: to be replaced"},
		{"a phase of another controller", running(phase("Dreaming"), sick), attention.Nothing, "phase Dreaming"},
		{"its agent updates it", running(phase("InPlaceUpdating"), sick), attention.Recovery, "in-place update: node m-1: Ready is False (KubeletNotReady)"},
		{"its agent is done", running(phase("InPlaceUpdating"), result("successful")), attention.Health, "the in-place update has ended: successful"},
		{"it failed, and may be mended", running(phase("InPlaceUpdateFailed"), result("failed")), attention.Recovery, "in-place update: node m-1 is healthy"},
		{"updated", running(phase("InPlaceUpdateSuccessful")), attention.Health, "updated in place; node m-1 is healthy"},
		{"it is our turn in an update", running(phase("InPlaceUpdating"), our("DrainSuccessful")), attention.InPlace, "in-place update: Ready"},
		{"its node has to be empty", running(our("SelectedForUpdate")), attention.Drain, "in-place update: the node has to be empty; running"},
		{"to be preserved", running(unpreserved), attention.Preserve, why},
		{"preserved", running(preserved), attention.Kept, "preserved; running"},
		{"failed, and to be preserved", running(phase("Failed"), sick, preserved, unpreserved), attention.Preserve, why},
		{"failed, and preserved", running(phase("Failed"), sick, preserved), attention.Kept, "failed, and preserved"},
		{"failed, preserved and well again", running(phase("Failed"), preserved), attention.Health, "node m-1 is healthy again"},
		{"to be deleted", running(deleting), attention.Deletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted, and a node has its provider ID: it has to be drained", running(deleting, nameless, found), attention.Name, "node ip-10-0-0-1 has the provider ID of its instance"},
		{"to be deleted, and nothing is left to drain", running(deleting, nameless, found, emptied), attention.Deletion, "deletion was asked for"},
		{"to be deleted when it has failed", running(deleting, phase("Failed")), attention.Deletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted when its replacement was granted", running(deleting, granted), attention.Deletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted while it is created", running(deleting, noInstance, phase("")), attention.Deletion, "deletion was asked for; node m-1 is healthy"},
		{"to be deleted, and past the drain", running(deleting, func(f *attention.MachineFacts) { f.Emptied, f.Conditions = true, ready("False") }), attention.Deletion, "deletion was asked for"},
		{"deleted without finalizer", running(deleting, released), attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.PlanMachine(row.facts)
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, d.Decision)
			assert.Equal(t, row.need == attention.Nothing, d.Calm())
			assert.Nil(t, d.Health, "without a time no timeout is judged")
		})
	}
}

// each calls check with every combination of edits of a machine in this phase.
func each(p string, check func(attention.MachineFacts)) {
	edits := []edit{
		sick,
		noNode,
		nodeGoing,
		nodeHeld,
		noTarget,
		released,
		noInstance,
		uncopied,
		unsynced,
		due,
		granted,
		inSet,
	}
	for bits := range 1 << len(edits) {
		f := running(phase(p))
		for i, e := range edits {
			if bits>>i&1 == 1 {
				e(&f)
			}
		}
		check(f)
	}
}

func TestAFailedMachineIsCalmWhateverItsNodeShows(t *testing.T) {
	each("Failed", func(f attention.MachineFacts) {
		require.Equal(
			t,
			attention.Decision{Need: attention.Nothing, Why: "failed: to be replaced"},
			attention.PlanMachine(f).Decision,
			"%+v",
			f,
		)
	})
}

func TestOnlyAMachineThatIsAsItShouldBeIsCalm(t *testing.T) {
	for _, p := range []string{"", "CrashLoopBackOff", "Pending", "Available", "Running", "Unknown"} {
		each(p, func(f attention.MachineFacts) {
			joined := p == "Running" && f.NodeExists && f.Conditions[0].Status == "True" && !f.NodeDeleting && !f.Uncopied &&
				f.Carries.Finalizer &&
				!f.NoTarget
			calm := f.Finalizer && f.ProviderID != "" && !f.Granted && (joined || p == "Available" && f.NoTarget)
			require.Equal(t, calm, attention.PlanMachine(f).Calm(), "%+v", f)
		})
	}
}
