package set_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/decidetest"
	"millwright/decide/explain"
	"millwright/decide/preflight"
	"millwright/decide/scale"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

// writeStatus writes the status of a set as the activity does, and returns the set in the form that the API server
// stores.
func writeStatus(
	t *testing.T,
	c *capi.Cache,
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	now time.Time,
	failure scale.WriteFailure,
) *clusterv1.MachineSet {
	t.Helper()
	plan, blocked := planSet(c, s, related, now, failure)
	after := s.DeepCopy()
	capiset.ApplyStatus(after, related, plan.Status, blocked, metav1.NewTime(now).Rfc3339Copy())
	data, err := json.Marshal(after)
	require.NoError(t, err)
	stored := &clusterv1.MachineSet{}
	require.NoError(t, json.Unmarshal(data, stored))
	return stored
}

func planSet(
	c *capi.Cache,
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	now time.Time,
	failure scale.WriteFailure,
) (scale.PlanResult, explain.Summary) {
	o := capiset.ScaleFacts(c, s, related, now, 0)
	o.LastWriteFailure = failure
	plan := scale.PlanSet(o)
	return plan, capiset.ExplanationFacts(s, related, plan.Status.Conditions, now).BlockedSummary(now)
}

// randomSource makes random facts.
type randomSource struct{ *rand.Rand }

func (d randomSource) randomBoolWithOdds(n int) bool { return d.IntN(n) == 0 }

func pickRandomItem[T any](d randomSource, items ...T) T { return items[d.IntN(len(items))] }

// randomSet returns a set with a random spec and a random former status.
func (d randomSource) randomSet() *clusterv1.MachineSet {
	s := capitest.NewSet("s", int32(d.IntN(6)))
	spec := &s.Spec
	if d.randomBoolWithOdds(20) {
		spec.Replicas = nil
	}
	if d.randomBoolWithOdds(10) {
		spec.Selector = pickRandomItem(
			d,
			metav1.LabelSelector{},
			metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Nonsense"}}},
		)
	}
	if d.randomBoolWithOdds(3) {
		spec.Template.Spec.MinReadySeconds = new(int32(d.IntN(2 * 3600)))
	}
	spec.MachineNaming.Template = pickRandomItem(d, "", "", "", "{{ .random }}", "x", "{{")
	spec.Deletion.Order = pickRandomItem(
		d,
		"",
		clusterv1.OldestMachineSetDeletionOrder,
		clusterv1.RandomMachineSetDeletionOrder,
	)
	spec.Template.Spec.Version = pickRandomItem(d, "v1.31.2", "v1.20.0", "", "latest")
	if d.randomBoolWithOdds(5) {
		capitest.AsDeletingObject(s)
		s.Finalizers = append(s.Finalizers, pickRandomItem(d, "example.com/x", "orphan"))
	}
	if d.randomBoolWithOdds(10) {
		s.Finalizers = pickRandomItem(
			d,
			nil,
			[]string{clusterv1.MachineSetFinalizer},
			[]string{clusterv1.MachineSetFinalizer, capi.Finalizer},
		)
	}
	if d.randomBoolWithOdds(8) {
		withSetAnnotation(pickRandomItem(d, clusterv1.PausedAnnotation, clusterv1.DisableMachineCreateAnnotation), "true")(s)
	}
	s.Generation = int64(1 + d.IntN(3))
	if d.randomBoolWithOdds(2) {
		n := func() *int32 { return new(int32(d.IntN(6))) }
		s.Status.Replicas, s.Status.ReadyReplicas, s.Status.AvailableReplicas, s.Status.UpToDateReplicas = n(), n(), n(), n()
		s.Status.ObservedGeneration = int64(d.IntN(3))
		for _, kind := range []string{
			"Paused", "MachinesCreated", "MachinesReady", "Theirs", "MachinesUpToDate", "ScalingUp", "ScalingDown", "Remediating", "Deleting", "ReplicaFailure", "Reconciling", "Stalled", "Blocked",
		} {
			if d.randomBoolWithOdds(2) {
				s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
					Type:               kind,
					Status:             pickRandomItem(d, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown),
					Reason:             pickRandomItem(d, "R", kind, "FailedCreate"),
					Message:            pickRandomItem(d, "", "once"),
					LastTransitionTime: capitest.MinutesBeforeNoon(d.IntN(300)),
					ObservedGeneration: 1,
				})
			}
		}
		s.Status.Versions = []clusterv1.StatusVersion{{Version: "v1.30.0", Replicas: 2}}
	}
	return s
}

