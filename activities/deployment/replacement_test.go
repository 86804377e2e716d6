package deployment_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/activities/activitiestest"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// objectsWithMachinesDueForReplacement returns a deployment with its set and machines m-0, m-1 and so on. The machines
// that are due for replacement come first.
func objectsWithMachinesDueForReplacement(
	d *v1alpha1.MachineDeployment,
	due, well int,
	change ...func(*v1alpha1.Machine),
) []runtime.Object {
	d.Spec.Replicas = int32(due + well)
	withRevision[*v1alpha1.MachineDeployment]("1")(d)
	s := newSettledSet(d, d.Name+"-s", int32(due+well))
	recordRolloutCompletion(d, s)
	objects := []runtime.Object{d, s, activitiestest.NewClass()}
	for i := range due + well {
		m := activitiestest.NewMachine(
			fmt.Sprintf("%s-%d", d.Name, i),
			activitiestest.WithOwner[*v1alpha1.Machine](s),
			activitiestest.WithPhase(v1alpha1.MachineRunning),
		)
		if i < due {
			m = activitiestest.ApplyChanges(
				m,
				[]func(*v1alpha1.Machine){
					activitiestest.WithPhase(v1alpha1.MachineFailed),
					activitiestest.WithReplacementDue("CreationTimeout"),
				},
			)
		}
		objects = append(objects, activitiestest.ApplyChanges(m, change))
	}
	return objects
}

func policyWithMaxReplacements(n intstr.IntOrString) *v1alpha1.RolloutPolicy {
	return activitiestest.NewRolloutPolicy(v1alpha1.RolloutPolicySpec{MaxReplacements: &n})
}

func grantReplacements(w *activitiestest.World, in kube.ReadInput) deployment.GrantResult {
	w.T.Helper()
	return activitiestest.RunActivityTwice[deployment.GrantResult](w, newActivities(w.Kube).GrantReplacements, in)
}

func TestOneOfTwoUnhealthyMachinesIsReplaced(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(t, objectsWithMachinesDueForReplacement(d, 2, 3, func(m *v1alpha1.Machine) {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed { // this machine's node is unhealthy
			m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": "a"}
		}
	})...)
	for i := 2; i < 5; i++ {
		name := fmt.Sprintf("d-%d", i)
		n := activitiestest.NewNode()
		n.Name = name
		w.CreateObjects(n)
		w.EditObject(
			cache.MachinesResource,
			name,
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"node": name}}},
		)
	}
	w.AwaitCaches()
	w.ForgetRequests()
	granted := grantReplacements(w, activitiestest.NewReadInput(d))
	assert.Equal(
		t,
		[]string{"update machinedeployments/status", "patch machines"},
		w.MutatingRequests(),
		"the status records the grant before the machine gets it",
	)
	assert.Equal(t, []string{"d-0"}, w.NamesOfMachinesWithReplacementGrant(), "one only")
	require.Len(t, w.Deployment("d").Status.Replacements, 1)
	r := w.Deployment("d").Status.Replacements[0]
	assert.Equal(
		t,
		[]string{"d-0", "uid-d-0", "a", "CreationTimeout"},
		[]string{r.Name, string(r.UID), r.FailureDomain, r.Reason},
	)
	assert.False(t, r.GrantedAt.IsZero())
	mark, err := time.Parse(time.RFC3339, w.Machine("d-0").Annotations[v1alpha1.AnnotationReplacementGranted])
	require.NoError(t, err)
	assert.False(t, mark.Before(r.GrantedAt.Time))
	assert.Equal(t, kube.MinVersions{
		cache.DeploymentsResource: w.Deployment(
			"d",
		).ResourceVersion,
		cache.MachinesResource: w.Machine("d-0").ResourceVersion,
	}, granted.Versions, "the versions to wait for")
	assert.Contains(t, granted.Why, "grant replacement of machine d-0: CreationTimeout (1 of 1 in zone a)")
	assert.Contains(t, granted.Why, "1 machine is due; the replacement budget of zone a (1) is used by machine d-0")
	assert.Equal(t, []string{"Normal ReplacementGranted Machine d-0 is replaced: CreationTimeout"}, w.TakeNewEvents())

	t.Run("the machine hears of it by its mark", func(t *testing.T) {
		assert.True(
			t,
			activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, activitiestest.NewReadInput(w.Machine("d-0")))),
		)
		assert.False(
			t,
			activitiestest.WritesPhaseFailed(activitiestest.DecideMachine(w, activitiestest.NewReadInput(w.Machine("d-1")))),
		)
	})
}

