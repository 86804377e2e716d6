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
	observedeployment "millwright/observe/deployment"
)

// replacementFlags returns those fields of a deployment's decision that are about replacements.
func replacementFlags(w *activitiestest.World, in kube.ReadInput) (need attention.Need, flags map[string]bool) {
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

// newCountsReport returns a report of the counts that also records the deployment's only rollout.
func newCountsReport(d *v1alpha1.MachineDeployment) deployment.Report {
	record := observedeployment.RecordedProgress(d.Status.Rollout)
	record.Revision = max(record.Revision, 1)
	return deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: &record}
}

// replacementHeldCondition returns the condition ReplacementHeld after a report; nil if the status has none.
func replacementHeldCondition(
	w *activitiestest.World,
	d *v1alpha1.MachineDeployment,
) *v1alpha1.MachineDeploymentCondition {
	w.T.Helper()
	for _, c := range activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)}).Conditions {
		if c.Type == v1alpha1.MachineDeploymentReplacementHeld {
			return &c
		}
	}
	return nil
}

func newReplacementFlags(names ...string) map[string]bool {
	flags := map[string]bool{}
	for _, name := range names {
		flags[name] = true
	}
	return flags
}

func TestADeploymentSaysWhyMachinesAreNotReplaced(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 2, 1), policyWithMaxReplacements(intstr.FromInt32(1)))...)
	activitiestest.ReportDeployment(w, newCountsReport(d))

	need, is := replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedReplacement, need)
	assert.Equal(
		t,
		newReplacementFlags("replace", "held"),
		is,
		"one is to be granted, the other has to wait, and that is said already",
	)
	decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
	assert.Contains(t, decision.Pending.Why, "grant replacement of machine d-0")

	grantReplacements(w, activitiestest.NewReadInput(d))
	c := replacementHeldCondition(w, d)
	require.NotNil(t, c)
	assert.Equal(
		t,
		[]string{"True", "ReplacementHeld", "1 machine is due; the replacement budget (1) is used by machine d-0"},
		[]string{string(c.Status), c.Reason, c.Message},
	)
	need, is = replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedReplacement, need)
	assert.Equal(t, newReplacementFlags("held"), is, "nothing to do but to wait")

	t.Run("what it waits for may change", func(t *testing.T) {
		w.EditObject("rolloutpolicies", "careful", map[string]any{"spec": map[string]any{"maxReplacements": 0}})
		w.AwaitCaches()
		_, is := replacementFlags(w, activitiestest.NewReadInput(d))
		assert.True(t, is["held"] && is["report"])
		assert.Contains(t, replacementHeldCondition(w, d).Message, "the replacement budget is 0")
		_, is = replacementFlags(w, activitiestest.NewReadInput(d))
		assert.Equal(t, newReplacementFlags("held"), is)
	})
	t.Run("until none waits", func(t *testing.T) {
		w.EditObject("rolloutpolicies", "careful", map[string]any{"spec": map[string]any{"maxReplacements": "100%"}})
		w.AwaitCaches()
		_, is := replacementFlags(w, activitiestest.NewReadInput(d))
		assert.Equal(t, newReplacementFlags("replace", "report"), is)
		grantReplacements(w, activitiestest.NewReadInput(d))
		assert.Nil(t, replacementHeldCondition(w, d))
		need, is := replacementFlags(w, activitiestest.NewReadInput(d))
		assert.Equal(t, attention.NeedReplacement, need, "they are being replaced")
		assert.Empty(t, is)
	})
}

// While a machine is replaced, the counts change. A report of the counts also names the machines that are being
// replaced.
func TestADeploymentNamesTheMachinesThatAreReplaced(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 1, 1), policyWithMaxReplacements(intstr.FromInt32(1)))...)
	activitiestest.ReportDeployment(w, newCountsReport(d))
	grantReplacements(w, activitiestest.NewReadInput(d))
	w.CreateObjects(activitiestest.NewMachine("d-new", activitiestest.WithOwner[*v1alpha1.Machine](w.MachineSet("d-s"))))
	w.AwaitCaches()
	decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedScaling, decision.Pending.Need, "its status is late")
	assert.Equal(t, "1 machine is being replaced: d-0", decision.Pending.WaitText())
}

func TestReplacementHeldIsAbsentIfNoMachineIsDueForReplacement(t *testing.T) {
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
		"all are well":            {activitiestest.NewDeployment("d", 0, leftover), 0, 1},
		"it is being deleted":     {activitiestest.NewDeployment("d", 0, leftover, activitiestest.WithDeletionTimestamp[*v1alpha1.MachineDeployment]), 2, 1},
		"the budget is no matter": {activitiestest.NewDeployment("d", 0, leftover), 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(
				t,
				append(
					objectsWithMachinesDueForReplacement(row.d, row.due, 1),
					policyWithMaxReplacements(intstr.FromInt32(row.budget)),
				)...)
			_, is := replacementFlags(w, activitiestest.NewReadInput(row.d))
			assert.Equal(t, newReplacementFlags("report"), is, "what was said once is to be taken back")
			assert.Nil(t, replacementHeldCondition(w, row.d))
			_, is = replacementFlags(w, activitiestest.NewReadInput(row.d))
			assert.Empty(t, is)
		})
	}
}

func TestReplacementHeldFollowsMachinesDueForReplacement(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 0, 1), policyWithMaxReplacements(intstr.FromInt32(0)))...)
	activitiestest.ReportDeployment(w, newCountsReport(d))
	need, is := replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedNothing, need)
	assert.Empty(t, is)

	well := w.Machine("d-0").Status.DeepCopy()
	w.ChangeMachineStatus("d-0", activitiestest.WithReplacementDue("HealthTimeout"))
	need, is = replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedReplacement, need)
	assert.Equal(t, newReplacementFlags("held", "report"), is)
	assert.NotNil(t, replacementHeldCondition(w, d))
	_, is = replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, newReplacementFlags("held"), is)

	w.ChangeMachineStatus("d-0", func(m *v1alpha1.Machine) { m.Status = *well })
	need, is = replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, attention.NeedNothing, need)
	assert.Equal(t, newReplacementFlags("report"), is)
	assert.Nil(t, replacementHeldCondition(w, d))
	_, is = replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Empty(t, is)
}

func TestADeploymentSaysThatTooManyNodesAreDead(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 1, 0), activitiestest.NewMachinesWithGoneAndHealthyNodes(4, 0)...)...)
	_, is := replacementFlags(w, activitiestest.NewReadInput(d))
	assert.Equal(t, newReplacementFlags("held", "report"), is)
	c := replacementHeldCondition(w, d)
	require.NotNil(t, c)
	assert.Contains(t, c.Message, "4 of 4 nodes look dead at once")
}
