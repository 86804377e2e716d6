package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
)

// newOperation returns an operation since clitest.LastChangeTime.
func newOperation(cause string, blockedBy ...string) *v1alpha1.Operation {
	return &v1alpha1.Operation{
		Step:      "step",
		Since:     metav1.NewTime(clitest.LastChangeTime),
		Cause:     cause,
		WaitsFor:  cause + ": the whole sentence",
		Summary:   cause,
		BlockedBy: blockedBy,
	}
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
	waits := newOperation("the budget allows none", budget)
	quota := newOperation("quota used up", "ResourceExhausted")
	objects := newPool("web", newOperation("1 of 2 waits", budget), newOperation("1 of 2 waits", budget), waits, nil)
	objects = append(objects, newPool("api", newOperation("2 of 2 wait", budget, "Paused"), nil, waits, waits)...)
	objects = append(objects, newPool("db", newOperation("1 waits", "ResourceExhausted"), nil, quota)...)
	objects = append(objects, newPool("gate", newOperation("approval is missing", "Approval"), nil, nil)...)
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
	assert.Equal(t, "5 pools in motion, 4 of them blocked", blocks[0])
	assert.Contains(t, blocks, "BLOCKED  PDB shop/app\n"+
		"  shop/api   2 of 2 machines   for 15m   until a person acts\n"+
		"  shop/web   1 of 2 machines   for 15m   until a person acts\n"+
		"    the budget allows none: the whole sentence")
	assert.Contains(t, blocks, "BLOCKED  no quota or capacity\n"+
		"  shop/db   1 of 1 machine   for 15m   until a person acts\n"+
		"    quota used up: the whole sentence")
	assert.Contains(t, blocks, "BLOCKED  paused\n"+
		"  shop/api   -   for 15m   until a person acts\n"+
		"    2 of 2 wait: the whole sentence", "the deployment's own blocker, beside those of its machines")
	assert.Contains(t, blocks, "BLOCKED  waits for approval\n"+
		"  shop/gate   -   for 15m   until a person acts\n"+
		"    approval is missing: the whole sentence")
	assert.Equal(t, "IN MOTION\n  shop/up   2 of 2 machines   15m   rolling out\n", blocks[5])
}
