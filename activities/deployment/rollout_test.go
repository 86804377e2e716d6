package deployment_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	observedeployment "millwright/observe/deployment"
)

// newRolloutWorld returns a world in which a deployment of three machines is rolled out to revision 2: one new machine
// runs, another is being created.
func newRolloutWorld(t *testing.T) (*activitiestest.World, *v1alpha1.MachineDeployment) {
	t.Helper()
	d := activitiestest.NewDeployment(
		"d",
		3,
		withRevision[*v1alpha1.MachineDeployment]("2"),
		func(d *v1alpha1.MachineDeployment) {
			d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{}
			d.Spec.Strategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(2))
		},
	)
	most := func(s *v1alpha1.MachineSet) { s.Annotations[v1alpha1.AnnotationMaxReplicas] = "5" }
	of := activitiestest.WithOwner[*v1alpha1.Machine]
	now := newSettledSet(d, "d-2", 2, most)
	old := newSettledSet(d, "d-1", 2, withRevision[*v1alpha1.MachineSet]("1"), activitiestest.WithFormerTemplate, most)
	unused := newSettledSet(
		d,
		"d-0",
		0,
		withRevision[*v1alpha1.MachineSet]("0"),
		func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "oldest" },
	)
	objects := append(
		machineSetWithMachines(old),
		d,
		now,
		unused,
		activitiestest.NewMachine(
			"going",
			of(old),
			activitiestest.WithPhase(v1alpha1.MachineTerminating),
			activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
		),
		activitiestest.NewMachine("new", of(now), activitiestest.WithPhase(v1alpha1.MachineRunning)),
		activitiestest.NewMachine("newer", of(now), activitiestest.WithInstanceNotReady("ResourceExhausted", "no room")),
	)
	return activitiestest.NewWorld(t, objects...), d
}

func TestDecideDeploymentDuringARollout(t *testing.T) {
	t.Parallel()
	w, d := newRolloutWorld(t)
	decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
	assert.True(t, decision.Rollout.Rolling)
	assert.False(t, decision.Rollout.NoSet || decision.Rollout.Complete)
	assert.Equal(t, int64(2), decision.Rollout.Revision)
	assert.Equal(t, &rollout.Progress{Revision: 2, Set: "d-2"}, decision.Rollout.Record)

	t.Run("the picture: the newest set first, one without machines left out", func(t *testing.T) {
		assert.Equal(t, []deployment.SetOverview{
			{Name: "d-2", Revision: 2, Current: true, Replicas: 2, Machines: 2, Available: 1},
			{Name: "d-1", Revision: 1, Replicas: 2, Machines: 3, Available: 2, Deleting: 1},
		}, decision.Picture.Sets)
		assert.Equal(
			t,
			rollout.MachineCounts{Replicas: 5, Updated: 2, Ready: 3, Available: 3, Unavailable: 1},
			decision.Picture.Counts,
		)
		assert.Equal(
			t,
			[]int{3, 3},
			[]int{decision.Picture.Wanted, decision.Picture.Old},
			"old ones, and those of them that go",
		)
		assert.Empty(t, decision.Picture.Blocked, "no set says so yet")
	})
	t.Run("says why machines get no instance", func(t *testing.T) {
		s := w.MachineSet("d-2")
		s.Status.Conditions = []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: "ResourceExhausted"},
		}
		w.WriteStatus(s)
		assert.Equal(
			t,
			"ResourceExhausted",
			activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Picture.Blocked,
		)
	})
	t.Run("waits, once that is said, until others give way", func(t *testing.T) {
		activitiestest.ReportDeployment(
			w,
			deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: decision.Rollout.Record},
		)
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
		assert.False(t, decision.Rollout.HasActions())
		assert.Equal(t, attention.NeedRollout, decision.Pending.Need)
		assert.Equal(t, "Machines", decision.Rollout.HoldBy)
	})
}

// Temporal's history contains the ProgressOverview of a deployment, so its size is limited.
func TestProgressOverviewNamesTenSetsAtMost(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 3, withRevision[*v1alpha1.MachineDeployment]("30"))
	objects := []runtime.Object{d}
	for i := range 30 {
		name := fmt.Sprintf("d-%02d", i)
		objects = append(
			objects,
			machineSetWithMachines(
				newSettledSet(d, name, 1, withRevision[*v1alpha1.MachineSet](strconv.Itoa(i+1)), func(s *v1alpha1.MachineSet) {
					s.Spec.Template.Spec.Class.Name = name
				}),
			)...)
	}
	p := activitiestest.DecideDeployment(activitiestest.NewWorld(t, objects...), activitiestest.NewReadInput(d)).Picture
	require.Len(t, p.Sets, 10)
	assert.Equal(t, "d-29", p.Sets[0].Name)
	assert.Equal(t, 30, p.Old, "all are counted")
}