func TestEachDeploymentGetsItsOwnReplacementGrants(t *testing.T) {
	t.Parallel()
	d, e := activitiestest.NewDeployment("d", 0), activitiestest.NewDeployment("e", 0)
	// both deployments share one class
	w := activitiestest.NewWorld(
		t,
		append(
			objectsWithMachinesDueForReplacement(d, 2, 0),
			slices.Delete(objectsWithMachinesDueForReplacement(e, 2, 0), 2, 3)...)...)
	grantReplacements(w, activitiestest.NewReadInput(d))
	grantReplacements(w, activitiestest.NewLiveReadInput(e))
	assert.Equal(t, []string{"d-0", "e-0"}, w.NamesOfMachinesWithReplacementGrant())
}

func TestReplacementBudgetLimitsGrants(t *testing.T) {
	t.Parallel()
	zone := func(m *v1alpha1.Machine) {
		zone := map[bool]string{true: "a", false: "b"}[m.Name < "d-2"]
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"topology.kubernetes.io/zone": zone}
	}
	kept := func(m *v1alpha1.Machine) { m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.Now()) }
	for name, row := range map[string]struct {
		budget intstr.IntOrString
		change func(*v1alpha1.Machine)
		want   []string
	}{
		"two":                           {intstr.FromInt32(2), nil, []string{"d-0", "d-1"}},
		"none":                          {intstr.FromInt32(0), nil, []string{}},
		"a percentage is rounded up":    {intstr.FromString("41%"), nil, []string{"d-0", "d-1", "d-2"}},
		"of each zone":                  {intstr.FromInt32(1), zone, []string{"d-0", "d-2"}},
		"a machine on purpose kept":     {intstr.FromInt32(5), kept, []string{}},
		"more than there are to do":     {intstr.FromInt32(50), nil, []string{"d-0", "d-1", "d-2", "d-3"}},
		"one that is going needs none":  {intstr.FromInt32(5), activitiestest.WithDeletionTimestamp[*v1alpha1.Machine], []string{}},
		"nor one that recovered before": {intstr.FromInt32(5), func(m *v1alpha1.Machine) { m.Status = v1alpha1.MachineStatus{} }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := activitiestest.NewDeployment("d", 0)
			objects := append(objectsWithMachinesDueForReplacement(d, 4, 1), policyWithMaxReplacements(row.budget))
			for _, o := range objects[3 : len(objects)-1] {
				if row.change != nil {
					row.change(o.(*v1alpha1.Machine))
				}
			}
			w := activitiestest.NewWorld(t, objects...)
			grantReplacements(w, activitiestest.NewReadInput(d))
			assert.Equal(t, row.want, w.NamesOfMachinesWithReplacementGrant())
			assert.Equal(t, row.want, w.RecordedReplacementNames())
			assert.Len(t, w.TakeNewEvents(), len(row.want))
		})
	}
}

func TestLostReplacementMarkIsWrittenByNextRun(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 3, 0), policyWithMaxReplacements(intstr.FromInt32(2)))...)
	activitiestest.FailRequests(w.MachineClient, "patch", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
	_, err := activitiestest.RunActivity[deployment.GrantResult](
		w,
		newActivities(w.Kube).GrantReplacements,
		activitiestest.NewReadInput(d),
	)
	require.Error(t, err)
	_, retryable := activitiestest.FailureTypeOf(t, err)
	assert.True(t, retryable)
	assert.Equal(t, []string{"d-0", "d-1"}, w.RecordedReplacementNames())
	assert.NotSubset(t, w.NamesOfMachinesWithReplacementGrant(), []string{"d-0", "d-1"})
	version := w.Deployment("d").ResourceVersion

	w.AwaitCaches()
	assert.True(
		t,
		activitiestest.DecideDeployment(w, activitiestest.NewReadInput(d)).Replace,
		"a run that was ended in between is seen to be so",
	)
	grantReplacements(w, activitiestest.NewReadInput(d))
	assert.Equal(t, []string{"d-0", "d-1"}, w.NamesOfMachinesWithReplacementGrant())
	assert.Equal(t, version, w.Deployment("d").ResourceVersion, "nothing is granted twice")
	assert.Len(t, w.TakeNewEvents(), 2, "nor told twice")
}