func (d randomSource) randomMachine(i int, s *clusterv1.MachineSet) *clusterv1.Machine {
	m := capitest.NewMachine(fmt.Sprintf("s-%d", i), s)
	m.CreationTimestamp = pickRandomItem(
		d,
		capitest.MinutesBeforeNoon(d.IntN(3000)),
		metav1.NewTime(capitest.Noon.Add(-time.Duration(d.IntN(20))*time.Second)),
		metav1.Time{},
	)
	for _, kind := range []string{
		clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition, clusterv1.MachineNodeHealthyCondition,
		clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition,
		clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition,
	} {
		switch d.IntN(5) {
		case 0:
			capitest.WithoutCondition(kind)(m)
		case 1:
			capitest.WithConditionReason(
				kind,
				pickRandomItem(d, metav1.ConditionFalse, metav1.ConditionUnknown),
				"R",
				pickRandomItem(d, "", "a reason", "* one\n* two", "an old kubelet "),
			)(m)
			m.Status.Conditions[len(m.Status.Conditions)-1].LastTransitionTime = capitest.MinutesBeforeNoon(d.IntN(100))
		}
	}
	if d.randomBoolWithOdds(4) {
		m.Status.NodeRef.Name, m.Status.NodeInfo = "", nil
	}
	if d.randomBoolWithOdds(4) {
		m.DeletionTimestamp = new(capitest.MinutesBeforeNoon(d.IntN(40)))
		capitest.WithConditionReason(
			clusterv1.MachineDeletingCondition,
			pickRandomItem(d, metav1.ConditionTrue, metav1.ConditionFalse),
			pickRandomItem(
				d,
				clusterv1.MachineDeletingDrainingNodeReason,
				clusterv1.MachineDeletingWaitingForPreDrainHookReason,
				clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
				clusterv1.MachineDeletingInternalErrorReason,
			),
			"why",
		)(
			m,
		)
		if d.randomBoolWithOdds(2) {
			withAnnotation(clusterv1.PreDrainDeleteHookAnnotationPrefix + "/backup")(m)
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: capitest.MinutesBeforeNoon(d.IntN(10))}
		}
	}
	if d.randomBoolWithOdds(8) {
		m.Labels["pool"] = "other"
	}
	if d.randomBoolWithOdds(5) {
		withAnnotation(
			pickRandomItem(
				d,
				clusterv1.DeleteMachineAnnotation,
				clusterv1.UpdateInProgressAnnotation,
				clusterv1.PendingAcknowledgeMoveAnnotation,
				clusterv1.RemediateMachineAnnotation,
			),
		)(m)
	}
	m.Spec.Version = pickRandomItem(d, "v1.31.2", "v1.30.0", "")
	return m
}