// The status of a deployment names the workflow of its rollout.
func TestTheStatusNamesTheRollout(t *testing.T) {
	t.Parallel()
	w, d := newRolloutWorld(t)
	parent, child := "machinedeployment/shop/d", "rollout/shop/d"
	asks := func(workflow string) deployment.Input {
		return deployment.Input{ReadInput: activitiestest.NewReadInput(d), WorkflowID: workflow}
	}
	reports := func(workflow string) bool {
		t.Helper()
		return activitiestest.RunActivityTwice[deployment.Decision](
			w,
			newActivities(w.Kube).DecideDeployment,
			asks(workflow),
		).Report
	}
	says := func(workflow string) {
		t.Helper()
		activitiestest.ReportDeployment(w, deployment.Report{
			Input: asks(
				workflow,
			),
			Step:   &kube.Step{WorkflowID: workflow, Name: "roll"},
			Record: &rollout.Progress{Revision: 2, Set: "d-2"},
		})
		assert.Equal(t, workflow, w.Deployment("d").Status.CurrentOperation.WorkflowID)
	}
	activitiestest.ReportDeployment(
		w,
		deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: &rollout.Progress{Revision: 2, Set: "d-2"}},
	)
	assert.True(t, reports(child), "it names none")
	assert.False(t, reports(""), "others do not mind")
	says(parent)
	assert.True(t, reports(child), "it names another")
	assert.False(t, reports(""))
	says(child)
	assert.False(t, reports(child))
	assert.True(t, reports("rollout/shop/e"))

	t.Run("no longer than something is under way", func(t *testing.T) {
		w, d := newWorldWithIdleDeployment(t, 2)
		assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
		is := w.Deployment("d")
		is.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: child}
		w.WriteStatus(is)
		for _, workflow := range []string{"", child} {
			decision := activitiestest.RunActivityTwice[deployment.Decision](
				w,
				newActivities(w.Kube).DecideDeployment,
				deployment.Input{ReadInput: activitiestest.NewReadInput(d), WorkflowID: workflow},
			)
			assert.True(t, decision.Report, "it names one that is over")
		}
		activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)})
		assert.Nil(t, w.Deployment("d").Status.CurrentOperation)
		assert.False(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Report)
	})
}

func TestReportDeploymentWithFieldsPrunedByOlderCRDs(t *testing.T) {
	t.Parallel()
	w, d := newRolloutWorld(t)
	var prune func(*v1alpha1.MachineDeployment)
	w.MachineClient.PrependReactor(
		"update",
		"machinedeployments",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			pruned := action.(clienttesting.UpdateAction).GetObject().DeepCopyObject().(*v1alpha1.MachineDeployment)
			prune(pruned)
			return true, pruned, nil
		},
	)
	report := deployment.Report{
		Input:  activitiestest.NewDeploymentInput(d),
		Record: &rollout.Progress{Revision: 2, Set: "d-2"},
	}
	for _, prune = range []func(*v1alpha1.MachineDeployment){
		func(d *v1alpha1.MachineDeployment) { d.Status.Rollout = nil },
		func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Set = "" },
	} {
		_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).ReportDeployment, report)
		activitiestest.AssertFailure(t, err, kube.FailureTypeOldCRDs, false)
		require.ErrorContains(t, err, "the CRDs of this version are not installed")
	}
}

func TestReportDeploymentRecordsARollout(t *testing.T) {
	t.Parallel()
	w, d := newRolloutWorld(t)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	record := &rollout.Progress{Revision: 2, Set: "d-2", Step: 1, Reached: at, Failed: []string{"new"}}
	status := activitiestest.ReportDeployment(
		w,
		deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: record},
	)
	is := status.Rollout
	require.NotNil(t, is)
	assert.Equal(t, []any{int64(2), int32(1), []string{"new"}}, []any{is.Revision, is.Step, is.FailedMachines})
	assert.True(t, is.ReachedAt.Time.Equal(at))

	t.Run("what is on record is read as it was decided", func(t *testing.T) {
		read := observedeployment.RolloutFacts(observedeployment.ObjectTree{Deployment: w.Deployment("d")}, at).Progress
		read.Reached = read.Reached.UTC()
		assert.Equal(t, *record, read)
	})
	t.Run("stays when there is nothing to add", func(t *testing.T) {
		w.ForgetRequests()
		assert.Equal(
			t,
			is,
			activitiestest.ReportDeployment(w, deployment.Report{Input: activitiestest.NewDeploymentInput(d)}).Rollout,
		)
		assert.Empty(t, w.MutatingRequests())
	})
	t.Run("is another one as a whole", func(t *testing.T) {
		status := activitiestest.ReportDeployment(
			w,
			deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: &rollout.Progress{Revision: 3}},
		)
		assert.Equal(t, &v1alpha1.RolloutStatus{Revision: 3, Steps: []v1alpha1.RolloutStep{}}, status.Rollout)
		text, err := json.Marshal(status.Rollout)
		require.NoError(t, err)
		assert.Contains(
			t,
			string(text),
			`"steps":[]`,
			"a rollout without steps says so: a policy that comes later does not change it",
		)
	})
	t.Run("keeps the steps with which it began", func(t *testing.T) {
		w, d := newRolloutWorld(t)
		begun := []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}
		live := w.Deployment("d")
		live.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 2, Steps: begun}
		w.WriteStatus(live)
		report := deployment.Report{
			Input:  activitiestest.NewDeploymentInput(d),
			Record: &rollout.Progress{Revision: 2, Step: 1},
		}
		assert.Equal(t, begun, activitiestest.ReportDeployment(w, report).Rollout.Steps, "there is no policy any more")
		next := observedeployment.RolloutRecord(live.Status.Rollout, rollout.Progress{Revision: 3}, nil)
		assert.Empty(t, next.Steps, "the next rollout follows the policy")
	})
	t.Run("is on record where it is decided again", func(t *testing.T) {
		w, d := newRolloutWorld(t)
		decision := activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d))
		require.NotNil(t, decision.Rollout.Record)
		activitiestest.ReportDeployment(
			w,
			deployment.Report{Input: activitiestest.NewDeploymentInput(d), Record: decision.Rollout.Record},
		)
		assert.Nil(t, activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Rollout.Record)
	})
}
