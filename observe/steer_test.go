package observe_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/steer"
	"millwright/observe"
)

// revised is a set of a deployment with a number, and with machines that run.
func revised(d *v1alpha1.MachineDeployment, name, revision string, machines int32, change ...func(*v1alpha1.MachineSet)) (*v1alpha1.MachineSet, []*v1alpha1.Machine) {
	s := set(name, append([]func(*v1alpha1.MachineSet){func(s *v1alpha1.MachineSet) {
		s.OwnerReferences = ownedBy(d, "MachineDeployment")
		s.Annotations = map[string]string{v1alpha1.AnnotationRevision: revision}
		s.Spec.Replicas, s.Status.Replicas, s.Status.ObservedReplicas = machines, machines, machines
	}}, change...)...)
	var members []*v1alpha1.Machine
	for i := range machines {
		members = append(members, machine(name+"-"+string('a'+i), phase(v1alpha1.MachineRunning), func(m *v1alpha1.Machine) {
			m.OwnerReferences = ownedBy(s, "MachineSet")
		}))
	}
	return s, members
}

func otherClass(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

// onTheWay is a deployment of four machines, of which one has the new template.
func onTheWay(change ...func(*v1alpha1.MachineDeployment)) observe.Family {
	d := deployment("d", append([]func(*v1alpha1.MachineDeployment){func(d *v1alpha1.MachineDeployment) {
		d.Spec.Replicas, d.Annotations = 4, map[string]string{v1alpha1.AnnotationRevision: "7"}
		d.Spec.Strategy.Type = v1alpha1.RollingUpdateMachineDeploymentStrategyType
		d.Spec.Rollout = &v1alpha1.RolloutPolicy{Steps: []v1alpha1.RolloutStep{
			{Replicas: intstr.FromInt32(1), Approve: true}, {Replicas: intstr.FromString("50%"), Wait: &metav1.Duration{Duration: time.Hour}},
		}}
	}}, change...)...)
	oldest, _ := revised(d, "d-1", "3", 0, otherClass)
	old, oldMachines := revised(d, "d-2", "6", 3, otherClass)
	leaving, leavingMachines := revised(d, "d-3", "5", 0, otherClass, goingSet)
	current, newMachines := revised(d, "d-4", "7", 1)
	observe.FollowDeployment(current, d)
	for _, s := range []*v1alpha1.MachineSet{old, current} {
		s.Annotations[v1alpha1.AnnotationDesiredReplicas], s.Annotations[v1alpha1.AnnotationMaxReplicas] = "4", "5"
	}
	return observe.Family{
		Deployment: d, Sets: []*v1alpha1.MachineSet{old, current, leaving, oldest},
		Members: append(append(oldMachines, newMachines...), leavingMachines...),
	}
}

func TestSteerFactsOfARollout(t *testing.T) {
	f := observe.SteerFacts(onTheWay(func(d *v1alpha1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationRolloutVerb] = "2026-11-21T12:00:00Z ann wants start"
		d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt] = "2026-11-21T12:00:00Z"
	}), asked)
	assert.Equal(t, []int64{6, 7, 3}, f.Revisions, "the template of d-4 has another time: it is no longer the current one")
	assert.Zero(t, f.Revision, "the set has yet to be made")
	assert.Equal(t, "2026-11-21T12:00:00Z", f.RestartedAt)
	assert.Equal(t, "2026-11-21T12:00:00Z ann wants start", f.Last)

	assert.Equal(t, steer.Facts{
		Deployment: "shop/d", UID: "uid-d", Now: asked, Rolling: true, Revision: 7, Revisions: []int64{6, 3},
		Gate: &steer.Gate{Step: 0, Of: 2}, Stages: 2,
	}, observe.SteerFacts(onTheWay(), asked))
}