func (d randomSource) randomRelatedObjects(s *clusterv1.MachineSet) capi.RelatedObjects {
	a := capitest.NewRelatedObjects()
	for i := range d.IntN(8) {
		a.Members = append(a.Members, d.randomMachine(i, s))
	}
	if d.randomBoolWithOdds(4) {
		a.Orphans = []*clusterv1.Machine{capitest.NewMachine("o", s, capitest.WithoutOwner[*clusterv1.Machine])}
	}
	a.ControlPlane = pickRandomItem(
		d,
		a.ControlPlane,
		nil,
		new(capitest.MissingObject(capitest.NewControlPlane())),
		&capi.ProviderObject{Ref: capitest.ObjectReference(capitest.NewControlPlane())},
		new(capitest.FoundObject(capitest.NewControlPlane(capitest.WithField(int64(1), "status", "availableReplicas")))),
	)
	switch d.IntN(8) {
	case 0:
		a.Cluster, a.ControlPlane = nil, nil
	case 1:
		a.Cluster.Spec.Paused = new(true)
	case 2:
		a.Cluster.Spec.Topology.Version = "v1.33.0"
	case 3:
		capitest.AsDeletingObject(a.Cluster)
	}
	for i, template := range []*unstructured.Unstructured{capitest.NewBootstrapTemplate(), capitest.NewInfrastructureTemplate()} {
		if d.randomBoolWithOdds(6) {
			a.Templates[i] = pickRandomItem(
				d,
				capitest.MissingObject(template),
				capi.ProviderObject{Ref: capitest.ObjectReference(template)},
			)
		}
	}
	if d.randomBoolWithOdds(2) {
		a.Deployment = capitest.NewDeployment(func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(5)) })
		a.Deployment.Spec.Remediation.MaxInFlight = pickRandomItem(
			d,
			nil,
			new(intstr.FromInt32(1)),
			new(intstr.FromString("20%")),
			new(intstr.FromString("x")),
		)
		withSetAnnotation(clusterv1.RevisionAnnotation, pickRandomItem(d, "0", "1"))(s)
	}
	return a
}

// A status that was just written is not written again; otherwise a set would write its status forever. A written status
// stays correct until the time of the next recheck, unless an object changes.
func TestUnchangedStatusIsNotWrittenAgain(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(decidetest.RandomRunCount(1000)) {
		d := randomSource{rand.New(rand.NewPCG(seed, 1))}
		c := capitest.NewOfflineCache(
			capitest.DefaultSettings,
			cache.PreflightConfig{Checks: []string{preflight.CheckAll}, IsStrict: d.randomBoolWithOdds(2)},
		)
		s := d.randomSet()
		related := d.randomRelatedObjects(s)
		now := capitest.Noon.Add(time.Duration(d.IntN(1e9)))
		failure := pickRandomItem(
			d,
			scale.WriteFailure{},
			scale.WriteFailure{},
			scale.WriteFailure{},
			scale.WriteFailure{Message: "quota exceeded"},
			scale.WriteFailure{Deleting: true, Message: "no"},
		)
		after := writeStatus(t, c, s, related, now, failure)

		plan, blocked := planSet(c, after, related, now, failure)
		if !assert.False(t, plan.NeedsStatusWrite, "seed %d: it would be written again", seed) ||
			!assert.True(
				t,
				capiset.StatusShowsBlockers(after, related, blocked),
				"seed %d: what blocks it would be written again",
				seed,
			) {
			want := plan.Status
			t.Logf("stored: %+v", after.Status)
			t.Fatalf("wanted: %+v %+v, blocked: %+v", want, want.Counts, blocked)
		}
		later := now.Add(time.Hour)
		if next := capiset.RecheckTime(
			plan,
			capiset.ExplanationFacts(after, related, plan.Status.Conditions, now),
		); !next.IsZero() {
			later = next.Add(-time.Nanosecond)
		}
		plan, blocked = planSet(c, after, related, later, failure)
		require.False(t, plan.NeedsStatusWrite, "seed %d: only the clock changed", seed)
		require.True(t, capiset.StatusShowsBlockers(after, related, blocked), "seed %d: only the clock changed", seed)
		require.Equal(
			t,
			after,
			writeStatus(t, c, after, related, later, failure),
			"seed %d: a second write changes something",
			seed,
		)
		for _, condition := range after.Status.Conditions {
			kinds[condition.Type+"="+string(condition.Status)]++
			require.NotEmpty(t, condition.Reason, "seed %d: the API server rejects a condition without a reason", seed)
			require.False(t, condition.LastTransitionTime.IsZero(), "seed %d: or without a time", seed)
		}
	}
	for _, kind := range []string{
		"MachinesCreated=False", "MachinesCreated=True", "MachinesReady=False", "MachinesReady=Unknown", "MachinesReady=True", "MachinesUpToDate=False", "ScalingUp=True",
		"ScalingDown=True", "Remediating=True", "Deleting=True", "Paused=True", "ReplicaFailure=True", "Reconciling=True", "Stalled=True", "Blocked=True",
	} {
		assert.Positive(t, kinds[kind], "no state has %s", kind)
	}
}

