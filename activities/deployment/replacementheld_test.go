package deployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
)

// flags are the fields of a deployment's decision about replacements.
func flags(w *activitiestest.World, in kube.Read) (need attention.Need, flags map[string]bool) {
	w.T.Helper()
	d := activitiestest.DecideDeployment(w, in)
	flags = map[string]bool{}
	for name, set := range map[string]bool{"replace": d.Replace, "held": d.ReplaceHeld, "report": d.Report} {
		if set {
			flags[name] = true
		}
	}
	return d.Pending.Need, flags
}

// counts reports the counts, and records the only rollout of a deployment.
func counts(d *v1alpha1.MachineDeployment) deployment.Report {
	return deployment.Report{Input: activitiestest.DeploymentRead(d), Record: &rollout.Progress{Revision: 1}}
}

// held returns the condition ReplacementHeld after a report; nil when there is none.
func held(w *activitiestest.World, d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeploymentCondition {
	w.T.Helper()
	for _, c := range activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.DeploymentRead(d)}).Conditions {
		if c.Type == v1alpha1.MachineDeploymentReplacementHeld {
			return &c
		}
	}
	return nil
}

func says(names ...string) map[string]bool {
	flags := map[string]bool{}
	for _, name := range names {
		flags[name] = true
	}
	return flags
}

func TestADeploymentSaysWhyMachinesAreNotReplaced(t *testing.T) {
	t.Parallel()
	d := activitiestest.Deployment("d", 0)
	w := activitiestest.NewWorld(t, append(troubled(d, 2, 1), budgetOf(intstr.FromInt32(1)))...)
	activitiestest.ReportDeployment(w, counts(d))

	need, is := flags(w, activitiestest.Read(d))
	assert.Equal(t, attention.Replace, need)
	assert.Equal(t, says("replace", "held"), is, "one is to be granted, the other has to wait, and that is said already")
	decision := activitiestest.DecideDeployment(w, activitiestest.Read(d))
	assert.Contains(t, decision.Pending.Why, "grant replacement of machine d-0")

	grant(w, activitiestest.Read(d))
	c := held(w, d)
	require.NotNil(t, c)
	assert.Equal(
		t,
		[]string{"True", "ReplacementHeld", "1 machine is due; the replacement budget (1) is used by machine d-0"},
		[]string{string(c.Status), c.Reason, c.Message},
	)
	need, is = flags(w, activitiestest.Read(d))
	assert.Equal(t, attention.Replace, need)
	assert.Equal(t, says("held"), is, "nothing to do but to wait")

	t.Run("what it waits for may change", func(t *testing.T) {
		w.Edit("rolloutpolicies", "careful", map[string]any{"spec": map[string]any{"maxReplacements": 0}})
		w.Settle()
		_, is := flags(w, activitiestest.Read(d))
		assert.True(t, is["held"] && is["report"])
		assert.Contains(t, held(w, d).Message, "the replacement budget is 0")
		_, is = flags(w, activitiestest.Read(d))
		assert.Equal(t, says("held"), is)
	})
	t.Run("until none waits", func(t *testing.T) {
		w.Edit("rolloutpolicies", "careful", map[string]any{"spec": map[string]any{"maxReplacements": "100%"}})
		w.Settle()
		_, is := flags(w, activitiestest.Read(d))
		assert.Equal(t, says("replace", "report"), is)
		grant(w, activitiestest.Read(d))
		assert.Nil(t, held(w, d))
		need, is := flags(w, activitiestest.Read(d))
		assert.Equal(t, attention.Replace, need, "they are being replaced")
		assert.Empty(t, is)
	})
}

// While a machine is replaced the counts change, and the status that says so names the machine.
func TestADeploymentNamesTheMachinesThatAreReplaced(t *testing.T) {
	t.Parallel()
	d := activitiestest.Deployment("d", 0)
	w := activitiestest.NewWorld(t, append(troubled(d, 1, 1), budgetOf(intstr.FromInt32(1)))...)
	activitiestest.ReportDeployment(w, counts(d))
	grant(w, activitiestest.Read(d))
	w.Create(activitiestest.Machine("d-new", activitiestest.OwnedBy[*v1alpha1.Machine](w.Set("d-s"))))
	w.Settle()
	decision := activitiestest.DecideDeployment(w, activitiestest.Read(d))
	assert.Equal(t, attention.Scale, decision.Pending.Need, "its status is late")
	assert.Equal(t, "1 machine is being replaced: d-0", decision.Pending.WaitsFor())
}

func TestADeploymentWithoutTroubleSaysNothingOfIt(t *testing.T) {
	t.Parallel()
	leftover := func(d *v1alpha1.MachineDeployment) {
		d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{
			Type: v1alpha1.MachineDeploymentReplacementHeld, Status: "True", Reason: "ReplacementHeld", Message: "once",
		}}
	}
	for name, row := range map[string]struct {
		d      *v1alpha1.MachineDeployment
		due    int
		budget int32
	}{
		"all are well":            {activitiestest.Deployment("d", 0, leftover), 0, 1},
		"it is being deleted":     {activitiestest.Deployment("d", 0, leftover, activitiestest.Going[*v1alpha1.MachineDeployment]), 2, 1},
		"the budget is no matter": {activitiestest.Deployment("d", 0, leftover), 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(t, append(troubled(row.d, row.due, 1), budgetOf(intstr.FromInt32(row.budget)))...)
			_, is := flags(w, activitiestest.Read(row.d))
			assert.Equal(t, says("report"), is, "what was said once is to be taken back")
			assert.Nil(t, held(w, row.d))
			_, is = flags(w, activitiestest.Read(row.d))
			assert.Empty(t, is)
		})
	}
}

func TestADeploymentHearsOfItsMachines(t *testing.T) {
	t.Parallel()
	d := activitiestest.Deployment("d", 0)
	w := activitiestest.NewWorld(t, append(troubled(d, 0, 1), budgetOf(intstr.FromInt32(0)))...)
	activitiestest.ReportDeployment(w, counts(d))
	need, is := flags(w, activitiestest.Read(d))
	assert.Equal(t, attention.Nothing, need)
	assert.Empty(t, is)

	well := w.Machine("d-0").Status.DeepCopy()
	w.Change("d-0", activitiestest.DueFor("HealthTimeout"))
	need, is = flags(w, activitiestest.Read(d))
	assert.Equal(t, attention.Replace, need)
	assert.Equal(t, says("held", "report"), is)
	assert.NotNil(t, held(w, d))
	_, is = flags(w, activitiestest.Read(d))
	assert.Equal(t, says("held"), is)

	w.Change("d-0", func(m *v1alpha1.Machine) { m.Status = *well })
	need, is = flags(w, activitiestest.Read(d))
	assert.Equal(t, attention.Nothing, need)
	assert.Equal(t, says("report"), is)
	assert.Nil(t, held(w, d))
	_, is = flags(w, activitiestest.Read(d))
	assert.Empty(t, is)
}

func TestADeploymentSaysThatTooManyNodesAreDead(t *testing.T) {
	t.Parallel()
	d := activitiestest.Deployment("d", 0)
	w := activitiestest.NewWorld(t, append(troubled(d, 1, 0), activitiestest.Dead(4, 0)...)...)
	_, is := flags(w, activitiestest.Read(d))
	assert.Equal(t, says("held", "report"), is)
	c := held(w, d)
	require.NotNil(t, c)
	assert.Contains(t, c.Message, "4 of 4 nodes look dead at once")
}