func TestSteerFactsOfWhatStopsARollout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.MachineDeployment)
		check  func(steer.Facts) bool
	}{
		"paused":  {func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }, func(f steer.Facts) bool { return f.Paused && f.Gate != nil }},
		"held":    {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "7 ann: why" }, func(f steer.Facts) bool { return f.Held == "ann: why" }},
		"was":     {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "6 ann: why" }, func(f steer.Facts) bool { return f.Held == "" }},
		"going":   {func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = now() }, func(f steer.Facts) bool { return f.Deleting }},
		"invalid": {func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "" }, func(f steer.Facts) bool { return f.Invalid == "the template names no machine class" }},
		"undone":  {func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{Revision: 3} }, func(f steer.Facts) bool { return *f.RollbackTo == 3 && f.Revision == 7 }},
		"passed":  {func(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutApprove] = "7/1 ann" }, func(f steer.Facts) bool { return f.Approved == 1 && f.Gate == nil }},
		"OnDelete knows no stages": {
			func(d *v1alpha1.MachineDeployment) {
				d.Spec.Strategy.Type = v1alpha1.OnDeleteMachineDeploymentStrategyType
			}, func(f steer.Facts) bool { return f.OnDelete && f.Stages == 0 },
		},
	} {
		f := observe.SteerFacts(onTheWay(c.change), asked)
		assert.True(t, c.check(f), "%s: %+v", name, f)
	}
}

// A former set that is the current one again still has its old number when people steer it.
func TestSteerFactsNameTheRevisionThatIsComing(t *testing.T) {
	family := onTheWay(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "old" })
	for _, s := range family.Sets {
		if s.Name == "d-1" {
			s.Spec.Template.Spec.Class.Name = "older"
		}
	}
	f := observe.SteerFacts(family, asked)
	assert.EqualValues(t, 8, f.Revision)
	assert.Equal(t, []int64{7, 3}, f.Revisions)
	assert.True(t, f.Rolling)
}

func TestSteerFactsOfACalmDeployment(t *testing.T) {
	family := onTheWay()
	for _, s := range family.Sets {
		if s.Name == "d-2" {
			s.Spec.Replicas = 0
		}
	}
	members := family.Members
	assert.True(t, observe.SteerFacts(family, asked).Rolling, "its machines are still there")
	family.Members = members[3:]
	assert.False(t, observe.SteerFacts(family, asked).Rolling)
}

func TestSteerPatch(t *testing.T) {
	for want, d := range map[string]steer.Decision{
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x"}},"spec":{"paused":true}}`: {Last: "x", PauseTo: new(true)},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x","rollout.machine.sapcloud.io/hold":null}},"spec":{"paused":false}}`: {
			Last: "x", PauseTo: new(false), Hold: new(""),
		},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x","rollout.machine.sapcloud.io/hold":"7 ann: why"}}}`: {Last: "x", Hold: new("7 ann: why")},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x","rollout.machine.sapcloud.io/approve":"7/2 ann"}}}`: {Last: "x", Approve: new("7/2 ann")},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x"}},"spec":{"rollbackTo":{"revision":6}}}`:            {Last: "x", RollbackTo: new(int64(6))},
		`{"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-verb":"x","kubernetes.io/change-cause":"started by ann"}},
			"spec":{"template":{"metadata":{"annotations":{"rollout.machine.sapcloud.io/restarted-at":"t"}}}}}`: {Last: "x", RestartedAt: new("t"), Cause: new("started by ann")},
		`null`: {Same: true, Says: "y"},
	} {
		got, err := json.Marshal(observe.SteerPatch(d))
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got))
	}
	assert.Nil(t, observe.SteerPatch(steer.Decision{Refused: "no"}))
}

// What was steered says something of the deployment, and not of its sets.
func TestRecordOfAVerbIsNotCopiedToSets(t *testing.T) {
	d := deployment("d", func(d *v1alpha1.MachineDeployment) {
		d.Annotations = map[string]string{v1alpha1.AnnotationRolloutVerb: "x"}
	})
	s := set("s")
	observe.FollowDeployment(s, d)
	assert.NotContains(t, s.Annotations, v1alpha1.AnnotationRolloutVerb)
	assert.True(t, v1alpha1.IsOwnMetadataKey(v1alpha1.AnnotationRolloutVerb))
}

// A start has to make another template of it, or nothing would be rolled out.
func TestStartMakesAnotherTemplate(t *testing.T) {
	d := deployment("d")
	before := d.Spec.Template.DeepCopy()
	d.Spec.Template.Annotations[v1alpha1.AnnotationRestartedAt] = "2026-11-21T12:00:00Z"
	assert.False(t, observe.SameTemplate(before, &d.Spec.Template))
}