func TestGrantReplacementsOfADeploymentThatChanged(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(t, objectsWithMachinesDueForReplacement(d, 2, 0)...)
	release := w.HoldEvents()
	w.EditObject(cache.DeploymentsResource, "d", activitiestest.NewAnnotationPatch("note", "new"))
	_, err := activitiestest.RunActivity[deployment.GrantResult](
		w,
		newActivities(w.Kube).GrantReplacements,
		activitiestest.NewReadInput(d),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	assert.Empty(t, w.NamesOfMachinesWithReplacementGrant(), "no machine gets a grant that is not recorded")
	assert.Empty(t, w.TakeNewEvents())
	release()
	grantReplacements(w, activitiestest.NewLiveReadInput(d))
	assert.Equal(t, []string{"d-0"}, w.NamesOfMachinesWithReplacementGrant())

	t.Run("or that is gone", func(t *testing.T) {
		for _, in := range []kube.ReadInput{{Ref: activitiestest.NewFormerObjectRef(d)}, {Ref: activitiestest.NewFormerObjectRef(d), Live: true}} {
			_, err := activitiestest.RunActivity[deployment.GrantResult](w, newActivities(w.Kube).GrantReplacements, in)
			activitiestest.AssertFailure(t, err, kube.FailureTypeObjectGone, false)
		}
	})
}

func TestMachineThatNeedsNoReplacementIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(w *activitiestest.World){
		"it recovered": func(w *activitiestest.World) {
			m := w.Machine("d-0").DeepCopy()
			m.Status = v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}}
			_, err := w.MachineClient.MachineV1alpha1().Machines(activitiestest.TestNamespace).UpdateStatus(w.T.Context(), m, metav1.UpdateOptions{})
			require.NoError(w.T, err)
		},
		"it is gone": func(w *activitiestest.World) {
			require.NoError(w.T, w.MachineClient.Tracker().Delete(v1alpha1.SchemeGroupVersion.WithResource("machines"), activitiestest.TestNamespace, "d-0"))
		},
		"it is another": func(w *activitiestest.World) { w.ReplaceWithOtherMachine("d-0") },
		"it was told before": func(w *activitiestest.World) {
			w.EditObject(cache.MachinesResource, "d-0", activitiestest.NewAnnotationPatch(v1alpha1.AnnotationReplacementGranted, "now"))
		},
		"it is going": func(w *activitiestest.World) {
			require.NoError(w.T, w.MachineClient.MachineV1alpha1().Machines(activitiestest.TestNamespace).Delete(w.T.Context(), "d-0", metav1.DeleteOptions{}))
		},
	} {
		t.Run(name+", and the cache has not heard of it", func(t *testing.T) {
			d := activitiestest.NewDeployment("d", 0)
			w := activitiestest.NewWorld(
				t,
				append(objectsWithMachinesDueForReplacement(d, 2, 0), policyWithMaxReplacements(intstr.FromInt32(2)))...)
			w.HoldEvents()
			happens(w)
			_, err := activitiestest.RunActivity[deployment.GrantResult](
				w,
				newActivities(w.Kube).GrantReplacements,
				activitiestest.NewReadInput(d),
			)
			require.NoError(t, err)
			assert.Equal(
				t,
				[]string{"Normal ReplacementGranted Machine d-1 is replaced: CreationTimeout"},
				w.TakeNewEvents(),
				"there is an event of the other machine, and none of this one",
			)
			if name == "it was told before" {
				assert.Equal(t, "now", w.Machine("d-0").Annotations[v1alpha1.AnnotationReplacementGranted])
				return
			}
			assert.Equal(t, []string{"d-1"}, w.NamesOfMachinesWithReplacementGrant())
		})
	}
}

func TestNothingIsGrantedWhileHalfOfTheNodesAreDead(t *testing.T) {
	t.Parallel()
	d := activitiestest.NewDeployment("d", 0)
	w := activitiestest.NewWorld(
		t,
		append(objectsWithMachinesDueForReplacement(d, 2, 0), activitiestest.NewMachinesWithGoneAndHealthyNodes(3, 3)...)...)
	granted := grantReplacements(w, activitiestest.NewReadInput(d))
	assert.Contains(t, granted.Why, "3 of 6 nodes look dead at once")
	assert.Empty(t, w.MutatingRequests())
	assert.Empty(t, w.TakeNewEvents())
}