func TestStatusCountsTheMachinesOfASet(t *testing.T) {
	const ready, upToDate = clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition
	no := func(kind string) capitest.MachineChange { return capitest.WithCondition(kind, metav1.ConditionFalse) }
	type counts [4]int32 // numbers of replicas, ready, available and up-to-date machines
	for _, row := range []struct {
		name     string
		machines []capitest.MachineChange
		want     counts
	}{
		{"none", nil, counts{}},
		{"ready alone", []capitest.MachineChange{func(m *clusterv1.Machine) {
			no(upToDate)(m)
			m.Status.Conditions[0].LastTransitionTime = metav1.NewTime(capitest.Noon)
		}}, counts{1, 1, 0, 0}},
		{"ready for long enough", []capitest.MachineChange{no(upToDate)}, counts{1, 1, 1, 0}},
		{"up to date alone", []capitest.MachineChange{no(ready)}, counts{1, 0, 0, 1}},
		{"several", []capitest.MachineChange{no(ready), no(upToDate), func(*clusterv1.Machine) {}}, counts{3, 2, 2, 2}},
		{"updated in place, it counts for the size alone", []capitest.MachineChange{withAnnotation(clusterv1.UpdateInProgressAnnotation)}, counts{1, 0, 0, 0}},
		{"being deleted, it counts as up to date, too, as Cluster API counts it", []capitest.MachineChange{capitest.AsDeletingObject[*clusterv1.Machine]}, counts{1, 0, 0, 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 1, func(s *clusterv1.MachineSet) { s.Spec.Template.Spec.MinReadySeconds = new(int32(60)) })
			related := capitest.NewRelatedObjects()
			for i, change := range row.machines {
				related.Members = append(related.Members, capitest.NewMachine(fmt.Sprint("m-", i), s, change))
			}
			got := writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{}).Status
			assert.Equal(t, row.want, counts{*got.Replicas, *got.ReadyReplicas, *got.AvailableReplicas, *got.UpToDateReplicas})
		})
	}
}

func TestVersionsOfTheMachinesAreCounted(t *testing.T) {
	s := capitest.NewSet("s", 4)
	kubelet := func(v string) capitest.MachineChange {
		return func(m *clusterv1.Machine) { m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: v} }
	}
	related := capitest.NewRelatedObjects(
		capitest.NewMachine(
			"a",
			s,
			kubelet("v1.31.2"),
		),
		capitest.NewMachine("b", s, kubelet("v1.30.9")),
		capitest.NewMachine("c", s, kubelet("v1.31.2")),
		capitest.NewMachine("d", s, withoutStatus), // the node has not joined, so the version in the spec is used
		capitest.NewMachine("e", s, kubelet("")),
		capitest.NewMachine("f", s, withoutStatus, func(m *clusterv1.Machine) { m.Spec.Version = "" }),
	)
	after := writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	assert.Equal(
		t,
		[]clusterv1.StatusVersion{{Version: "v1.30.9", Replicas: 1}, {Version: "v1.31.2", Replicas: 4}},
		after.Status.Versions,
	)
	_, blocked := planSet(newCache(), after, related, capitest.Noon, scale.WriteFailure{})
	assert.True(t, capiset.StatusShowsBlockers(after, related, blocked))
	related.Members[0].Status.NodeInfo.KubeletVersion = "v1.32.0"
	assert.False(t, capiset.StatusShowsBlockers(after, related, blocked), "a kubelet was updated")
	assert.Empty(
		t,
		writeStatus(t, newCache(), after, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{}).Status.Versions,
	)
}

