package explain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
)

// newOperation returns an operation since clitest.LastChangeTime that nothing blocks.
func newOperation(cause string) *v1alpha1.Operation {
	return &v1alpha1.Operation{
		Step:     "step",
		Since:    metav1.NewTime(clitest.LastChangeTime),
		Cause:    cause,
		WaitsFor: cause + ": the whole sentence",
		Summary:  cause,
	}
}

// newWait returns a blocked wait since clitest.LastChangeTime: of machines, or of the object itself if machines is 0.
func newWait(blocker, cause string, machines int32) v1alpha1.Wait {
	return v1alpha1.Wait{
		BlockedBy: []string{blocker},
		Cause:     cause,
		Machines:  machines,
		Since:     metav1.NewTime(clitest.LastChangeTime),
		Command:   "end " + blocker,
	}
}

// newBlockedOperation returns an operation since clitest.LastChangeTime with blocked waits.
func newBlockedOperation(waits ...v1alpha1.Wait) *v1alpha1.Operation {
	o := newOperation("several causes")
	o.Waits = waits
	for _, w := range waits {
		o.BlockedBy = append(o.BlockedBy, w.BlockedBy...)
	}
	return o
}

// newPool returns a deployment with a set and machines. The deployment, the set and the machines have the operations.
func newPool(name string, ofDeployment, ofSet *v1alpha1.Operation, ofMachines ...*v1alpha1.Operation) []runtime.Object {
	meta := func(name, kind, owner string) metav1.ObjectMeta {
		o := metav1.ObjectMeta{Namespace: "shop", Name: name}
		if owner != "" {
			o.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: kind, Name: owner, Controller: new(true)},
			}
		}
		return o
	}
	d := &v1alpha1.MachineDeployment{ObjectMeta: meta(name, "", "")}
	d.Status.CurrentOperation = ofDeployment
	s := &v1alpha1.MachineSet{ObjectMeta: meta(name+"-1", "MachineDeployment", name)}
	s.Status.CurrentOperation = ofSet
	objects := []runtime.Object{d, s}
	for i, operation := range ofMachines {
		m := &v1alpha1.Machine{ObjectMeta: meta(name+"-1-"+string(rune('a'+i)), "MachineSet", name+"-1")}
		m.Status.CurrentOperation = operation
		objects = append(objects, m)
	}
	return objects
}

// A fleet with 20 pools and three causes shows three causes, with one line for each pool, and no sets.
func TestTopGroupsPoolsByCause(t *testing.T) {
	const budget = "PodDisruptionBudget shop/app"
	allowsNone := newBlockedOperation(newWait(budget, "the budget allows none", 0))
	quota := newBlockedOperation(newWait("ResourceExhausted", "quota used up", 0))
	ofOne := newBlockedOperation(newWait(budget, "the budget allows none", 1))
	ofBoth := newBlockedOperation(newWait(budget, "the budget allows none", 2), newWait("Paused", "a person paused it", 0))
	objects := newPool("web", ofOne, ofOne, allowsNone, nil)
	objects = append(objects, newPool("api", ofBoth, nil, allowsNone, allowsNone)...)
	objects = append(
		objects,
		newPool("db", newBlockedOperation(newWait("ResourceExhausted", "quota used up", 1)), nil, quota)...)
	objects = append(
		objects,
		newPool("gate", newBlockedOperation(newWait("Approval", "revision 2 waits", 0)), nil, nil)...)
	objects = append(
		objects,
		newPool("gate2", newBlockedOperation(newWait("Approval", "revision 7 waits", 0)), nil, nil)...)
	objects = append(
		objects,
		newPool(
			"up",
			newOperation("rolling out"),
			newOperation("2 machines"),
			newOperation("boots"),
			newOperation("boots"),
		)...)
	objects = append(objects, newPool("calm", nil, nil, nil)...)
	w := clitest.NewFakeBackend(objects...)
	out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-n", "shop")
	require.NoError(t, err)
	blocks := strings.Split(out, "\n\n")
	assert.Contains(t, blocks[1]+blocks[2], "BLOCKED  waits for approval", "what needs a person comes first")
	assert.Contains(t, blocks[1]+blocks[2], "BLOCKED  paused")
	require.Len(t, blocks, 6, out)
	assert.Equal(t, "6 pools in motion, 5 of them blocked", blocks[0])
	assert.Contains(t, blocks, "BLOCKED  PDB shop/app\n"+
		"  shop/api   2 of 2 machines   for 15m   until a person acts\n"+
		"  shop/web   1 of 2 machines   for 15m   until a person acts\n"+
		"    the budget allows none (since 13:51:07 UTC); `end PodDisruptionBudget shop/app`")
	assert.Contains(t, blocks, "BLOCKED  no quota or capacity\n"+
		"  shop/db   1 of 1 machine   for 15m   until a person acts\n"+
		"    quota used up (since 13:51:07 UTC); `end ResourceExhausted`")
	assert.Contains(t, blocks, "BLOCKED  paused\n"+
		"  shop/api   -   for 15m   until a person acts\n"+
		"    a person paused it (since 13:51:07 UTC); `end Paused`", "the deployment's own blocker, beside those of its machines")
	assert.Contains(t, blocks, "BLOCKED  waits for approval\n"+
		"  shop/gate    -   for 15m   until a person acts\n"+
		"  shop/gate2   -   for 15m   until a person acts\n"+
		"    revision 2 waits (since 13:51:07 UTC); `end Approval`", "the texts differ, the reason is the same")
	assert.Equal(t, "IN MOTION\n  shop/up   2 of 2 machines   15m   rolling out\n", blocks[5])
}

// The status of a set may be newer than that of its deployment: then the set has the cause, and the pool a line.
func TestTopShowsABlockedSet(t *testing.T) {
	objects := newPool("web", nil, newBlockedOperation(newWait("Secret", "the Secret is missing", 0)))
	w := clitest.NewFakeBackend(objects...)
	out, err := w.Run(t.Context(), TopCommand(w.Environment()), "-n", "shop")
	require.NoError(t, err)
	assert.Equal(t, "1 pool in motion, 1 of them blocked\n\nBLOCKED  Secret\n"+
		"  shop/web   -   for 15m   until a person acts\n"+
		"    the Secret is missing (since 13:51:07 UTC); `end Secret`\n", out)
}

// The output for scripts has each cause of a deployment as the status has it.
func TestExplainPrintsTheCausesOfADeploymentAsJSON(t *testing.T) {
	w := clitest.NewFakeBackend(newPool("web", newBlockedOperation(newWait("Secret", "the Secret is missing", 2)), nil)...)
	out, err := w.Run(t.Context(), Command(w.Environment()), "mcd/shop/web", "-o", "json")
	require.NoError(t, err)
	var a explanation
	require.NoError(t, json.Unmarshal([]byte(out), &a))
	require.Len(t, a.Causes, 1)
	assert.Equal(
		t,
		[]any{[]string{"Secret"}, "the Secret is missing", int32(2), "end Secret"},
		[]any{a.Causes[0].BlockedBy, a.Causes[0].Cause, a.Causes[0].Machines, a.Causes[0].Command},
	)
}