// The CustomResourceDefinitions before Cluster API v1.14 have no status.versions. The API server drops the field, and
// Millwright does not write it again.
func TestVersionsThatTheAPIServerDropsAreNotRepeated(t *testing.T) {
	s := capitest.NewSet("s", 1)
	related := capitest.NewRelatedObjects(capitest.NewMachine("a", s))
	stored := writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	require.NotEmpty(t, stored.Status.Versions)
	stored.Status.Versions = nil
	_, blocked := planSet(newCache(), stored, related, capitest.Noon, scale.WriteFailure{})
	assert.True(t, capiset.StatusShowsBlockers(stored, related, blocked))
	again := writeStatus(t, newCache(), stored.DeepCopy(), related, capitest.Noon, scale.WriteFailure{})
	assert.Equal(t, stored.Status, again.Status, "nothing is written")
	related.Members = append(related.Members, capitest.NewMachine("b", s))
	assert.NotEmpty(t, writeStatus(t, newCache(), stored, related, capitest.Noon, scale.WriteFailure{}).Status.Versions)
}

// conditionOfSet returns a condition of a set, and asserts that the set has exactly one condition of this type.
func conditionOfSet(t *testing.T, s *clusterv1.MachineSet, kind string) metav1.Condition {
	t.Helper()
	all := slices.DeleteFunc(slices.Clone(s.Status.Conditions), func(c metav1.Condition) bool { return c.Type != kind })
	require.Len(t, all, 1, kind)
	return all[0]
}

func TestConditionsOfASet(t *testing.T) {
	s := capitest.NewSet("s", 2)
	s.Generation = 4
	foreign := metav1.Condition{
		Type:               "example.com/Theirs",
		Status:             metav1.ConditionTrue,
		Reason:             "R",
		Message:            "m",
		LastTransitionTime: capitest.MinutesBeforeNoon(99),
		ObservedGeneration: 1,
	}
	s.Status.Conditions = []metav1.Condition{
		{
			Type:               "ScalingUp",
			Status:             metav1.ConditionTrue,
			Reason:             "Once",
			Message:            "once",
			LastTransitionTime: capitest.MinutesBeforeNoon(50),
			ObservedGeneration: 3,
		},
		foreign,
		{
			Type:               "MachinesReady",
			Status:             metav1.ConditionFalse,
			Reason:             "NotReady",
			LastTransitionTime: capitest.MinutesBeforeNoon(50),
		},
		{
			Type:               "ReplicaFailure",
			Status:             metav1.ConditionTrue,
			Reason:             "FailedCreate",
			LastTransitionTime: capitest.MinutesBeforeNoon(50),
		},
	}
	after := writeStatus(
		t,
		newCache(),
		s,
		capitest.NewRelatedObjects(capitest.NewMachine("m", s)),
		capitest.Noon,
		scale.WriteFailure{},
	)

	assert.Equal(t, foreign.Message, conditionOfSet(t, after, foreign.Type).Message)
	assert.Equal(t, int64(1), conditionOfSet(t, after, foreign.Type).ObservedGeneration, "that of others stays as it is")
	up := conditionOfSet(t, after, "ScalingUp")
	assert.Equal(
		t,
		[]any{metav1.ConditionTrue, "ScalingUp", "Scaling up from 1 to 2 replicas", int64(4)},
		[]any{up.Status, up.Reason, up.Message, up.ObservedGeneration},
	)
	assert.True(
		t,
		up.LastTransitionTime.Equal(new(capitest.MinutesBeforeNoon(50))),
		"the status is as before, so its time stays",
	)
	ready := conditionOfSet(t, after, "MachinesReady")
	assert.Equal(t, metav1.ConditionTrue, ready.Status)
	assert.True(t, ready.LastTransitionTime.Equal(new(capitest.MinutesBeforeNoon(0))), "the status changed now")
	for _, kind := range []string{"ReplicaFailure", "Blocked"} {
		assert.False(
			t,
			slices.ContainsFunc(after.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind }),
			"%s is present only while it is True",
			kind,
		)
	}
	for _, kind := range []string{"MachinesCreated", "MachinesUpToDate", "ScalingDown", "Remediating", "Deleting", "Paused"} {
		conditionOfSet(t, after, kind)
	}
	assert.Equal(t, int64(4), after.Status.ObservedGeneration)
	assert.Equal(t, "cluster.x-k8s.io/cluster-name=c,pool=s", after.Status.Selector)
	s.Spec.Selector = metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Nonsense"}},
	}
	assert.Empty(
		t,
		writeStatus(t, newCache(), s, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{}).Status.Selector,
	)
}

func TestBlockedCondition(t *testing.T) {
	s := capitest.NewSet("s", 2)
	related := capitest.NewRelatedObjects()
	related.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
	_, blocked := planSet(newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	assert.False(t, capiset.StatusShowsBlockers(s, related, blocked), "the status says nothing yet")
	after := writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	c := conditionOfSet(t, after, "Blocked")
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, "TemplateNotFound", c.Reason)
	assert.Contains(t, c.Message, "set s creates no machine: ExampleMachineTemplate does not exist")
	assert.Contains(t, c.Message, "kubectl get machinesets.cluster.x-k8s.io -n shop s -o yaml")
	assert.True(t, c.LastTransitionTime.Equal(new(capitest.MinutesBeforeNoon(0))))
	assert.True(t, capiset.StatusShowsBlockers(after, related, blocked))
	other := blocked
	other.Message += ", and more"
	assert.False(t, capiset.StatusShowsBlockers(after, related, other), "another message")

	s.Status.Conditions = []metav1.Condition{
		{
			Type:               "MachinesCreated",
			Status:             metav1.ConditionFalse,
			Reason:             "TemplateNotFound",
			LastTransitionTime: capitest.MinutesBeforeNoon(50),
		},
	}
	since := conditionOfSet(
		t,
		writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{}),
		"Blocked",
	).LastTransitionTime
	assert.True(t, since.Equal(new(capitest.MinutesBeforeNoon(50))), "it is blocked since no machine could be created")

	_, blocked = planSet(newCache(), after, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{})
	assert.False(
		t,
		capiset.StatusShowsBlockers(after, capitest.NewRelatedObjects(), blocked),
		"nothing blocks it any more, and its status says so still",
	)
	free := writeStatus(t, newCache(), after, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{})
	assert.False(
		t,
		slices.ContainsFunc(free.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Blocked" }),
	)
}

// Another cause blocked the set before.
func TestBlockedConditionHasTheStartTimeOfItsCause(t *testing.T) {
	s := capitest.NewSet("s", 2)
	s.Finalizers = append(s.Finalizers, clusterv1.MachineSetFinalizer)
	s.Status.Conditions = []metav1.Condition{
		{
			Type:               "Blocked",
			Status:             metav1.ConditionTrue,
			Reason:             "TemplateNotFound",
			LastTransitionTime: capitest.MinutesBeforeNoon(50),
		},
	}
	after := writeStatus(t, newCache(), s, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{})
	c := conditionOfSet(t, after, "Blocked")
	assert.Equal(t, "MachineSetInvalid", c.Reason)
	assert.True(
		t,
		c.LastTransitionTime.Equal(new(capitest.MinutesBeforeNoon(0))),
		"another controller came now: %s",
		c.LastTransitionTime,
	)
	later := conditionOfSet(
		t,
		writeStatus(t, newCache(), after, capitest.NewRelatedObjects(), capitest.Noon.Add(time.Hour), scale.WriteFailure{}),
		"Blocked",
	)
	assert.True(t, later.LastTransitionTime.Equal(&c.LastTransitionTime), "it is the same one")
}

// A paused set is blocked only while it has too few or too many machines, or machines that are being deleted.
func TestAPausedSetIsBlockedWhileItHasWork(t *testing.T) {
	paused := withSetAnnotation(clusterv1.PausedAnnotation, "")
	s := capitest.NewSet("s", 1, paused)
	_, blocked := planSet(
		newCache(),
		s,
		capitest.NewRelatedObjects(capitest.NewMachine("m", s)),
		capitest.Noon,
		scale.WriteFailure{},
	)
	assert.False(t, blocked.IsBlocked())
	_, blocked = planSet(newCache(), s, capitest.NewRelatedObjects(), capitest.Noon, scale.WriteFailure{})
	assert.Contains(t, blocked.Message, "kubectl annotate machinesets.cluster.x-k8s.io -n shop s cluster.x-k8s.io/paused-")
}
